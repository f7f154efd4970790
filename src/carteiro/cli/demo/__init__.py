"""`carteiro demo`."""

from carteiro.cli.demo.command import demo as demo
