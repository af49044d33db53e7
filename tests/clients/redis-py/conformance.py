"""redis-py at a ring: the checks that every client makes, then writes and the checks again while the nodes change.

Called with the nodes, HOST:PORT,HOST:PORT,...; the token is in REDISCLI_AUTH. tests/clients/README.md has the protocol.
"""

import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import redis
from redis.cluster import ClusterNode, RedisCluster

# Beside this folder; run.py names it in PYTHONPATH.
from under_way import LATER, Later, Turn, UnderWay, same

NODES = [ClusterNode(host, int(port)) for host, port in (node.split(":") for node in sys.argv[1].split(","))]
TOKEN = os.environ["REDISCLI_AUTH"]
WRITERS = 4
KEYS = 64
UNDER_WAY = 50
RETRY_SECONDS = 0.02
RETRY_SECONDS_MAX = 30

Check = Callable[[RedisCluster, Turn], None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


def connect(**options: object) -> RedisCluster:
    return RedisCluster(startup_nodes=NODES, **{"password": TOKEN, **options})


def is_later(error: Exception) -> bool:
    """Whether a failed command may succeed later: its node is gone or about to be, or its slot moves."""
    if isinstance(error, (redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError)):
        return False
    known = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException, OSError, Later)
    return isinstance(error, known) or bool(isinstance(error, redis.RedisError) and of_moving(error))


def of_moving(error: redis.RedisError) -> bool:
    """By its type, because this client takes the first word off some errors, or by that word."""
    types = (redis.exceptions.ClusterError, redis.exceptions.AskError, redis.exceptions.TryAgainError)
    return isinstance(error, types) or bool(re.search(LATER, str(error)))


def refused(call: Callable[[], object], kind: type[Exception], text: str) -> None:
    try:
        answer = call()
    except kind as error:
        if text in str(error):
            return
        if is_later(error):
            raise
        raise AssertionError(f"{error!r} does not say {text}") from error
    raise AssertionError(f"{answer!r} instead of an error")


def leaders(client: RedisCluster) -> object:
    """Who leads which slots, as a node says."""
    return sorted((slots, shard["primary"]) for slots, shard in client.cluster_slots().items())


@check
def set_and_get(client: RedisCluster, turn: Turn) -> None:
    same(client.get(turn.key("absent")), None)
    same(client.set(turn.key("a"), "1"), True)
    same(client.set(turn.key("a"), "2"), True)
    same(client.get(turn.key("a")), b"2")


@check
def set_options(client: RedisCluster, turn: Turn) -> None:
    key = turn.key("o")
    turn.once(client.set(key, "1", nx=True), True, None)
    same(client.set(key, "2", nx=True), None)
    same(client.set(turn.key("o-absent"), "2", xx=True), None)
    same(client.set(key, "3", xx=True), True)
    turn.once(client.getdel(key), b"3", None)
    same(client.get(key), None)


@check
def exists_and_del(client: RedisCluster, turn: Turn) -> None:
    key = turn.key("e")
    client.set(key, "1")
    same(client.exists(key), 1)
    turn.once(client.delete(key), 1, 0)
    same(client.exists(key), 0)
    same(client.delete(key), 0)


@check
def numbers(client: RedisCluster, turn: Turn) -> None:
    key = turn.key("n")
    turn.once(client.incr(key), 1, 2)
    turn.once(client.incrby(key, 5), 6, 11)
    turn.once(client.decrby(key, 2), 4, 2)
    turn.once(client.append(key, "2"), 2, 3)
    same((client.strlen(key), client.get(key)), (2, b"42"))


@check
def expiry(client: RedisCluster, turn: Turn) -> None:
    key = turn.key("x")
    began = time.monotonic()
    client.set(key, "1", ex=100)
    lives(client.ttl(key), 100, began)
    turn.once(client.persist(key), True, False)
    same(client.ttl(key), -1)
    began = time.monotonic()
    same(client.expire(key, 200), True)
    lives(client.ttl(key), 200, began)
    turn.once(client.pexpire(key, 50), True, False)
    until = time.monotonic() + 10
    while client.get(key) is not None:
        same(time.monotonic() < until, True)
    same(client.ttl(key), -2)


def lives(left: int, seconds: int, began: float) -> None:
    """Checks the time that is left; a command may have waited for another node."""
    same(seconds - 10 - (time.monotonic() - began) < left <= seconds, True)


@check
def hashes(client: RedisCluster, turn: Turn) -> None:
    key = turn.key("h")
    turn.once(client.hset(key, mapping={"x": "1", "y": "2"}), 2, 0)
    same(client.hset(key, "x", "3"), 0)
    same(client.hget(key, "x"), b"3")
    same(client.hget(key, "z"), None)
    same(client.hgetall(key), {b"x": b"3", b"y": b"2"})
    same(client.hmget(key, ["y", "z"]), [b"2", None])
    same((client.hexists(key, "y"), client.hlen(key)), (True, 2))
    turn.once(client.hincrby(key, "x", 4), 7, 11)
    turn.once(client.hdel(key, "x"), 1, 0)
    same(client.hkeys(key), [b"y"])
    same(client.type(key), b"hash")


@check
def several_keys(client: RedisCluster, turn: Turn) -> None:
    one, two, absent = (turn.tagged("t", number) for number in (1, 2, 3))
    same(client.mset({one: "1", two: "2"}), True)
    same(client.mget([one, two, absent]), [b"1", b"2", None])
    same(client.exists(one, two, absent), 2)
    turn.once(client.delete(one, two), 2, 0)


@check
def scan(client: RedisCluster, turn: Turn) -> None:
    keys = [turn.key(f"scan-{number}") for number in range(200)]
    for number, key in enumerate(keys):
        client.set(key, number)
    same(sorted(client.scan_iter(match=turn.key("scan-*"))), sorted(key.encode() for key in keys))


@check
def pipelines(client: RedisCluster, turn: Turn) -> None:
    with client.pipeline() as pipeline:
        for number in range(200):
            pipeline.set(turn.key(f"pipe-{number}"), number)
        same(pipeline.execute(), [True] * 200)
        for number in range(200):
            pipeline.get(turn.key(f"pipe-{number}"))
        same(pipeline.execute(), [str(number).encode() for number in range(200)])


@check
def moved(client: RedisCluster, turn: Turn) -> None:
    key = turn.key("moved")
    slot = client.keyslot(key)
    known = client.nodes_manager.slots_cache.get(slot)
    other = next((node for node in client.get_primaries() if known and node != known[0]), None)
    if not known or not other:
        raise Later("the client knows of no leader of the slot, or of no other")
    leader = known[0]
    client.nodes_manager.slots_cache[slot] = [other]
    same(client.set(key, "1"), True)
    same(client.get(key), b"1")
    same(client.nodes_manager.slots_cache[slot][0].name, leader.name)
    refused(lambda: client.get_redis_connection(other).get(key), redis.exceptions.MovedError, leader.name)


@check
def wrong_type(client: RedisCluster, turn: Turn) -> None:
    client.hset(turn.key("w"), "x", "1")
    refused(lambda: client.incr(turn.key("w")), redis.ResponseError, "WRONGTYPE")
    client.set(turn.key("no-number"), "x")
    refused(lambda: client.incr(turn.key("no-number")), redis.ResponseError, "not an integer")


@check
def syntax_errors(client: RedisCluster, turn: Turn) -> None:
    key = turn.key("s")
    # This client is not required to find the node by the key of a command that it does not know.
    refused(lambda: client.execute_command("SET", key, "1", "NOSUCH"), redis.ResponseError, "syntax error")
    refused(lambda: client.execute_command("GET", key, "s2"), redis.ResponseError, "wrong number of arguments")
    primaries = client.get_primaries()
    node = client.get_redis_connection(primaries[turn.number % len(primaries)])
    refused(lambda: node.execute_command("NOSUCH", key), redis.ResponseError, "unknown command")


@check
def large_values(client: RedisCluster, turn: Turn) -> None:
    large = bytes(range(256)) * (16 << 10)
    key = turn.key("large")
    same(client.set(key, large), True)
    same(client.get(key) == large, True)
    turn.once(client.delete(key), 1, 0)


@check
def empty_and_binary(client: RedisCluster, turn: Turn) -> None:
    empty, binary = turn.key("empty"), turn.key("").encode() + b"\x00\xff\r\n"
    client.set(empty, b"")
    same((client.get(empty), client.exists(empty)), (b"", 1))
    client.set(binary, b"\r\n\x00\xff$-1\r\n")
    same(client.get(binary), b"\r\n\x00\xff$-1\r\n")


@check
def wrong_token(_: RedisCluster, turn: Turn) -> None:
    at = NODES[turn.number % len(NODES)]
    node = redis.Redis(at.host, at.port, password="not the token")
    refused(node.ping, redis.AuthenticationError, "")


@check
def both_protocols(client: RedisCluster, turn: Turn) -> None:
    key = turn.key("both")
    client.hset(key, "x", "1")
    for protocol in (2, 3):
        with connect(protocol=protocol) as other:
            same(other.hgetall(key), {b"x": b"1"})
            same(other.get(turn.key("absent")), None)


class Load:
    """Writers, each with keys of its own, whose versions only rise."""

    def __init__(self, client: RedisCluster) -> None:
        self.client = client
        self.is_over = threading.Event()
        self.acknowledged = [[0] * KEYS for _ in range(WRITERS)]
        self.writes = [0] * WRITERS
        self.gaps = [0.0] * WRITERS
        self.stale = [0] * WRITERS
        self.met: Counter[str] = Counter()
        self.failed: list[str] = []
        self.under_way = threading.Barrier(WRITERS + 1)

    def again(self, call: Callable[[], object]) -> object:
        until = time.monotonic() + RETRY_SECONDS_MAX
        while True:
            try:
                return call()
            except (redis.RedisError, redis.exceptions.RedisClusterException, OSError) as error:
                self.met[f"{type(error).__name__}: {error}"[:80]] += 1
                if time.monotonic() > until:
                    raise
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
            found = self.again(lambda key=key: self.client.get(key))
            self.stale[writer] += int(found or 0) != self.acknowledged[writer][number % KEYS]
            self.again(lambda key=key, number=number: self.client.set(key, number))
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
        keys = [(f"load-{writer}-{at}", version) for at, version in enumerate(self.acknowledged[writer])]
        read = [(self.again(lambda key=key: self.client.get(key)), version) for key, version in keys if version]
        return sum(int(found or 0) != version for found, version in read)


def tell(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def main() -> None:
    client = connect()
    for name, function in CHECKS.items():
        try:
            function(client, Turn())
        except Exception as error:
            raise SystemExit(f"{name}: {type(error).__name__}: {error}") from error
    other = connect()
    again = {name: partial(function, other) for name, function in CHECKS.items()}
    told = Load(client).run(UnderWay(again, is_later, partial(leaders, other)))
    tell({"client": "redis-py", "version": redis.__version__, "checks": list(CHECKS), **told})


if __name__ == "__main__":
    main()
