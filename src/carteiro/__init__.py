"""Carteiro: bulk WhatsApp-template dispatch on Postgres alone."""

__version__ = "0.1.0"
