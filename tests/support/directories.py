"""The demo's directory, for tests: `customers` has 20 recipients, addressed by its leader ana."""

from importlib.resources import files

import psycopg

from carteiro.settings import Settings

SCHEMA = "demo_directory"
LEADER, GROUP = "ana", "customers"
RECIPIENTS = 20
LEFT_OUT = {"duplicate": 3, "phone-too-short": 1}


def load_directory(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute((files("carteiro.cli.demo") / "directory.sql").read_bytes())


def directory_settings(dsn: str) -> Settings:
    return Settings(database_url=dsn, directory_schema=SCHEMA, directory_timeout_s=2.0)
