"""The conformance suite on one node and on three, histories while a node is killed, and the planted store."""

import os
import re
import subprocess
from pathlib import Path

from ..bench import Bench, told
from .cluster import Cluster

_ROOT = Path(__file__).parents[3]
_PACKAGE = "atoll-cassandra"
_OF_ANOTHER_BUILD = ("CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_")
_RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed", re.MULTILINE)
_OPERATIONS = re.compile(r"(\d[\d,_]*) definite operations")


def run(bench: Bench, folder: Path, port: int) -> None:
    """On clusters that are made for it and thrown away."""
    heap = "768M"
    for nodes in (1, 3):
        cluster = Cluster(folder / f"suite-{nodes}", nodes, heap, port)
        cluster.down(keep=False)
        cluster.up()
        try:
            _one(bench, cluster, f"suite {nodes}", "cassandra")
            if nodes == 3:
                said = _one(bench, cluster, "kill", "cassandra_kill")
                found = [int(re.sub(r"\D", "", each)) for each in _OPERATIONS.findall(said)]
                bench.measured.record("kill operations", max(found, default=None))
            else:
                _one(bench, cluster, "planted", "cassandra_planted")
        finally:
            cluster.down(keep=False)


def _one(bench: Bench, cluster: Cluster, key: str, test: str) -> str:
    """One test program; how many of its tests fail is the figure."""
    if not (_ROOT / f"crates/cassandra/tests/{test}.rs").exists():
        bench.leave_out(key, f"there is no crates/cassandra/tests/{test}.rs")
        return ""
    words = [os.environ.get("CARGO", "cargo"), "test", "--package", _PACKAGE, "--test", test, "--", "--show-output"]
    ran = subprocess.run(
        words,
        cwd=_ROOT,
        # What Cargo says to the program that started this one would make it build things again.
        env={name: value for name, value in cluster.environment().items() if not name.startswith(_OF_ANOTHER_BUILD)},
        capture_output=True,
        text=True,
        check=False,
    )
    said = ran.stdout + ran.stderr
    (cluster.folder.parent / f"{key.replace(' ', '-')}.log").write_text(said)
    passed, failed = (sum(int(each[at]) for each in _RESULT.findall(said)) for at in (0, 1))
    told(f"  {key}: {passed} passed, {failed} failed")
    if "SKIPPED [cassandra" in said or not passed + failed:
        bench.leave_out(key, f"it did not run; see {key.replace(' ', '-')}.log")
    else:
        bench.measured.record(key, max(failed, int(ran.returncode != 0)))
    return said
