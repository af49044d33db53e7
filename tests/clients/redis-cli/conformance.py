"""`redis-cli -c` at a ring: the checks that every client makes, then writes and the checks again while nodes change.

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

# Beside this folder; run.py names it in PYTHONPATH.
from under_way import LATER, Later, Turn, UnderWay, same

NODES = sys.argv[1].split(",")
WRITERS = 2
KEYS = 64
UNDER_WAY = 50
RETRY_SECONDS = 0.02
RETRY_SECONDS_MAX = 30

# What the program says when a node is gone, or ends while it is asked.
GONE = (
    r"Could not connect|Connection (?:refused|reset)|Server closed the connection|Broken pipe|timed out"
    r"|temporarily unavailable"
)


class Refused(Exception):
    """The error of a node, or of the program, in place of an answer."""


class Asked(Turn):
    """An attempt at a check. Each asks another node: a program that starts anew does not know which is gone."""

    @property
    def node(self) -> str:
        return NODES[self.number % len(NODES)]

    def cli(self, *command: str, options: tuple[str, ...] = ("-c",), given: bytes | None = None) -> bytes:
        return cli(*command, node=self.node, options=options, given=given)

    def words(self, *command: str, options: tuple[str, ...] = ("-c",)) -> list[str]:
        return self.cli(*command, options=options).decode().splitlines()

    def line(self, *command: str, options: tuple[str, ...] = ("-c",)) -> str:
        return "\n".join(self.words(*command, options=options))

    def script(self, *lines: str) -> list[str]:
        """Commands on standard input, one a line, bytes as \\x00; binary answers use the same notation."""
        given = "".join(f"{each}\n" for each in lines).encode()
        said = self.cli(options=("-c", "--no-raw"), given=given).decode().splitlines()
        answers = [each for each in said if not each.startswith("-> Redirected")]
        errors = [each for each in answers if each.startswith("(error)")]
        if errors or len(answers) < len(lines):
            # The program goes on after an error, and after a connection that ended, which it tells elsewhere.
            raise Refused(errors[0]) if errors else Later("some commands got no answer")
        return answers

    def refused(self, text: str, *command: str) -> str:
        return refused(text, *command, node=self.node)


Check = Callable[[Asked], None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


def cli(*words: str, node: str, options: tuple[str, ...] = ("-c",), given: bytes | None = None) -> bytes:
    """The answer; an error makes the program exit with another code, which a script depends on."""
    host, port = node.split(":")
    command = ["redis-cli", "-h", host, "-p", port, "-e", *options, *words]
    nothing = subprocess.DEVNULL if given is None else None
    ran = subprocess.run(command, input=given, stdin=nothing, capture_output=True)
    if ran.returncode != 0:
        raise Refused((ran.stderr + ran.stdout).decode(errors="replace").strip())
    return ran.stdout


def line(*command: str, node: str, options: tuple[str, ...] = ("-c",)) -> str:
    return "\n".join(cli(*command, node=node, options=options).decode().splitlines())


def is_later(error: Exception) -> bool:
    """Whether a failed command may succeed later: its node is gone or about to be, or its slot moves."""
    return isinstance(error, Later) or (isinstance(error, Refused) and bool(re.search(f"{GONE}|{LATER}", str(error))))


def refused(text: str, *command: str, node: str, options: tuple[str, ...] = ("-c",)) -> str:
    try:
        answer = cli(*command, node=node, options=options)
    except Refused as error:
        if text in str(error):
            return str(error)
        if is_later(error):
            raise
        raise AssertionError(f"{error} does not say {text}") from error
    raise AssertionError(f"{answer!r} instead of an error")


@check
def set_and_get(at: Asked) -> None:
    key = at.key("a")
    same(at.line("GET", at.key("absent")), "")
    same(at.line("SET", key, "1"), "OK")
    same(at.line("SET", key, "2"), "OK")
    same(at.line("GET", key), "2")


@check
def set_options(at: Asked) -> None:
    key = at.key("o")
    at.once(at.line("SET", key, "1", "NX"), "OK", "")
    same(at.line("SET", key, "2", "NX"), "")
    same(at.line("SET", at.key("o-absent"), "2", "XX"), "")
    same(at.line("SET", key, "3", "XX"), "OK")
    at.once(at.line("GETDEL", key), "3", "")
    same(at.line("EXISTS", key), "0")


@check
def exists_and_del(at: Asked) -> None:
    key = at.key("e")
    at.line("SET", key, "1")
    same(at.line("EXISTS", key), "1")
    at.once(at.line("DEL", key), "1", "0")
    same((at.line("EXISTS", key), at.line("DEL", key)), ("0", "0"))


@check
def numbers(at: Asked) -> None:
    key = at.key("n")
    at.once(at.line("INCR", key), "1", "2")
    at.once(at.line("INCRBY", key, "5"), "6", "11")
    at.once(at.line("DECRBY", key, "2"), "4", "2")
    at.once(at.line("APPEND", key, "2"), "2", "3")
    same((at.line("STRLEN", key), at.line("GET", key)), ("2", "42"))


@check
def expiry(at: Asked) -> None:
    key = at.key("x")
    began = time.monotonic()
    at.line("SET", key, "1", "EX", "100")
    lives(int(at.line("TTL", key)), 100, began)
    at.once(at.line("PERSIST", key), "1", "0")
    same(at.line("TTL", key), "-1")
    began = time.monotonic()
    same(at.line("EXPIRE", key, "200"), "1")
    lives(int(at.line("TTL", key)), 200, began)
    at.once(at.line("PEXPIRE", key, "50"), "1", "0")
    until = time.monotonic() + 10
    while at.line("EXISTS", key) != "0":
        same(time.monotonic() < until, True)
    same(at.line("TTL", key), "-2")


def lives(left: int, seconds: int, began: float) -> None:
    """Checks the time that is left; a command may have waited for another node."""
    same(seconds - 10 - (time.monotonic() - began) < left <= seconds, True)


@check
def hashes(at: Asked) -> None:
    key = at.key("h")
    at.once(at.line("HSET", key, "x", "1", "y", "2"), "2", "0")
    same(at.line("HSET", key, "x", "3"), "0")
    same((at.line("HGET", key, "x"), at.line("HGET", key, "z")), ("3", ""))
    same(at.words("HGETALL", key), ["x", "3", "y", "2"])
    same(at.words("HMGET", key, "y", "z"), ["2", ""])
    same((at.line("HEXISTS", key, "y"), at.line("HLEN", key)), ("1", "2"))
    at.once(at.line("HINCRBY", key, "x", "4"), "7", "11")
    at.once(at.line("HDEL", key, "x"), "1", "0")
    same((at.line("HKEYS", key), at.line("TYPE", key)), ("y", "hash"))


@check
def several_keys(at: Asked) -> None:
    one, two, absent = (at.tagged("t", number) for number in (1, 2, 3))
    same(at.line("MSET", one, "1", two, "2"), "OK")
    same(at.words("MGET", one, two, absent), ["1", "2", ""])
    same(at.line("EXISTS", one, two, absent), "2")
    at.once(at.line("DEL", one, two), "2", "0")
    at.refused("CROSSSLOT", "MSET", "one", "1", "another", "2")


@check
def scan(at: Asked) -> None:
    expected = sorted(at.key(f"scan-{number}") for number in range(200))
    same(at.script(*(f"SET {key} 1" for key in expected)), ["OK"] * 200)
    nodes = sorted({address for _, address in leaders()})
    options = ("--scan", "--pattern", at.key("scan-*"))
    found = [key for node in nodes for key in cli(*options, node=node, options=()).decode().splitlines()]
    same(sorted(found), expected)


@check
def pipelines(at: Asked) -> None:
    """`--pipe` sends protocol bytes to one node: keys of one tag, at the node that leads it."""
    keys = [at.tagged("pipe", number) for number in range(200)]
    given = "".join(f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n$1\r\n1\r\n" for key in keys).encode()
    said = cli("--pipe", node=leader(keys[0]), options=(), given=given).decode()
    if "errors: 0, replies: 200" not in said and is_later(Refused(said)):
        raise Refused(said)
    same("errors: 0, replies: 200" in said, True)
    same(at.line("EXISTS", *keys), "200")


def leader(key: str) -> str:
    """The leader of a key's slot: the node that another node names, or the one that does not name another."""
    for node in NODES:
        try:
            cli("GET", key, node=node, options=())
        except Refused as error:
            told = re.search(r"MOVED \d+ (\S+)", str(error))
            if told:
                return told[1]
    raise Later("no node names the leader of the slot")


def leaders() -> list[tuple[str, str]]:
    """Who leads which slots, as the first node says that answers: each range with an address."""
    for node in NODES:
        try:
            said = cli("CLUSTER", "NODES", node=node, options=()).decode()
        except Refused:
            continue
        told = [each.split() for each in said.splitlines()]
        return sorted((range_, each[1].split("@")[0]) for each in told for range_ in each[8:])
    raise Later("no node says who leads what")


@check
def moved(at: Asked) -> None:
    key = at.key("moved")
    slot = at.line("CLUSTER", "KEYSLOT", key)
    leads = leader(key)
    for node in sorted({address for _, address in leaders()}):
        if node != leads:
            said = refused("MOVED", "GET", key, node=node, options=())
            same(re.search(r"MOVED (\d+) (\S+)", said).groups(), (slot, leads))
        same((line("SET", key, node, node=node), line("GET", key, node=node)), ("OK", node))


@check
def wrong_type(at: Asked) -> None:
    at.line("HSET", at.key("w"), "x", "1")
    at.refused("WRONGTYPE", "INCR", at.key("w"))
    at.line("SET", at.key("no-number"), "x")
    at.refused("not an integer", "INCR", at.key("no-number"))


@check
def syntax_errors(at: Asked) -> None:
    at.refused("syntax error", "SET", at.key("s"), "1", "NOSUCH")
    at.refused("wrong number of arguments", "GET", at.key("s"), "s2")
    at.refused("unknown command", "NOSUCH", at.key("s"))


@check
def large_values(at: Asked) -> None:
    key, large = at.key("large"), bytes(range(256)) * (16 << 10)
    # The value is the last argument, read from standard input.
    same(at.cli("SET", key, options=("-c", "-x"), given=large), b"OK\n")
    same(at.cli("GET", key) == large + b"\n", True)
    at.once(at.line("DEL", key), "1", "0")


@check
def empty_and_binary(at: Asked) -> None:
    empty = at.key("empty")
    same((at.line("SET", empty, ""), at.line("GET", empty), at.line("EXISTS", empty)), ("OK", "", "1"))
    key, value = f'"{at.key("")}' + r'\x00\xff\r\n"', r'"\r\n\x00\xff$-1\r\n"'
    same(at.script(f"SET {key} {value}", f"GET {key}"), ["OK", value])


@check
def wrong_token(at: Asked) -> None:
    host, port = at.node.split(":")
    environment = {**os.environ, "REDISCLI_AUTH": "not the token"}
    ran = subprocess.run(["redis-cli", "-h", host, "-p", port, "PING"], capture_output=True, env=environment)
    said = (ran.stdout + ran.stderr).decode()
    if "WRONGPASS" not in said and is_later(Refused(said)):
        raise Refused(said)
    same(("WRONGPASS" in said, "PONG" in said), (True, False))


@check
def both_protocols(at: Asked) -> None:
    key = at.key("both")
    at.line("HSET", key, "x", "1")
    for protocol in ("-2", "-3"):
        # As pairs in the newer protocol.
        same(at.line("HGETALL", key, options=("-c", protocol)).split(), ["x", "1"])


def asked(function: Check) -> Callable[[Turn], None]:
    return lambda turn: function(Asked(turn.number, turn.may_send_twice))


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

    def run(self, under_way: UnderWay) -> dict[str, object]:
        writers = [threading.Thread(target=self.write, args=(writer,), daemon=True) for writer in range(WRITERS)]
        for writer in writers:
            writer.start()
        self.under_way.wait(RETRY_SECONDS_MAX)
        tell({"under_way": True})
        under_way.start()
        sys.stdin.read()
        self.is_over.set()
        for writer in writers:
            writer.join()
        if self.failed:
            raise SystemExit("; ".join(self.failed))
        checks = under_way.ended()
        return {
            **checks,
            "acknowledged": sum(self.writes),
            "lost": sum(self.lost(writer) for writer in range(WRITERS)),
            "stale": sum(self.stale),
            "longest_gap_ms": round(max(self.gaps) * 1000),
            "met": dict(self.met + under_way.met),
        }

    def lost(self, writer: int) -> int:
        versions = [(f"load-{writer}-{at}", version) for at, version in enumerate(self.acknowledged[writer])]
        return sum(self.again(writer, "GET", key) != str(version) for key, version in versions if version)


def tell(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def main() -> None:
    for name, function in CHECKS.items():
        try:
            function(Asked())
        except Exception as error:
            raise SystemExit(f"{name}: {type(error).__name__}: {error}") from error
    version = cli("--version", node=NODES[0], options=()).decode().split()[1]
    again = {name: asked(function) for name, function in CHECKS.items()}
    told = Load().run(UnderWay(again, is_later, leaders))
    tell({"client": "redis-cli -c", "version": version, "checks": list(CHECKS), **told})


if __name__ == "__main__":
    main()
