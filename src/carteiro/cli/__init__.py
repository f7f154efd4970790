"""The `carteiro` command."""
