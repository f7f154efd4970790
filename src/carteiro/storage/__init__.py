"""The only place with SQL. Functions take a connection first and never commit."""
