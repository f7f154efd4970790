"""Use cases. Each owns its transactions and reads like a runbook."""
