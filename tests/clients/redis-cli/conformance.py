"""`redis-cli -c` at a ring: the checks that every client makes, then writes while the nodes change.

Each command is a process of its own, as in a script. Called with the nodes, HOST:PORT,HOST:PORT,...; the token is in
REDISCLI_AUTH, which redis-cli reads. tests/clients/README.md has the protocol.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

NODES = sys.argv[1].split(",")
WRITERS = 2
KEYS = 64
UNDER_WAY = 50
RETRY_SECONDS = 0.02
RETRY_SECONDS_MAX = 30

CHECKS: dict[str, Callable[[], None]] = {}


class Refused(Exception):
    """The error of a node, or of the program, in place of an answer."""


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


def cli(*words: str, node: str = NODES[0], options: tuple[str, ...] = ("-c",), given: bytes | None = None) -> bytes:
    """The answer; an error makes the program exit with another code, which a script depends on."""
    host, port = node.split(":")
    command = ["redis-cli", "-h", host, "-p", port, "-e", *options, *words]
    ran = subprocess.run(command, input=given, stdin=None if given is not None else subprocess.DEVNULL, capture_output=True)
    if ran.returncode != 0:
        raise Refused((ran.stderr + ran.stdout).decode(errors="replace").strip())
    return ran.stdout


def words(*command: str, **options: object) -> list[str]:
    return cli(*command, **options).decode().splitlines()


def line(*command: str, **options: object) -> str:
    return "\n".join(words(*command, **options))


def script(*lines: str) -> list[str]:
    """Commands on standard input, one a line, bytes as \\x00; binary answers use the same notation."""
    given = "".join(f"{each}\n" for each in lines).encode()
    said = cli(options=("-c", "--no-raw"), given=given).decode().splitlines()
    return [each for each in said if not each.startswith("-> Redirected")]


def same(actual: object, expected: object) -> None:
    if actual != expected:
        raise AssertionError(f"{str(actual)[:200]!r} instead of {str(expected)[:200]!r}")


def refused(text: str, *command: str, **options: object) -> str:
    try:
        answer = cli(*command, **options)
    except Refused as error:
        if text not in str(error):
            raise AssertionError(f"{error} does not say {text}") from error
        return str(error)
    raise AssertionError(f"{answer!r} instead of an error")


@check
def set_and_get() -> None:
    same(line("GET", "absent"), "")
    same(line("SET", "a", "1"), "OK")
    same(line("SET", "a", "2"), "OK")
    same(line("GET", "a"), "2")


@check
def set_options() -> None:
    same(line("SET", "o", "1", "NX"), "OK")
    same(line("SET", "o", "2", "NX"), "")
    same(line("SET", "o-absent", "2", "XX"), "")
    same(line("SET", "o", "3", "XX"), "OK")
    same(line("GETDEL", "o"), "3")
    same(line("EXISTS", "o"), "0")


@check
def exists_and_del() -> None:
    line("SET", "e", "1")
    same([line(*command.split()) for command in ("EXISTS e", "DEL e", "EXISTS e", "DEL e")], ["1", "1", "0", "0"])


@check
def numbers() -> None:
    commands = ("INCR n", "INCRBY n 5", "DECRBY n 2", "APPEND n 2", "STRLEN n", "GET n")
    same([line(*command.split()) for command in commands], ["1", "6", "4", "2", "2", "42"])


@check
def expiry() -> None:
    line("SET", "x", "1", "EX", "100")
    same(90 < int(line("TTL", "x")) <= 100, True)
    same((line("PERSIST", "x"), line("TTL", "x"), line("EXPIRE", "x", "200")), ("1", "-1", "1"))
    same(190 < int(line("TTL", "x")) <= 200, True)
    same(line("PEXPIRE", "x", "50"), "1")
    until = time.monotonic() + 10
    while line("EXISTS", "x") != "0":
        same(time.monotonic() < until, True)
    same(line("TTL", "x"), "-2")


@check
def hashes() -> None:
    same((line("HSET", "h", "x", "1", "y", "2"), line("HSET", "h", "x", "3")), ("2", "0"))
    same((line("HGET", "h", "x"), line("HGET", "h", "z")), ("3", ""))
    same(words("HGETALL", "h"), ["x", "3", "y", "2"])
    same(words("HMGET", "h", "y", "z"), ["2", ""])
    commands = ("HEXISTS h y", "HLEN h", "HINCRBY h x 4", "HDEL h x", "HKEYS h", "TYPE h")
    same([line(*command.split()) for command in commands], ["1", "2", "7", "1", "y", "hash"])


@check
def several_keys() -> None:
    same(line("MSET", "{t}1", "1", "{t}2", "2"), "OK")
    same(words("MGET", "{t}1", "{t}2", "{t}3"), ["1", "2", ""])
    same((line("EXISTS", "{t}1", "{t}2", "{t}3"), line("DEL", "{t}1", "{t}2")), ("2", "2"))
    refused("CROSSSLOT", "MSET", "one", "1", "another", "2")


@check
def scan() -> None:
    expected = sorted(f"scan-{number}" for number in range(200))
    cli(given="".join(f"SET {key} 1\n" for key in expected).encode())
    found = [key for node in NODES for key in words("--scan", "--pattern", "scan-*", node=node, options=())]
    same(sorted(found), expected)


@check
def pipelines() -> None:
    """`--pipe` sends protocol bytes to one node: keys of one tag, at the node that leads it."""
    given = "".join(f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n$1\r\n1\r\n" for key in tagged()).encode()
    said = cli("--pipe", node=leader("{pipe}"), options=(), given=given).decode()
    same("errors: 0, replies: 200" in said, True)
    same(line("EXISTS", *tagged()), "200")


def tagged() -> list[str]:
    return [f"{{pipe}}{number}" for number in range(200)]


def leader(key: str) -> str:
    """The leader of a key's slot: the node that another node names, or the one that does not name another."""
    for node in NODES:
        try:
            cli("GET", key, node=node, options=())
        except Refused as error:
            return str(error).split()[2]
    raise AssertionError("every node leads it")


@check
def moved() -> None:
    slot = line("CLUSTER", "KEYSLOT", "moved")
    leads = leader("moved")
    for node in NODES:
        if node != leads:
            said = refused("MOVED", "GET", "moved", node=node, options=())
            same(re.search(r"MOVED (\d+) (\S+)", said).groups(), (slot, leads))
        same((line("SET", "moved", node, node=node), line("GET", "moved", node=node)), ("OK", node))


@check
def wrong_type() -> None:
    line("HSET", "w", "x", "1")
    refused("WRONGTYPE", "INCR", "w")
    line("SET", "no-number", "x")
    refused("not an integer", "INCR", "no-number")


@check
def syntax_errors() -> None:
    refused("syntax error", "SET", "s", "1", "NOSUCH")
    refused("wrong number of arguments", "GET", "s", "s2")
    refused("unknown command", "NOSUCH", "s")


@check
def large_values() -> None:
    large = bytes(range(256)) * (16 << 10)
    # The value is the last argument, read from standard input.
    same(cli("SET", "large", options=("-c", "-x"), given=large), b"OK\n")
    same(cli("GET", "large") == large + b"\n", True)


@check
def empty_and_binary() -> None:
    same((line("SET", "empty", ""), line("GET", "empty"), line("EXISTS", "empty")), ("OK", "", "1"))
    key, value = r'"\x00\xff\r\n"', r'"\r\n\x00\xff$-1\r\n"'
    same(script(f"SET {key} {value}", f"GET {key}"), ["OK", value])


@check
def wrong_token() -> None:
    host, port = NODES[0].split(":")
    environment = {**os.environ, "REDISCLI_AUTH": "not the token"}
    ran = subprocess.run(["redis-cli", "-h", host, "-p", port, "PING"], capture_output=True, env=environment)
    said = (ran.stdout + ran.stderr).decode()
    same(("WRONGPASS" in said, "PONG" in said), (True, False))


@check
def both_protocols() -> None:
    line("HSET", "both", "x", "1")
    for protocol in ("-2", "-3"):
        # As pairs in the newer protocol.
        same(line("HGETALL", "both", options=("-c", protocol)).split(), ["x", "1"])


class Load:
    """Writers, each with keys of its own, whose versions only rise."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.acknowledged = [[0] * KEYS for _ in range(WRITERS)]
        self.writes = [0] * WRITERS
        self.asked = list(range(WRITERS))
        self.gaps = [0.0] * WRITERS
        self.stale = [0] * WRITERS
        self.met: Counter[str] = Counter()
        self.failed: list[str] = []
        self.under_way = threading.Barrier(WRITERS + 1)

    def again(self, writer: int, *command: str) -> str:
        """Asks the node that answered last, or else the next one: a program that starts anew does not know which node
        is gone.
        """
        until = time.monotonic() + RETRY_SECONDS_MAX
        while True:
            try:
                return line(*command, node=NODES[self.asked[writer] % len(NODES)])
            except Refused as error:
                self.met[str(error)[:80]] += 1
                if time.monotonic() > until:
                    raise
                self.asked[writer] += 1
                time.sleep(RETRY_SECONDS)

    def write(self, writer: int) -> None:
        try:
            self.write_until_over(writer)
        except Exception as error:
            self.failed.append(f"writer {writer}: {error!r}")
            self.under_way.abort()

    def write_until_over(self, writer: int) -> None:
        last = time.monotonic()
        while not self.is_over.is_set():
            number = self.writes[writer] + 1
            key = f"load-{writer}-{number % KEYS}"
            found = int(self.again(writer, "GET", key) or 0)
            self.stale[writer] += found != self.acknowledged[writer][number % KEYS]
            same(self.again(writer, "SET", key, str(number)), "OK")
            self.acknowledged[writer][number % KEYS] = self.writes[writer] = number
            now = time.monotonic()
            self.gaps[writer], last = max(self.gaps[writer], now - last), now
            if number == UNDER_WAY:
                self.under_way.wait()

    def run(self) -> dict[str, object]:
        writers = [threading.Thread(target=self.write, args=(writer,), daemon=True) for writer in range(WRITERS)]
        for writer in writers:
            writer.start()
        self.under_way.wait(RETRY_SECONDS_MAX)
        tell({"under_way": True})
        sys.stdin.read()
        self.is_over.set()
        for writer in writers:
            writer.join()
        if self.failed:
            raise SystemExit("; ".join(self.failed))
        return {
            "acknowledged": sum(self.writes),
            "lost": sum(self.lost(writer) for writer in range(WRITERS)),
            "stale": sum(self.stale),
            "longest_gap_ms": round(max(self.gaps) * 1000),
            "met": dict(self.met),
        }

    def lost(self, writer: int) -> int:
        versions = [(f"load-{writer}-{at}", version) for at, version in enumerate(self.acknowledged[writer])]
        return sum(self.again(writer, "GET", key) != str(version) for key, version in versions if version)


def tell(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def main() -> None:
    for name, function in CHECKS.items():
        try:
            function()
        except Exception as error:
            raise SystemExit(f"{name}: {type(error).__name__}: {error}") from error
    version = line("--version", options=()).split()[1]
    tell({"client": "redis-cli -c", "version": version, "checks": list(CHECKS), **Load().run()})


if __name__ == "__main__":
    main()
