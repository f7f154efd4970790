-- The directory of `carteiro demo` and `carteiro up`: what another application would have, in a schema of its own. Carteiro only
-- reads it. Ana leads the team of the group `customers`.

DROP SCHEMA IF EXISTS demo_directory CASCADE;
CREATE SCHEMA demo_directory;
SET search_path = demo_directory;

CREATE TABLE users (id text PRIMARY KEY, name text NOT NULL, phone text);
CREATE TABLE teams (id text PRIMARY KEY, name text NOT NULL);
CREATE TABLE team_members (
    team_id text NOT NULL REFERENCES teams,
    user_id text NOT NULL REFERENCES users,
    role text NOT NULL,
    status text NOT NULL,
    PRIMARY KEY (team_id, user_id)
);
CREATE TABLE groups (id text PRIMARY KEY, name text NOT NULL, team_id text REFERENCES teams, owner_id text REFERENCES users);
CREATE TABLE group_members (
    group_id text NOT NULL REFERENCES groups,
    user_id text NOT NULL REFERENCES users,
    status text NOT NULL,
    PRIMARY KEY (group_id, user_id)
);
CREATE INDEX ON team_members (user_id);

INSERT INTO users (id, name) VALUES ('ana', 'Ana'), ('bruno', 'Bruno'), ('carla', 'Carla'), ('davi', 'Davi');
INSERT INTO teams VALUES ('north', 'North'), ('south', 'South');
INSERT INTO team_members VALUES
    ('north', 'ana', 'LEADER', 'ACTIVE'),
    ('north', 'bruno', 'LEADER', 'INACTIVE'),
    ('north', 'carla', 'MEMBER', 'ACTIVE'),
    ('south', 'davi', 'LEADER', 'ACTIVE');
INSERT INTO groups VALUES
    ('customers', 'Customers of the north', 'north', NULL),
    ('suppliers', 'Suppliers of the south', 'south', NULL),
    ('neighbours', 'Carla''s own list', NULL, 'carla'),
    ('empty', 'Nobody yet', 'north', NULL);

-- Twenty members, of whom the last is not on WhatsApp; three of them once more in other spellings, one of these without the ninth
-- digit; one who left, one without a phone, one whose phone is none.
INSERT INTO users SELECT format('member-%s', to_char(n, 'FM00')), 'Member', '+55119810' || to_char(n, 'FM00000') FROM generate_series(1, 19) AS n;
INSERT INTO users VALUES
    ('member-20', 'Member', '+5511981009951'),
    ('twin-1', 'Member', '(11) 98100-0001'),
    ('twin-2', 'Member', '0055 11 8100-0002'),
    ('twin-3', 'Member', ' 55 11 98100 0003 '),
    ('left', 'Member', '+5511981000090'),
    ('mute', 'Member', NULL),
    ('wrong', 'Member', '12345');
INSERT INTO group_members
SELECT 'customers', id, CASE id WHEN 'left' THEN 'INACTIVE' ELSE 'ACTIVE' END FROM users WHERE name = 'Member';
INSERT INTO group_members VALUES ('neighbours', 'member-01', 'ACTIVE'), ('empty', 'left', 'INACTIVE'), ('empty', 'wrong', 'ACTIVE');

RESET search_path;
