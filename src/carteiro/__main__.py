"""`python -m carteiro`."""

from carteiro.cli import main

main()
