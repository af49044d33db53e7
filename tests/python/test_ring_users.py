"""redis-py, unmodified, as a user in a node's list: what the user may do, and how the rest is refused."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

HASH = hashlib.sha256(b"secret").hexdigest()


class Node:
    """A node with a token and a list of users."""

    def __init__(self, folder: Path) -> None:
        self.users = folder / "users"
        self.users.touch(0o600)
        self.write(f"user job7 on #{HASH} ~run:7:* %R~shared:* +@read +@write -@dangerous")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
        command = [os.environ["PROGRAM_UNDER_TEST"], "--json", "ring", "serve", "--until-input-ends", "--memory"]
        command += ["--listen", "127.0.0.1:0", "--token-file", str(folder / "token"), "--acl-file", str(self.users)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self.process.stdout
        host, port = json.loads(self.process.stdout.readline())["listening"].split(":")
        self.address = (host, int(port))
        self.token = (folder / "token").read_text().strip()

    def write(self, users: str) -> None:
        """Write another list of users, which the node has not read yet."""
        self.users.write_text(users + "\n")

    def client(self, user: str, protocol: int = 2) -> redis.Redis:
        """Make a client of a user with the password `secret`."""
        return redis.Redis(*self.address, username=user, password="secret", protocol=protocol)

    def operator(self) -> redis.Redis:
        """Make a client that has the token."""
        return redis.Redis(*self.address, password=self.token)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node that serves."""
    node = Node(tmp_path)
    yield node
    assert node.process.stdin
    node.process.stdin.close()
    assert node.process.wait(20) == 0


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_user_does_what_it_is_granted_and_nothing_else(node: Node, protocol: int) -> None:
    job = node.client("job7", protocol)
    assert job.acl_whoami() in ("job7", b"job7")
    assert job.set("run:7:step", "1")
    assert job.get("shared:input") is None
    for refused in (lambda: job.set("shared:input", "x"), lambda: job.get("run:8:step")):
        with pytest.raises(redis.exceptions.NoPermissionError, match="access a key"):
            refused()
    for refused in (job.flushall, job.acl_list, job.client_list):
        with pytest.raises(redis.exceptions.NoPermissionError, match="User job7 has no permissions to run"):
            refused()


def test_a_client_of_a_cluster_finds_its_way_as_a_user(node: Node) -> None:
    cluster = RedisCluster(startup_nodes=[ClusterNode(*node.address)], username="job7", password="secret")
    assert cluster.set("run:7:step", "2")
    assert cluster.get("run:7:step") == b"2"


def test_whoever_has_another_password_is_not_let_in(node: Node) -> None:
    for user in ("nobody", "default"):
        with pytest.raises(redis.AuthenticationError):
            node.client(user).ping()


def test_operators_are_told_of_users_and_have_the_list_read_again(node: Node) -> None:
    operator = node.operator()
    assert operator.acl_users() == ["job7", "default"]
    user = operator.acl_getuser("job7")
    assert user["enabled"]
    assert (user["passwords"], user["keys"]) == ([HASH], ["~run:7:*", "%R~shared:*"])
    assert user["categories"] == ["+@read", "+@write", "-@dangerous"]
    assert operator.acl_getuser("nobody") is None
    job = node.client("job7")
    assert job.ping()
    node.write("user job7 off\nuser job8 on nopass")
    with pytest.raises(redis.ResponseError, match="line 2"):
        operator.acl_load()
    assert job.set("run:7:step", "3"), "a list with a wrong line changes nothing"
    node.write("user job7 off")
    assert operator.acl_load()
    with pytest.raises(redis.AuthenticationError):
        job.get("run:7:step")
