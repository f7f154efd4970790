"""Settings, read from CARTEIRO_* environment variables."""
