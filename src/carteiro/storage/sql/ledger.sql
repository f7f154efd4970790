-- Credits. Every change of account.balance has its ledger row in the same statement; the account's row lock orders them.

-- name: lock_account
SELECT balance FROM account WHERE id = %(account_id)s FOR NO KEY UPDATE

-- name: has_grant
SELECT EXISTS (SELECT FROM ledger_entry WHERE account_id = %(account_id)s AND kind = 'grant' AND cause = %(cause)s)

-- name: grant
WITH granted AS (
    UPDATE account SET balance = balance + %(amount)s WHERE id = %(account_id)s RETURNING id, balance
)
INSERT INTO ledger_entry (account_id, kind, amount, balance_after, cause, actor)
SELECT id, 'grant', %(amount)s, balance, %(cause)s, %(actor)s FROM granted
RETURNING balance_after

-- name: debit
WITH taken AS (
    UPDATE account SET balance = balance - %(amount)s WHERE id = %(account_id)s AND balance >= %(amount)s RETURNING id, balance
)
INSERT INTO ledger_entry (account_id, batch_id, kind, amount, balance_after, cause, actor)
SELECT id, %(batch_id)s, 'debit', -%(amount)s, balance, %(cause)s, %(actor)s FROM taken
RETURNING balance_after

-- name: refund
-- After the account's lock, in a statement of its own, so that it sees a refund that was committed meanwhile.
WITH returned AS (
    UPDATE account SET balance = balance + %(amount)s
    WHERE id = %(account_id)s
        AND NOT EXISTS (SELECT FROM ledger_entry WHERE batch_id = %(batch_id)s AND cause = %(cause)s AND seq IS NULL)
    RETURNING id, balance
)
INSERT INTO ledger_entry (account_id, batch_id, kind, amount, balance_after, cause, actor)
SELECT id, %(batch_id)s, 'refund', %(amount)s, balance, %(cause)s, %(actor)s FROM returned
RETURNING balance_after

-- name: balance
SELECT balance FROM account WHERE id = %(account_id)s

-- name: entries
-- Who pays sees all of it; who spends another account's credits sees what its own batches moved.
SELECT l.id, l.at, l.kind, l.amount, l.balance_after, l.cause, l.batch_id
FROM ledger_entry l
LEFT JOIN batch b ON b.id = l.batch_id
WHERE l.account_id = %(billing_account_id)s
    AND (%(account_id)s = %(billing_account_id)s OR b.account_id = %(account_id)s)
    AND l.id < %(before_id)s
ORDER BY l.id DESC
LIMIT %(limit)s
