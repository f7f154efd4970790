-- Another application's users, groups and teams. What stands in braces is named by the operator (storage/directory_names.py) and
-- put in as a quoted identifier. Its ids may be of any type: they are compared with what is given as Postgres reads that type.

-- name: leads
SELECT EXISTS (
    SELECT FROM {groups} g
    JOIN {teams} t ON t.{teams_id} = g.{groups_team}
    JOIN {team_members} m ON m.{team_members_team} = t.{teams_id}
    WHERE g.{groups_id} = %(group_id)s AND m.{team_members_user} = %(owner_id)s
        AND m.{team_members_role}::text = ANY(%(leader)s) AND m.{team_members_status}::text = ANY(%(active)s)
)

-- name: owns
SELECT EXISTS (SELECT FROM {groups} g WHERE g.{groups_id} = %(group_id)s AND g.{groups_owner} = %(owner_id)s)

-- name: phones
SELECT u.{users_phone}::text
FROM {group_members} m JOIN {users} u ON u.{users_id} = m.{group_members_user}
WHERE m.{group_members_group} = %(group_id)s AND m.{group_members_status}::text = ANY(%(active)s) AND u.{users_phone} IS NOT NULL
ORDER BY u.{users_id}

-- name: probe
-- Everything that the others name, and no row.
SELECT u.{users_id}, u.{users_phone}, g.{groups_id}, g.{groups_team}, m.{group_members_group}, m.{group_members_user},
    m.{group_members_status}, t.{teams_id}, l.{team_members_team}, l.{team_members_user}, l.{team_members_role},
    l.{team_members_status}
FROM {users} u, {groups} g, {group_members} m, {teams} t, {team_members} l
LIMIT 0

-- name: probe_owner
SELECT g.{groups_owner} FROM {groups} g LIMIT 0
