"""redis-py, unmodified, at a ring of three real nodes, one of which is killed while clients write."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

# Below the ports that the system hands out, also 20,000 above it, and apart from those of other tests.
FIRST_PORT = 12_500 + os.getpid() % 30 * 4


class Ring:
    """Three nodes and their token."""

    def __init__(self, folder: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
        command = [os.environ["PROGRAM_UNDER_TEST"], "--json", "ring", "up", "--store", str(folder)]
        command += ["--port", str(FIRST_PORT)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert self.process.stdout
        self.nodes = json.loads(self.process.stdout.readline())["nodes"]
        self.token = (folder / "token").read_text().strip()

    def cluster(self, **options: object) -> RedisCluster:
        nodes = [ClusterNode("127.0.0.1", FIRST_PORT + number) for number in range(3)]
        return RedisCluster(startup_nodes=nodes, password=self.token, **options)

    def plain(self, **options: object) -> redis.Redis:
        return redis.Redis("127.0.0.1", FIRST_PORT, **{"password": self.token, **options})


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    ring = Ring(tmp_path / "ring")
    yield ring
    ring.process.terminate()
    assert ring.process.wait(30) == 0


def test_what_the_guide_promises_is_understood_by_redis_py(ring: Ring) -> None:
    cluster = ring.cluster()
    cluster.set(b"\x00key", b"\x00\xff\r\n")
    assert cluster.get(b"\x00key") == b"\x00\xff\r\n"
    assert cluster.mset({"{t}1": "1", "{t}2": "2"})
    assert cluster.mget(["{t}1", "{t}2", "{t}3"]) == [b"1", b"2", None]
    assert (cluster.incr("n"), cluster.incrby("n", 5), cluster.append("a", "abc")) == (1, 6, 3)
    assert cluster.hset("h", mapping={"x": "1", "y": "2"}) == 2
    assert cluster.hgetall("h") == {b"x": b"1", b"y": b"2"}
    cluster.set("gone", "1", ex=100)
    assert 90 < cluster.ttl("gone") <= 100
    cluster.set("big", b"x" * (1 << 20))
    assert len(cluster.get("big")) == 1 << 20
    with cluster.pipeline() as pipeline:
        for number in range(100):
            pipeline.set(f"p{number}", number)
        assert all(pipeline.execute())
    assert {key for key in cluster.scan_iter(match="p*")} == {f"p{number}".encode() for number in range(100)}
    assert cluster.delete("n") == 1
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        cluster.incr("h")


@pytest.mark.parametrize("protocol", [2, 3])
def test_one_node_is_spoken_to_in_both_protocols(ring: Ring, protocol: int) -> None:
    ring.cluster()
    node = ring.plain(protocol=protocol)
    assert node.ping()
    assert node.info("server")["redis_mode"] == "cluster"
    with pytest.raises(redis.ResponseError, match="hash to the same slot"):
        node.mset({"a": 1, "b": 2})
    with pytest.raises(redis.AuthenticationError):
        ring.plain(protocol=protocol, password="not the token").ping()


def test_nothing_acknowledged_is_lost_when_a_node_is_killed_under_load(ring: Ring) -> None:
    acknowledged = [0] * 4
    is_over = threading.Event()
    is_well_under_way = threading.Barrier(5)

    def write(client: int) -> None:
        cluster = ring.cluster(socket_timeout=3)
        number = 0
        while not is_over.is_set():
            number += 1
            while True:
                try:
                    cluster.set(f"counter-{client}", number)
                    break
                except (redis.RedisError, redis.exceptions.RedisClusterException):
                    # What was not acknowledged is written again; there is no other way to know.
                    continue
            acknowledged[client] = number
            if number == 50:
                is_well_under_way.wait()

    clients = [threading.Thread(target=write, args=(client,)) for client in range(4)]
    for client in clients:
        client.start()
    is_well_under_way.wait()
    before = list(acknowledged)
    os.kill(ring.nodes[1]["pid"], signal.SIGKILL)
    until = time.monotonic() + 30
    while any(now < then + 50 for now, then in zip(acknowledged, before, strict=True)):
        assert time.monotonic() < until, f"writes did not go on: {before} {acknowledged}"
        time.sleep(0.05)
    is_over.set()
    for client in clients:
        client.join()
    cluster = ring.cluster()
    assert [int(cluster.get(f"counter-{client}")) for client in range(4)] == acknowledged
