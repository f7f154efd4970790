"""One bare loop over the provider's client: `python -m tests.benchmarks.floor URL KEY N IN_FLIGHT NUMBER`."""

import asyncio
import json
import sys
import time
from uuid import UUID

import uvloop

from carteiro.domain.outcomes import Accepted, Outgoing
from carteiro.providers.registry import open_provider


async def run(url: str, key: str, n: int, in_flight: int, number: int) -> None:
    provider = open_provider("infobip", base_url=url, api_key=key, max_connections=in_flight)
    batch_id = UUID(int=number + 1)
    numbers = iter(range(1, n + 1))

    async def loop() -> None:
        for seq in numbers:
            message = Outgoing(
                batch_id, seq, "5511400010000", f"55119{80_000_000 + seq}", "bench_v1", "pt_BR", ("Cliente", str(seq))
            )
            [outcome] = await provider.submit([message])
            if not isinstance(outcome, Accepted):
                raise RuntimeError(f"not accepted: {outcome}")

    began_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(loop() for _ in range(in_flight)))
    took = {"seconds": time.perf_counter() - began_s, "cpu_s": time.process_time() - cpu_s}
    print(json.dumps(took))
    await provider.close()


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])))
