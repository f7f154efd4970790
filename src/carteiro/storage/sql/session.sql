-- Whether a session is what it should be.

-- name: lacking
-- Each setting that is not as it must be: its name, how it is, and the statement that gives it to this role's sessions to come.
SELECT
    name, current_setting(name),
    format('ALTER ROLE %%I IN DATABASE %%I SET %%I = %%L', session_user, current_database(), name, needed)
FROM unnest(%(names)s::text[], %(values)s::text[]) AS setting (name, needed)
WHERE current_setting(name) <> needed

-- name: process
SELECT pg_backend_pid()
