"""A ring of real nodes: three at first, one of which is killed, and a fourth that joins.

Invariant: no node outlives this process: each reads a pipe from this process and ends when the pipe does.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

# Clients use 8_000 and above, other nodes 10,000 above that, the configuration another 10,000: all below the ports that
# systems assign.
PORT_FROM = 8_000
PORT_STEP = 8
PORT_BLOCKS = 500
NODES = 3
JOINING = NODES + 1

# A node that is gone keeps its place for half a minute; only then does another one get copies of its data.
HAPPENS_SECONDS_MAX = 90
LOOK_EVERY_SECONDS = 0.05


class RingError(Exception):
    """The ring did not do what the trial requires."""


class Ring:
    """The nodes, numbered from 1, and the token that clients present."""

    def __init__(self, atoll: Path, folder: Path) -> None:
        self.atoll, self.folder = atoll, folder
        self.port = free_block()
        self.token_file = folder / "token"
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True)
        for number in range(1, NODES + 1):
            self.start(number, NODES)
        self.token = self.token_file.read_text().strip()
        self.wait_until(lambda: self.serves(1), "serve every slot")

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.port + number - 1}"

    def addresses(self) -> list[str]:
        """The addresses that a client is given; it finds the fourth node by itself."""
        return [self.address(number) for number in range(1, NODES + 1)]

    def start(self, number: int, of: int) -> None:
        """Starts a node that knows the first `of` nodes."""
        listed = self.folder / f"nodes-{of}"
        listed.write_text("".join(f"{self.address(each)}\n" for each in range(1, of + 1)))
        command = [str(self.atoll), "--json", "ring", "serve", "--until-input-ends"]
        command += ["--listen", self.address(number), "--nodes", f"@{listed}", "--copies", str(NODES)]
        command += ["--token-file", str(self.token_file), "--store", str(self.folder / f"node-{number}")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
        with (self.folder / f"node-{number}.log").open("wb") as log:
            node = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        assert node.stdout
        said = node.stdout.readline()
        if not said or json.loads(said)["pid"] != node.pid:
            raise RingError(f"node {number} did not start: see {log.name}")
        self.running[number] = node

    def kill(self, number: int) -> None:
        """Kills a node at once, as a machine failure would, and waits until others lead its slots."""
        node = self.running.pop(number)
        node.send_signal(signal.SIGKILL)
        node.wait()
        self.wait_until(lambda: self.slots_of(number) == 0, "take over from the killed node")

    def join(self) -> None:
        """Starts the fourth node, and waits until it leads some slots; more follow later."""
        self.start(JOINING, JOINING)
        self.wait_until(lambda: bool(self.slots_of(JOINING)), "let the fourth node lead slots")

    def slots_of(self, number: int) -> int | None:
        """How many slots a node leads; none if no node answers, or no node knows it."""
        return self.slots_led().get(self.address(number))

    def serves(self, number: int) -> bool:
        return "cluster_state:ok" in self.ask(number, "CLUSTER INFO")

    def slots_led(self) -> dict[str, int]:
        """How many slots each node leads, according to any living node."""
        led = {}
        for line in self.ask(next(iter(self.running)), "CLUSTER NODES").splitlines():
            words = line.split()
            if len(words) < 8 or "@" not in words[1]:
                continue
            ranges = [word.split("-") for word in words[8:] if not word.startswith("[")]
            led[words[1].split("@")[0]] = sum(int(each[-1]) - int(each[0]) + 1 for each in ranges)
        return led

    def calls(self, number: int, command: str) -> int:
        """How often a node received this command."""
        for line in self.ask(number, "INFO commandstats").splitlines():
            if line.startswith(f"cmdstat_{command}:calls="):
                return int(line.split("=")[1].split(",")[0])
        return 0

    def ask(self, number: int, command: str) -> str:
        """A node's answer, in the bytes of the protocol; empty if the node cannot be reached."""
        host, port = self.address(number).split(":")
        token = self.token_file.read_text().strip()
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5) as connection:
            connection.settimeout(5)
            connection.sendall(f"AUTH {token}\r\n{command}\r\nQUIT\r\n".encode())
            with connection.makefile("rb") as answer:
                return answer.read().decode(errors="replace")
        return ""

    def wait_until(self, holds, what: str) -> None:  # noqa: ANN001
        until = time.monotonic() + HAPPENS_SECONDS_MAX
        while not holds():
            if time.monotonic() > until:
                raise RingError(f"the ring did not {what} within {HAPPENS_SECONDS_MAX} s: {self.slots_led()}")
            time.sleep(LOOK_EVERY_SECONDS)

    def end(self) -> None:
        for node in self.running.values():
            assert node.stdin
            node.stdin.close()
        for node in self.running.values():
            try:
                node.wait(20)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        self.running.clear()

    def __enter__(self) -> "Ring":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def free_block() -> int:
    """The first of a block of free ports, for which those 10,000 and 20,000 above are free as well."""
    for attempt in range(PORT_BLOCKS):
        port = PORT_FROM + (os.getpid() + attempt) % PORT_BLOCKS * PORT_STEP
        wanted = [port + number + above for number in range(JOINING) for above in (0, 10_000, 20_000)]
        if all(is_free(each) for each in wanted):
            return port
    raise RingError("no free ports")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
