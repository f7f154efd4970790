"""`make chaos`: every run of the matrix in turn, until the time is up; the results go into docs/reliability.md."""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from tests.chaos.clock import NoCompilerError
from tests.chaos.matrix import FAULTS, MATRIX, chosen
from tests.chaos.run import LOAD_S, Run, run
from tests.chaos.table import PAGE, append, struck


def main() -> int:
    options = _options()
    seed = options.seed if options.seed is not None else random.randrange(1, 1_000_000)
    logs = Path(tempfile.mkdtemp(prefix="carteiro-chaos-"))
    logs.chmod(0o755)
    print(f"seed {seed}, logs in {logs}", flush=True)
    names = options.only or MATRIX
    failed = 0
    began_s = time.monotonic()
    for number in count():
        if number >= len(names) * options.rounds and time.monotonic() - began_s >= options.minutes * 60:
            break
        faults = names[number % len(names)]
        try:
            done = asyncio.run(run(faults, seed + number, logs / f"{number}-{faults}", load_s=options.seconds))
        except NoCompilerError as error:
            print(f"{faults}: left out, {error}", flush=True)
            continue
        failed += bool(done.findings)
        _show(done)
        if not options.no_page:
            append(done)
    print(f"{failed} of {number} runs failed, {(time.monotonic() - began_s) / 60:.0f} minutes", flush=True)
    return min(failed, 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="go on for so long; all of the matrix at least once")
    parser.add_argument("--rounds", type=int, default=1, help="go through the matrix so often at least")
    parser.add_argument("--seconds", type=float, default=LOAD_S, help="of load and faults in each run")
    parser.add_argument("--seed", type=int, help="of the first run; the next has the next number")
    parser.add_argument(
        "--only", action="append", metavar="FAULT", help=f"{', '.join(FAULTS)}; together: kill+truncate"
    )
    parser.add_argument("--no-page", action="store_true", help=f"leave {PAGE.name} as it is")
    options = parser.parse_args()
    for faults in options.only or ():
        try:
            chosen(faults)
        except KeyError as error:
            parser.error(f"there is no fault {error}")
        except ValueError as error:
            parser.error(str(error))
    return options


def _show(done: Run) -> None:
    verdict = done.verdict
    fullest = "" if verdict.fullest is None else f", fullest window {verdict.fullest:.2f}"
    figures = (
        f"{done.seconds:.0f} s, {verdict.batches} batches, {verdict.messages} messages, {verdict.calls} calls,"
        f" {verdict.witnessed} witnessed, {verdict.unknown} unknown, {verdict.apart} apart{fullest}; {struck(done)}"
    )
    print(f"{'FAILED' if done.findings else 'passed'}: {done.faults} (seed {done.seed}): {figures}", flush=True)
    for finding in done.findings:
        print(f"  {finding}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
