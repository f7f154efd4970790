"""Structured logs without phones, keys or message text."""
