"""What every problem must look like."""

from typing import Any

import httpx


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check the form of RFC 9457 and our members; the body."""
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["status"], body["code"]) == (status, status, code), body
    assert body["type"] == f"/docs#{code}"
    assert body["title"]
    assert body["detail"]
    assert body["request_id"] == response.headers["x-request-id"]
    for error in body.get("errors", []):
        assert error["code"]
        assert error["detail"]
        assert error.get("pointer", "/")[:1] in ("", "/")  # "" is the body as a whole
        assert ("pointer" in error) != ("parameter" in error)
    return body
