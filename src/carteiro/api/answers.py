"""Answers that every door gives alike."""

from typing import TypeVar

from litestar import Response

Body = TypeVar("Body")


def answer_created(body: Body, path: str, *, replayed: bool, status: int | None = None) -> Response[Body]:
    """What was made or was there already (`replayed`), with where it can be read; `status` None: the route's own."""
    headers = {"Location": path}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    return Response(body, headers=headers, status_code=status)
