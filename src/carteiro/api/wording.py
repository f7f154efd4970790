"""Descriptions for the document, from the docstrings below the members of our structs."""

import ast
import inspect
from functools import cache
from textwrap import dedent
from typing import Any

import msgspec

from carteiro.api import group_links as group_link_schemas
from carteiro.api import schemas
from carteiro.domain import broadcasts, contacts, group_links, requests

_STRUCTS: dict[str, type[msgspec.Struct]] = {
    name: kind
    for module in (schemas, requests, contacts, broadcasts, group_link_schemas, group_links)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}


def add_descriptions(components: dict[str, dict[str, Any]]) -> None:
    """Give each member of a component what its struct says about it. A reference takes no words beside it: it stays."""
    for name, component in components.items():
        struct = _STRUCTS.get(name.partition("_")[0])  # Page[Batch] is Page_Batch_
        if struct is None:
            continue
        for member, told in _told(struct).items():
            if "$ref" not in component["properties"][member]:
                component["properties"][member]["description"] = told


@cache
def _told(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Member -> the string that follows its annotation in the source, or in a base's."""
    told = {}
    for kind in reversed(struct.__mro__):
        if not issubclass(kind, msgspec.Struct) or kind is msgspec.Struct:
            continue
        tree = ast.parse(dedent(inspect.getsource(kind))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for statement, following in zip(tree.body, tree.body[1:], strict=False):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=member)), ast.Expr(value=ast.Constant(value=str() as words)):
                    told[member] = inspect.cleandoc(words)
    return told
