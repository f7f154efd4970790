"""The demo's directory, for tests: `customers` has 20 recipients, addressed by its leader ana."""

import psycopg

from carteiro.cli.stack import DIRECTORY_SCHEMA, demo_directory
from carteiro.settings import Settings

LEADER, GROUP = "ana", "customers"
RECIPIENTS = 20
LEFT_OUT = {"duplicate": 3, "phone-too-short": 1}


def load_directory(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(demo_directory().encode())


def directory_settings(dsn: str) -> Settings:
    return Settings(database_url=dsn, directory_schema=DIRECTORY_SCHEMA, directory_timeout_s=2.0)
