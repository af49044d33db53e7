"""The conformance suite on one node and on three, histories while nodes are killed, and the planted store."""

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
_SEEDS = (7, 21, 33)
_OPERATIONS = re.compile(r"(\d[\d,_]*) definite operations")


def run(bench: Bench, folder: Path, port: int) -> None:
    """Runs them on temporary clusters."""
    heap = "768M"
    for nodes in (1, 3):
        cluster = Cluster(folder / f"suite-{nodes}", nodes, heap, port)
        cluster.down(keep=False)
        cluster.up()
        try:
            _one(bench, cluster, f"suite {nodes}", "cassandra")
            if nodes == 3:
                _killed(bench, cluster)
            else:
                _one(bench, cluster, "planted", "cassandra_planted")
        finally:
            cluster.down(keep=False)


def _killed(bench: Bench, cluster: Cluster) -> None:
    """Kills nodes under load, once for each seed; records the failures, and the fewest operations answered in any of
    the runs.
    """
    failed, fewest = [], []
    for seed in _SEEDS[:1] if bench.is_quick else _SEEDS:
        said, count = ran_test(cluster, f"kill-{seed}", "cassandra_kill", {"KILL_SEED": str(seed)})
        for line in said.splitlines():
            if "definite operations" in line:
                told(f"    {line}")
        fewest += [int(re.sub(r"\D", "", each)) for each in _OPERATIONS.findall(said)]
        failed.append(count)
    if None in failed:
        bench.leave_out("kill", "it did not run; see kill-*.log")
        return
    bench.measured.record("kill", sum(failed))
    bench.measured.record("kill operations", min(fewest, default=None))


def _one(bench: Bench, cluster: Cluster, key: str, test: str) -> None:
    """Runs one test program; the figure is the number of its failed tests."""
    name = key.replace(" ", "-")
    _, failed = ran_test(cluster, name, test)
    if failed is None:
        bench.leave_out(key, f"it did not run; see {name}.log")
    else:
        bench.measured.record(key, failed)


def ran_test(cluster: Cluster, name: str, test: str, settings: dict[str, str] | None = None) -> tuple[str, int | None]:
    """The output of a test program, and how many of its tests failed; none if it did not run."""
    words = [os.environ.get("CARGO", "cargo"), "test", "--package", _PACKAGE, "--test", test, "--", "--show-output"]
    # The variables that Cargo set for the parent program would cause rebuilds.
    kept = {key: value for key, value in cluster.environment().items() if not key.startswith(_OF_ANOTHER_BUILD)}
    ran = subprocess.run(words, cwd=_ROOT, env=kept | (settings or {}), capture_output=True, text=True, check=False)
    said = ran.stdout + ran.stderr
    (cluster.folder.parent / f"{name}.log").write_text(said)
    passed, failed = (sum(int(each[at]) for each in _RESULT.findall(said)) for at in (0, 1))
    told(f"  {name}: {passed} passed, {failed} failed")
    if "SKIPPED [cassandra" in said or (ran.returncode == 0 and not passed + failed):
        return said, None
    # A program that was not built, or ended before its first result, has failed as well.
    return said, max(failed, int(ran.returncode != 0))
