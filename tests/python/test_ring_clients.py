"""redis-py, unmodified, with a ring of three real nodes, one of which is killed while clients write."""

import threading
import time

import pytest
import redis
from conftest import Ring
from redis.cluster import ClusterNode, RedisCluster


def cluster_of(ring: Ring, **options: object) -> RedisCluster:
    """Make a client that asks the node that has the key."""
    return RedisCluster(startup_nodes=[ClusterNode(*node) for node in ring.nodes], password=ring.token, **options)


def plain_of(ring: Ring, **options: object) -> redis.Redis:
    """A client of the first node."""
    return redis.Redis(*ring.nodes[0], **{"password": ring.token, **options})


def test_what_the_guide_promises_is_understood_by_redis_py(ring: Ring) -> None:
    cluster = cluster_of(ring)
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
    cluster_of(ring)
    node = plain_of(ring, protocol=protocol)
    assert node.ping()
    assert node.info("server")["redis_mode"] == "cluster"
    with pytest.raises(redis.ResponseError, match="hash to the same slot"):
        node.mset({"a": 1, "b": 2})
    with pytest.raises(redis.AuthenticationError):
        plain_of(ring, protocol=protocol, password="not the token").ping()


def test_one_job_waits_for_the_string_that_another_one_sets(ring: Ring) -> None:
    # Otherwise redis-py ends the wait after five seconds, and begins another one.
    waits = cluster_of(ring, socket_timeout=90)
    wait = ("AT.WAIT", 60_000, "run:7", "AS", "STRING", "EQ", "done")
    told: list[object] = []
    waiter = threading.Thread(target=lambda: told.extend(waits.execute_command(*wait)))
    waiter.start()
    nodes = [redis.Redis(*node, password=ring.token) for node in ring.nodes]
    while not any(node.info("clients")["blocked_clients"] for node in nodes):
        assert waiter.is_alive(), told
    sets = cluster_of(ring)
    assert sets.set("run:7", "running")
    assert waiter.is_alive(), told
    assert sets.set("run:7", "done")
    waiter.join(60)
    assert told == [1, b"done"]


def test_nothing_acknowledged_is_lost_when_a_node_is_killed_under_load(ring: Ring) -> None:
    acknowledged = [0] * 4
    is_over = threading.Event()
    is_well_under_way = threading.Barrier(5)

    def write(client: int) -> None:
        cluster = cluster_of(ring, socket_timeout=3)
        number = 0
        while not is_over.is_set():
            number += 1
            while True:
                try:
                    cluster.set(f"counter-{client}", number)
                    break
                except (redis.RedisError, redis.exceptions.RedisClusterException):
                    # An unacknowledged write is repeated; there is no other way to know.
                    continue
            acknowledged[client] = number
            if number == 50:
                is_well_under_way.wait()

    clients = [threading.Thread(target=write, args=(client,)) for client in range(4)]
    for client in clients:
        client.start()
    is_well_under_way.wait()
    before = list(acknowledged)
    ring.kill(1)
    until = time.monotonic() + 30
    while any(now < then + 50 for now, then in zip(acknowledged, before, strict=True)):
        assert time.monotonic() < until, f"writes did not go on: {before} {acknowledged}"
        time.sleep(0.05)
    is_over.set()
    for client in clients:
        client.join()
    cluster = cluster_of(ring)
    assert [int(cluster.get(f"counter-{client}")) for client in range(4)] == acknowledged
