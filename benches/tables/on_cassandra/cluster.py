"""The bench's own clusters, controlled through the developer's command."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

CONTROL = "ATOLL_CASSANDRA_CONTROL"
"""The program that starts and stops nodes."""


@dataclass
class Cluster:
    """Some nodes on this machine."""

    folder: Path
    nodes: int
    heap: str
    port: int
    options: tuple[str, ...] = ()

    def up(self) -> None:
        """Starts the nodes that do not run; they keep their data."""
        words = ["--nodes", self.nodes, "--heap", self.heap, "--port", self.port, *self.options]
        self.control("up", *words)

    def down(self, *, keep: bool) -> None:
        """Stops the cluster."""
        self.control("down", *(["--keep"] if keep else []))

    def control(self, *words: object) -> None:
        """Runs the developer's command with these words."""
        program = os.environ[CONTROL]
        subprocess.run([program, "cassandra", *map(str, words)], check=True, env=self.environment(), stdout=2)

    def environment(self) -> dict[str, str]:
        """The environment that the cluster's tests get."""
        return {
            **os.environ,
            "ATOLL_CASSANDRA": self.contacts,
            "ATOLL_CASSANDRA_NODES": str(self.nodes),
            "ATOLL_CASSANDRA_FOLDER": str(self.folder),
        }

    @property
    def contacts(self) -> str:
        """The addresses of all nodes, separated by commas."""
        return ",".join(f"127.0.0.{number}:{self.port}" for number in range(1, self.nodes + 1))

    def url(self, keyspace: str, options: str = "", user: str = "") -> str:
        """The URL of a store in this cluster."""
        return f"cassandra://{user and user + '@'}{self.contacts}/{keyspace}{options and '?' + options}"

    def processes(self) -> list[int]:
        """The process ids of the nodes."""
        return [self._process(node) for node in range(1, self.nodes + 1)]

    def _process(self, node: int) -> int:
        return int((self.folder / f"node-{node}/pid").read_text())

    def pause(self, node: int, *, paused: bool) -> None:
        """Stops a node's process without ending it, or lets it continue."""
        os.kill(self._process(node), signal.SIGSTOP if paused else signal.SIGCONT)
