"""Where a peer's processes find everything: handed to them in their environment."""

import os
from dataclasses import asdict, dataclass
from typing import Self

_PREFIX = "BENCH_PEER_"


@dataclass(frozen=True)
class Place:
    dsn: str
    """The peer's own database; `sent` has a row for each message."""
    redis_socket: str
    """Path of a Redis server's unix socket; empty for a peer that needs none."""
    simulator_url: str
    api_key: str
    messages: int

    def environment(self) -> dict[str, str]:
        return {_PREFIX + name.upper(): str(value) for name, value in asdict(self).items()}

    @classmethod
    def from_environment(cls) -> Self:
        told = {name: os.environ[_PREFIX + name.upper()] for name in cls.__dataclass_fields__}
        return cls(told["dsn"], told["redis_socket"], told["simulator_url"], told["api_key"], int(told["messages"]))
