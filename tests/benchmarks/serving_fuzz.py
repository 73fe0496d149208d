"""Send a server random and malformed requests: it must answer each in time, and make no mistakes of its own.

``python -m tests.benchmarks.serving_fuzz [--bodies 100000] [--seed 0] [--described 0.1]``

One uvicorn process serves sessions with one input, with several inputs by name, and with one large input.  Several
connections send requests that `tests.serving.hostile` draws, and requests that schemathesis makes from the sessions'
OpenAPI descriptions.  The answers are counted and printed; the exit code is 1 if an answer is not allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.benchmarks.contenders import restart_with_one_thread
from tests.serving import hostile
from tests.serving.fuzzing import GOOD, Tally, counts, described_requests, fired
from tests.serving.hostile import Hostile
from tests.serving.processes import Server, served, until

# The number of requests in a round, and the number after which the server's memory is measured first.
ROUND: Final = 1000
WARM_UP: Final = 4000
# The MiB by which the server's memory may grow after that; it levels off at four to five MiB more.
GROWTH: Final = 6.0
# The number of large requests among a thousand.
LARGE: Final = 10

# The error that uvicorn logs if the bytes after a complete request are no HTTP, which is not the session's mistake.
SERVERS_OWN: Final = "h11._util.LocalProtocolError"


def resident(server: Server) -> float:
    """The MiB of memory of the server's process."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def requests_of(server: Server, number: int, count: int, described: int) -> list[Hostile]:
    """Draw one round of requests, the same for the same `number`.

    Args:
        server: the server whose descriptions are read.
        number: the seed of the round.
        count: how many requests to draw.
        described: how many of them are made from descriptions.
    """
    large = count * LARGE // ROUND
    found = hostile.drawn(hostile.requests(), count - large - described, number)
    if large:
        found += hostile.drawn(hostile.large_requests(), large, number)
    if described:
        found += hostile.drawn(described_requests(server), described, number)
    return found


def fuzz(server: Server, bodies: int, number: int, described: float) -> bool:
    """Send requests, print counts of the answers, and return whether all answers are allowed.

    Args:
        server: a server that is ready.
        bodies: how many requests to send.
        number: the seed.
        described: the share of requests that are made from descriptions.
    """
    tally, before = Tally(), counts(server)
    warm, different, seconds = 0.0, set(), 0.0
    total = 0
    while total < bodies:
        count = min(ROUND, bodies - total)
        requests = requests_of(server, (number << 20) + total, count, int(count * described))
        begin = time.perf_counter()
        asyncio.run(fired(server.port, requests, tally))
        seconds += time.perf_counter() - begin
        different |= {hash(request.raw) for request in requests}
        total += len(requests)
        if not warm and total >= min(WARM_UP, bodies // 2):
            warm = resident(server)
        if sys.stderr.isatty():
            print(f"\r{total} of {bodies}", end="", file=sys.stderr, flush=True)
    print(f"requests  {total}, {len(different)} of them different, in {seconds:.0f} s of sending")
    wrong = tally.wrong + tally.differs(counts(server), before)
    print("of these  " + ", ".join([f"{count} {name}" for name, count in tally.families.most_common()]))
    answers = [f"{count} x {status or 'none'}" for status, count in sorted(tally.statuses.items())]
    print("answers   " + ", ".join(answers))
    print(f"counted   {tally.served} served, {tally.invalid} invalid, {tally.unsure} that may be either or none")
    print(f"slowest   {tally.slowest * 1e3:.0f} ms")
    wrong += afterwards(server, warm)
    print(f"wrong     {len(wrong)}")
    for value in wrong[:20]:
        print("  " + value)
    return not wrong


def afterwards(server: Server, warm: float) -> list[str]:
    """Check the server after all requests: a valid request, its memory and its log; return the problems as texts.

    Args:
        server: the server, after all requests.
        warm: the MiB of its memory after the first requests.
    """
    wrong = []
    last = Tally()
    asyncio.run(fired(server.port, [GOOD], last))
    print(f"the last  {last.statuses[200]} valid request was answered with 200")
    if last.statuses != {200: 1}:
        wrong.append(f"a valid request was answered so: {last.statuses}, {last.wrong}")
    grown = resident(server) - warm
    print(f"memory    {warm:.1f} MiB after the first {WARM_UP}, {grown:+.1f} MiB by the end")
    if grown > GROWTH:
        wrong.append(f"memory has grown by {grown:.1f} MiB")
    errors = Counter(re.findall(r"^Traceback .*\n(?:^[ ].*\n|^$\n)*(.*)$", server.log.read_text(), re.MULTILINE))
    for value, count in errors.items():
        print(f"log       {count} x {value}")
        if not value.startswith(SERVERS_OWN):
            wrong.append(f"{count} times in the log: {value}")
    return wrong


def main() -> None:
    """Fuzz."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.serving_fuzz", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--bodies", type=int, default=100_000, help="how many requests to send")
    parser.add_argument("--seed", type=int, default=0, help="the same requests for the same seed")
    parser.add_argument("--described", type=float, default=0.1, help="the share that schemathesis makes, if installed")
    given = parser.parse_args()
    restart_with_one_thread()
    if importlib.util.find_spec("schemathesis") is None:
        print("schemathesis is not installed: no requests are made from descriptions")
        given.described = 0.0
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), "hostile") as server:
        until(lambda: server.ready(hostile.WIDE + "/ready"), "ready")
        good = fuzz(server, given.bodies, given.seed, given.described)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
