"""SQLAlchemy Core tables: what Alembic migrates."""
