"""Clusters of the bench's own, through the developer's command."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

CONTROL = "ATOLL_CASSANDRA_CONTROL"
"""The program that starts and ends nodes."""


@dataclass
class Cluster:
    """Some nodes on this machine."""

    folder: Path
    nodes: int
    heap: str
    port: int
    options: tuple[str, ...] = ()

    def up(self) -> None:
        """Starts what does not run; what it holds is what it held."""
        words = ["--nodes", self.nodes, "--heap", self.heap, "--port", self.port, *self.options]
        self.control("up", *words)

    def down(self, *, keep: bool) -> None:
        """Ends it."""
        self.control("down", *(["--keep"] if keep else []))

    def control(self, *words: object) -> None:
        """Tells the developer's command."""
        program = os.environ[CONTROL]
        subprocess.run([program, "cassandra", *map(str, words)], check=True, env=self.environment(), stdout=2)

    def environment(self) -> dict[str, str]:
        """What tests of this cluster find in their environment."""
        return {
            **os.environ,
            "ATOLL_CASSANDRA": self.contacts,
            "ATOLL_CASSANDRA_NODES": str(self.nodes),
            "ATOLL_CASSANDRA_FOLDER": str(self.folder),
        }

    @property
    def contacts(self) -> str:
        """Every node, with commas."""
        return ",".join(f"127.0.0.{number}:{self.port}" for number in range(1, self.nodes + 1))

    def url(self, keyspace: str, options: str = "", user: str = "") -> str:
        """A store in this cluster."""
        return f"cassandra://{user and user + '@'}{self.contacts}/{keyspace}{options and '?' + options}"

    def pause(self, node: int, *, paused: bool) -> None:
        """Stops a node's process without ending it, or lets it go on."""
        process = int((self.folder / f"node-{node}/pid").read_text())
        os.kill(process, signal.SIGSTOP if paused else signal.SIGCONT)
