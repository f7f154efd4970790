-- name: account
SELECT id, coalesce(bills_to, id), callback_secret FROM account WHERE id = %(id)s
