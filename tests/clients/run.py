"""Stock clients at a ring of real nodes: the same checks with each, also while one node is killed and another joins.

`cargo xtask clients` builds the program and calls this; README.md beside it has the protocol and what is judged.

Invariant: a client that could not be tried is told as SKIPPED, with what it lacks, and never counts as passed.
"""

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from clients import CLIENTS, HERE, Client
from judge import ended, findings
from ring import JOINING, NODES, Ring, RingError

# The shortest time for which writes go on, whatever happens to the nodes meanwhile.
LOAD_SECONDS = 15
# The part of it before the first event, and after the last one.
CALM_SECONDS = 3
CHECKS_SECONDS_MAX = 240
ENDS_SECONDS_MAX = 180


class Told:
    """The lines of JSON that a client writes, one at a time."""

    def __init__(self, client: Client, ring: Ring, built: Path, log: Path) -> None:
        environment = {**os.environ, "REDISCLI_AUTH": ring.token, "PYTHONDONTWRITEBYTECODE": "1"}
        # Clients in Python share a module of this folder.
        environment["PYTHONPATH"] = str(HERE)
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*client.command(built), ",".join(ring.addresses())],
                cwd=client.place,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
            )
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.put(line)
        # The client has ended.
        self.lines.put(b"")

    def next(self, seconds_max: float) -> dict[str, object]:
        """The next line; empty if the client ended, or wrote nothing for this long."""
        try:
            return json.loads(self.lines.get(timeout=seconds_max) or b"{}")
        except (queue.Empty, json.JSONDecodeError):
            return {}

    def end_load(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def ended(self) -> int:
        """The client's exit code; it is killed if it does not end."""
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def trial(
    client: Client, ring: Ring, killed: int, place: Path, *, kill_first: bool
) -> tuple[dict[str, object], list[str]]:
    """Runs a client at a fresh ring; returns its report, and what is wrong with it."""
    log = place / f"{client.name}.log"
    told = Told(client, ring, place / "built", log)
    try:
        if not told.next(CHECKS_SECONDS_MAX).get("under_way"):
            return {}, [f"no writes came about: {last_line(log)}"]
        happened = come_and_go(ring, killed, kill_first=kill_first)
        told.end_load()
        result = told.next(ENDS_SECONDS_MAX)
    finally:
        code = told.ended()
    if code != 0 or not result:
        return {**result, **happened}, [f"it ended with {code}: {last_line(log)}"]
    found = findings(result, client.checks, looks_up=client.looks_up)
    if not happened["calls_at_the_joined"]:
        found.append("it never wrote to the node that joined")
    return {**result, **happened}, found


def come_and_go(ring: Ring, killed: int, *, kill_first: bool) -> dict[str, object]:
    """What happens to the nodes while a client writes: a fourth joins, and one is killed while slots move to the new
    node.
    """
    began = time.monotonic()
    time.sleep(CALM_SECONDS)
    events = {"join": ring.join, "kill": lambda: ring.kill(killed)}
    took = {}
    for name in sorted(events, reverse=kill_first):
        started = time.monotonic()
        events[name]()
        took[f"{name}_ms"] = round((time.monotonic() - started) * 1000)
    # The client has to find out where the slots are.
    until = time.monotonic() + ENDS_SECONDS_MAX / 6
    while not calls_at_the_joined(ring) and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(max(CALM_SECONDS, began + LOAD_SECONDS - time.monotonic()))
    return {
        "killed": killed,
        **took,
        "slots_of_the_joined": ring.slots_of(JOINING),
        "calls_at_the_joined": calls_at_the_joined(ring),
        "load_seconds": round(time.monotonic() - began, 1),
    }


def calls_at_the_joined(ring: Ring) -> int:
    return ring.calls(JOINING, "set")


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{lines[-1]} ({log})" if lines else f"it said nothing ({log})"


def tried(client: Client, killed: int, given: argparse.Namespace) -> tuple[dict[str, object], list[str]]:
    """Builds a client and runs it at a ring of its own; if it shows a fault, the ring's folder is kept."""
    place = given.folder
    folder = place / "rings" / client.name
    shutil.rmtree(folder, ignore_errors=True)
    log = place / f"{client.name}.log"
    if not client.make(place / "built", log):
        return {}, [f"it could not be built: {last_line(log)}"]
    try:
        with Ring(given.atoll, folder) as ring:
            result, found = trial(client, ring, killed, place, kill_first=given.kill_first)
    except RingError as error:
        result, found = {}, [str(error)]
    if not found:
        shutil.rmtree(folder)
    return result, found


def line_of(client: Client, result: dict[str, object], found: list[str]) -> str:
    verdict = "FAIL" if found else "ok  "
    checks = result.get("checks")
    passed = len(checks) if isinstance(checks, list) else 0
    words = [
        f"{client.name:15} {result.get('version', '-')!s:16}",
        f"checks {passed}/{len(client.checks)}",
        f"{result.get('checks_under_way')} times while nodes changed",
        f"acknowledged {result.get('acknowledged')}",
        f"lost {result.get('lost') if client.looks_up else '-'}",
        f"longest gap {result.get('longest_gap_ms')} ms",
        f"node {result.get('killed')} killed ({result.get('kill_ms')} ms)",
        f"{result.get('calls_at_the_joined')} writes to the node that joined",
    ]
    return f"  {verdict} " + ", ".join(words)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/clients/run.py", description=__doc__.splitlines()[0])
    names = [client.name for client in CLIENTS]
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"of {', '.join(names)}; all if none is named")
    parser.add_argument("--atoll", type=Path, required=True, help="the program")
    parser.add_argument("--folder", type=Path, required=True, help="where to build and to keep what is written")
    parser.add_argument("--kill-first", action="store_true", help="kill before the other joins; takes half a minute more")
    parser.add_argument("--all", action="store_true", help="a client that cannot be tried here is a failure")
    parser.add_argument("--json", type=Path, help="write what was seen to this file")
    given = parser.parse_args()
    unknown = [name for name in given.clients if name not in names]
    if unknown:
        parser.error(f"there is no client {unknown[0]!r}; there is: {', '.join(names)}")
    return given


def main() -> int:
    given = arguments()
    given.atoll, given.folder = given.atoll.resolve(), given.folder.resolve()
    given.folder.mkdir(parents=True, exist_ok=True)
    passed, failed, skipped, results = 0, 0, 0, []
    for at, client in enumerate(CLIENTS):
        if given.clients and client.name not in given.clients:
            continue
        missing = client.missing()
        for lack in missing:
            print(f"  SKIPPED [{lack.split()[0]}] {client.name}: {lack}", flush=True)
        if missing:
            skipped += 1
            continue
        print(f"  ...  {client.name}", flush=True)
        result, found = tried(client, at % NODES + 1, given)
        print(line_of(client, result, found), flush=True)
        for each in found:
            print(f"       {each}", flush=True)
        for error, times in sorted(dict(result.get("met") or {}).items(), key=lambda met: -met[1]):
            print(f"       met {times} times: {error}", flush=True)
        passed, failed = passed + (not found), failed + bool(found)
        results.append({"client": client.name, "found": found, **result})
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return ended(passed, failed, skipped, is_asked_for=given.all or bool(given.clients))


if __name__ == "__main__":
    sys.exit(main())
