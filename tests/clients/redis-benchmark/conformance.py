"""`redis-benchmark --cluster` at a ring: it runs and ends well before a node is killed, while another joins, and after.

While nodes change, the load consists of the checks, one after the other: a round is one good run of each.

A benchmark does not survive the end of a connection, nor does it check what it wrote: runs that meet the killed node
are counted as errors, and those that ended well as acknowledged. Called with the nodes, HOST:PORT,HOST:PORT,...; the
token is in REDISCLI_AUTH. tests/clients/README.md has the protocol.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter

NODES = sys.argv[1].split(",")
TOKEN = os.environ["REDISCLI_AUTH"]
REQUESTS = 5_000
RUN_SECONDS_MAX = 30
RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 30

CHECKS = {
    "set-and-get": ("-t", "set,get"),
    "pipelines": ("-t", "set,get", "-P", "16", "-r", "100000", "-d", "1000"),
    "both-protocols": ("-t", "set,get", "-3"),
}


class Ended(Exception):
    """A run ended badly."""


def benchmark(node: str, *options: str, requests: int = REQUESTS) -> None:
    """One run, which must report a rate for each of its tests."""
    host, port = node.split(":")
    command = ["redis-benchmark", "--cluster", "-h", host, "-p", port, "-a", TOKEN, "-n", str(requests), *options, "-q"]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=RUN_SECONDS_MAX, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise Ended(f"it did not end in {RUN_SECONDS_MAX} s") from error
    said = (ran.stdout + ran.stderr).decode(errors="replace").replace("\r", "\n")
    rates = re.findall(r"^(?:SET|GET): ([0-9.]+) requests per second", said, re.MULTILINE)
    if ran.returncode != 0 or len(rates) != 2 or "ERR" in said:
        lines = [line.strip() for line in said.splitlines() if "rror" in line or "ERR" in line or "onnect" in line]
        raise Ended(lines[0] if lines else f"it ended with {ran.returncode}")


def load() -> dict[str, object]:
    """Makes the checks again and again until standard input ends, moving to the next node after a failure; then each
    check once more, which must succeed.
    """
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    met: Counter[str] = Counter()
    good, gap, last, attempt, failing_since = 0, 0.0, time.monotonic(), 0, time.monotonic()
    tell({"under_way": True})
    while not is_over.is_set():
        name = list(CHECKS)[good % len(CHECKS)]
        try:
            benchmark(NODES[attempt % len(NODES)], *CHECKS[name])
        except Ended as error:
            met[str(error)[:80]] += 1
            attempt += 1
            if time.monotonic() - failing_since > RETRY_SECONDS_MAX:
                raise SystemExit(f"{name}: not made in {RETRY_SECONDS_MAX} s: {error}") from error
            time.sleep(RETRY_SECONDS)
            continue
        good += 1
        gap, last = max(gap, time.monotonic() - last), time.monotonic()
        failing_since = last
    for check in CHECKS.values():
        after(check, attempt)
    return {
        "checks_under_way": good // len(CHECKS) + 1,
        "checks_at_end": list(CHECKS),
        # It does not look at what it gets.
        "sent_twice": 0,
        "acknowledged": good * REQUESTS,
        "lost": None,
        "stale": None,
        "longest_gap_ms": round(gap * 1000),
        "met": dict(met),
    }


def after(check: tuple[str, ...], attempt: int) -> None:
    """In the end, a run must succeed from every living node; the only permitted failure is that of the killed one."""
    reasons = []
    for number in range(len(NODES)):
        try:
            benchmark(NODES[(attempt + number) % len(NODES)], *check)
        except Ended as error:
            reasons.append(str(error))
    if len(reasons) > 1:
        raise SystemExit(f"after the nodes changed: {'; '.join(reasons)}")


def tell(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def main() -> None:
    for name, options in CHECKS.items():
        for node in NODES:
            try:
                benchmark(node, *options)
            except Ended as error:
                raise SystemExit(f"{name}: {error}") from error
    version = subprocess.run(["redis-benchmark", "--version"], capture_output=True, text=True).stdout.split()[1]
    tell({"client": "redis-benchmark --cluster", "version": version, "checks": list(CHECKS), **load()})


if __name__ == "__main__":
    main()
