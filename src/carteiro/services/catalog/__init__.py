"""The catalog file: what operators describe, and making the database equal to it."""

from carteiro.services.catalog.apply import apply_catalog as apply_catalog
from carteiro.services.catalog.apply import read_unlimited as read_unlimited
from carteiro.services.catalog.difference import Change as Change
from carteiro.services.catalog.entries import CatalogError as CatalogError
from carteiro.services.catalog.entries import read_catalog as read_catalog
