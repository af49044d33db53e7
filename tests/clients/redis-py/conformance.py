"""redis-py at a ring: the checks that every client makes, then writes while the nodes change.

Called with the nodes, HOST:PORT,HOST:PORT,...; the token is in REDISCLI_AUTH. tests/clients/README.md has the protocol.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import redis
from redis.cluster import ClusterNode, RedisCluster

NODES = [ClusterNode(host, int(port)) for host, port in (node.split(":") for node in sys.argv[1].split(","))]
TOKEN = os.environ["REDISCLI_AUTH"]
WRITERS = 4
KEYS = 64
UNDER_WAY = 50
RETRY_SECONDS = 0.02
RETRY_SECONDS_MAX = 30

Check = Callable[[RedisCluster], None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


def connect(**options: object) -> RedisCluster:
    return RedisCluster(startup_nodes=NODES, **{"password": TOKEN, **options})


def same(actual: object, expected: object) -> None:
    if actual != expected:
        raise AssertionError(f"{str(actual)[:200]} instead of {str(expected)[:200]}")


def refused(call: Callable[[], object], kind: type[Exception], text: str) -> None:
    try:
        answer = call()
    except kind as error:
        if text not in str(error):
            raise AssertionError(f"{error!r} does not say {text}") from error
    else:
        raise AssertionError(f"{answer!r} instead of an error")


@check
def set_and_get(client: RedisCluster) -> None:
    same(client.get("absent"), None)
    same(client.set("a", "1"), True)
    same(client.set("a", "2"), True)
    same(client.get("a"), b"2")


@check
def set_options(client: RedisCluster) -> None:
    same(client.set("o", "1", nx=True), True)
    same(client.set("o", "2", nx=True), None)
    same(client.set("o-absent", "2", xx=True), None)
    same(client.set("o", "3", xx=True), True)
    same(client.getdel("o"), b"3")
    same(client.get("o"), None)


@check
def exists_and_del(client: RedisCluster) -> None:
    client.set("e", "1")
    same(client.exists("e"), 1)
    same(client.delete("e"), 1)
    same(client.exists("e"), 0)
    same(client.delete("e"), 0)


@check
def numbers(client: RedisCluster) -> None:
    same((client.incr("n"), client.incrby("n", 5), client.decrby("n", 2)), (1, 6, 4))
    same((client.append("n", "2"), client.strlen("n"), client.get("n")), (2, 2, b"42"))


@check
def expiry(client: RedisCluster) -> None:
    client.set("x", "1", ex=100)
    same(90 < client.ttl("x") <= 100, True)
    same(client.persist("x"), True)
    same(client.ttl("x"), -1)
    same(client.expire("x", 200), True)
    same(190 < client.ttl("x") <= 200, True)
    same(client.pexpire("x", 50), True)
    until = time.monotonic() + 10
    while client.get("x") is not None:
        same(time.monotonic() < until, True)
    same(client.ttl("x"), -2)


@check
def hashes(client: RedisCluster) -> None:
    same(client.hset("h", mapping={"x": "1", "y": "2"}), 2)
    same(client.hset("h", "x", "3"), 0)
    same(client.hget("h", "x"), b"3")
    same(client.hget("h", "z"), None)
    same(client.hgetall("h"), {b"x": b"3", b"y": b"2"})
    same(client.hmget("h", ["y", "z"]), [b"2", None])
    same((client.hexists("h", "y"), client.hlen("h"), client.hincrby("h", "x", 4)), (True, 2, 7))
    same((client.hdel("h", "x"), client.hkeys("h")), (1, [b"y"]))
    same(client.type("h"), b"hash")


@check
def several_keys(client: RedisCluster) -> None:
    same(client.mset({"{t}1": "1", "{t}2": "2"}), True)
    same(client.mget(["{t}1", "{t}2", "{t}3"]), [b"1", b"2", None])
    same(client.exists("{t}1", "{t}2", "{t}3"), 2)
    same(client.delete("{t}1", "{t}2"), 2)


@check
def scan(client: RedisCluster) -> None:
    for number in range(200):
        client.set(f"scan-{number}", number)
    same(sorted(client.scan_iter(match="scan-*")), sorted(f"scan-{number}".encode() for number in range(200)))


@check
def pipelines(client: RedisCluster) -> None:
    with client.pipeline() as pipeline:
        for number in range(200):
            pipeline.set(f"pipe-{number}", number)
        same(pipeline.execute(), [True] * 200)
        for number in range(200):
            pipeline.get(f"pipe-{number}")
        same(pipeline.execute(), [str(number).encode() for number in range(200)])


@check
def moved(client: RedisCluster) -> None:
    slot = client.keyslot("moved")
    leader = client.nodes_manager.slots_cache[slot][0]
    other = next(node for node in client.get_primaries() if node != leader)
    client.nodes_manager.slots_cache[slot] = [other]
    same(client.set("moved", "1"), True)
    same(client.get("moved"), b"1")
    same(client.nodes_manager.slots_cache[slot][0].name, leader.name)
    refused(lambda: client.get_redis_connection(other).get("moved"), redis.exceptions.MovedError, leader.name)


@check
def wrong_type(client: RedisCluster) -> None:
    client.hset("w", "x", "1")
    refused(lambda: client.incr("w"), redis.ResponseError, "WRONGTYPE")
    client.set("no-number", "x")
    refused(lambda: client.incr("no-number"), redis.ResponseError, "not an integer")


@check
def syntax_errors(client: RedisCluster) -> None:
    # This client is not required to find the node by the key of a command that it does not know.
    refused(lambda: client.execute_command("SET", "s", "1", "NOSUCH"), redis.ResponseError, "syntax error")
    refused(lambda: client.execute_command("GET", "s", "s2"), redis.ResponseError, "wrong number of arguments")
    node = client.get_redis_connection(client.get_primaries()[0])
    refused(lambda: node.execute_command("NOSUCH", "s"), redis.ResponseError, "unknown command")


@check
def large_values(client: RedisCluster) -> None:
    large = bytes(range(256)) * (16 << 10)
    same(client.set("large", large), True)
    same(client.get("large") == large, True)


@check
def empty_and_binary(client: RedisCluster) -> None:
    client.set("empty", b"")
    same((client.get("empty"), client.exists("empty")), (b"", 1))
    client.set(b"\x00\xff\r\n", b"\r\n\x00\xff$-1\r\n")
    same(client.get(b"\x00\xff\r\n"), b"\r\n\x00\xff$-1\r\n")


@check
def wrong_token(_: RedisCluster) -> None:
    node = redis.Redis(NODES[0].host, NODES[0].port, password="not the token")
    refused(node.ping, redis.AuthenticationError, "")


@check
def both_protocols(client: RedisCluster) -> None:
    client.hset("both", "x", "1")
    for protocol in (2, 3):
        other = connect(protocol=protocol)
        same(other.hgetall("both"), {b"x": b"1"})
        same(other.get("absent"), None)
        other.close()


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
        keys = [(f"load-{writer}-{at}", version) for at, version in enumerate(self.acknowledged[writer])]
        read = [(self.again(lambda key=key: self.client.get(key)), version) for key, version in keys if version]
        return sum(int(found or 0) != version for found, version in read)


def tell(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def main() -> None:
    client = connect()
    for name, function in CHECKS.items():
        try:
            function(client)
        except Exception as error:
            raise SystemExit(f"{name}: {type(error).__name__}: {error}") from error
    tell({"client": "redis-py", "version": redis.__version__, "checks": list(CHECKS), **Load(client).run()})


if __name__ == "__main__":
    main()
