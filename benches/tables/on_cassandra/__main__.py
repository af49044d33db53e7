"""The program: `python -m tables.on_cassandra`, which `cargo xtask bench cassandra` starts from the folder `benches`."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from .. import machine, origin
from ..asked.plan import kept_plan
from ..asked.truth import Truth
from ..bench import PATHS_TABLE, ROWS_TABLE, Bench, told
from ..data import deck
from ..data.dataset import prepare
from ..guarded import guarded, watched
from ..phases import counts
from ..report import bars as reported
from ..report import table
from . import bad_input, costs, questions, sample, suite, writing
from .bars import BARS, OF_PHASE, is_well
from .cluster import CONTROL, Cluster

ROWS = 10_000_000
ROWS_QUICK = 200_000
PHASES = ("suite", "input", "costs", "writing", "questions", "sample", "counts")
_ONE_TREE = "counts of work: of tables that are packed into one tree each for them; times are of tables as they were loaded"
_PORT = 20_542
_KEPT_PORT = 20_642


def main() -> int:
    """Runs the chosen phases; 1 if an answer was wrong, a test or a case failed, or something that is installed failed.
    """
    asked = _arguments()
    if not asked.quick:
        machine.go_first()
    told(machine.described())
    folder = asked.folder.resolve() / "atoll-bench-tables"
    folder.mkdir(parents=True, exist_ok=True)
    bench = _bench(asked, folder)
    if asked.earlier:
        bench.measured.take(json.loads(asked.earlier.read_text()), phases=asked.phases, rows=bench.dataset.rows)
    if warning := machine.wait_for_calm(0) if asked.quick else machine.wait_for_calm():
        bench.measured.notes.append(warning)
    clusters = asked.folder.resolve() / "cassandra-bench"
    cluster = Cluster(clusters / f"kept-{bench.folder.name}", 1, "1G" if asked.quick else "4G", _KEPT_PORT)
    bench.url = cluster.url("atoll")
    _alone(bench, asked, clusters)
    _together(bench, asked, cluster)
    print(table.shown(reported.rows(bench.measured, BARS), bench.measured, colours=table.wants_colours(), bars=BARS))
    _keep(bench, asked)
    return 0 if is_well(bench.measured) else 1


def _bench(asked: argparse.Namespace, folder: Path) -> Bench:
    source = asked.source or ("deck" if deck.is_there() else "tube")
    rows = asked.rows or (ROWS_QUICK if asked.quick else ROWS)
    dataset = prepare(folder / "data", rows, source)
    truth = Truth(dataset.columns())
    place = folder / dataset.folder.name
    place.mkdir(exist_ok=True)
    count = asked.boxes or (300 if asked.quick else 1_000)
    bench = Bench(
        place,
        asked.counter.resolve(),
        dataset,
        truth,
        kept_plan(place, truth, count=count, timed=2 if asked.quick else 3),
        is_quick=asked.quick,
        rounds=asked.rounds or (3 if asked.quick else 5),
    )
    bench.measured.notes.append(
        f"{dataset.rows:,} rows of the {'simulation' if source == 'deck' else 'synthetic tube'},"
        f" one node on the machine of its clients{', quick: not a figure to quote' if asked.quick else ''}"
    )
    return bench


def _alone(bench: Bench, asked: argparse.Namespace, clusters: Path) -> None:
    """The phases that bring clusters of their own."""
    phases = {
        "suite": lambda: suite.run(bench, clusters, _PORT),
        "input": lambda: bad_input.run(bench, clusters, _PORT),
    }
    _in_order(bench, asked, phases, partial(guarded, bench))


def _together(bench: Bench, asked: argparse.Namespace, cluster: Cluster) -> None:
    """The phases that share one cluster, which is kept because loading it takes the longest."""
    phases = {
        "costs": lambda: costs.run(bench, cluster, "costs"),
        "writing": lambda: writing.run(bench, cluster, with_rivals=asked.peers),
        "questions": lambda: _questions(bench, asked),
        "sample": lambda: _sample(bench, cluster, asked),
        "counts": lambda: _counts(bench),
    }
    if not set(phases) & set(asked.phases):
        return
    made_by = {
        "programs": origin.programs(bench.counter, Path(os.environ[CONTROL])),
        "heap": cluster.heap,
        "commit": origin.commit(),
    }
    if asked.fresh or not cluster.folder.exists() or not writing.is_ours(bench, made_by):
        told("an empty cluster: nothing is kept that these programs made")
        cluster.down(keep=False)
        writing.begin(bench, made_by)
    bench.measured.detail["kept, made by"] = writing.made_by(bench)
    cluster.up()

    def run(name: str, keys: Collection[str], phase: Callable[[], None]) -> bool:
        # The nodes run for all of these phases, and are no children of this process.
        return watched(bench, name, keys, phase, machine.Beside(cluster.processes()))

    try:
        _in_order(bench, asked, phases, run)
    finally:
        cluster.down(keep=True)


def _questions(bench: Bench, asked: argparse.Namespace) -> None:
    writing.load(bench, ROWS_TABLE)
    questions.run(bench, with_peers=asked.peers)


def _sample(bench: Bench, cluster: Cluster, asked: argparse.Namespace) -> None:
    writing.load(bench, ROWS_TABLE)
    if asked.spark_python:
        writing.rows(bench, cluster)
    sample.run(bench, cluster, asked.spark_python, asked.spark_jars)


def _counts(bench: Bench) -> None:
    """Counts the work of questions; questions by particle go to a table that is sampled by particle.

    As in a folder, each table is made into one tree first: a loaded table consists of several.
    """
    for table, key in ((ROWS_TABLE, None), (PATHS_TABLE, "pid")):
        writing.load(bench, table, key)
        out = bench.folder / f"{table}-whole.json"
        bench.run_counter("tables-pack", "--store", bench.url, "--table", table, "--out", out)
    if _ONE_TREE not in bench.measured.notes:
        bench.measured.notes.append(_ONE_TREE)
    counts.run(bench)


def _in_order(
    bench: Bench,
    asked: argparse.Namespace,
    phases: dict[str, Callable[[], None]],
    run: Callable[[str, Collection[str], Callable[[], None]], bool],
) -> None:
    """Runs the phases in order; one that fails leaves the figures of the others."""
    for name, phase in phases.items():
        if name in asked.phases:
            run(name, OF_PHASE[name], phase)
            _keep(bench, asked)


def _keep(bench: Bench, asked: argparse.Namespace) -> None:
    """Writes what is known so far to files."""
    if asked.json:
        rows = reported.rows(bench.measured, BARS)
        asked.json.write_text(json.dumps([row.as_json() for row in rows], indent=2) + "\n")
    if asked.detail:
        asked.detail.write_text(json.dumps(bench.measured.as_json(), indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cargo xtask bench cassandra", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{ROWS_QUICK:,} rows and fewer rounds: a first look")
    parser.add_argument("--peers", action="store_true", help="beside plain rows, plain blobs, PostGIS and Spark")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the bars, as a list of objects")
    parser.add_argument("--detail", type=Path, metavar="FILE", help="write every single figure")
    parser.add_argument("--earlier", type=Path, metavar="FILE", help="begin with the figures that --detail wrote before")
    parser.add_argument("--rows", type=int, metavar="COUNT", help=f"so many rows; {ROWS:,} unless said otherwise")
    parser.add_argument("--boxes", type=int, metavar="COUNT", help="so many boxes; 1,000 unless said otherwise")
    parser.add_argument("--rounds", type=int, metavar="COUNT", help="so many rounds of what is timed")
    parser.add_argument("--source", choices=("deck", "tube"), help="where rows come from; the deck if LAMMPS is there")
    parser.add_argument("--fresh", action="store_true", help="write everything anew, whatever an earlier run left")
    parser.add_argument("--phases", type=_phases, default=PHASES, metavar="A,B", help=f"of {', '.join(PHASES)}")
    for hidden in ("--counter", "--folder"):
        parser.add_argument(hidden, type=Path, required=True, help=argparse.SUPPRESS)
    for hidden in ("--spark-python", "--spark-jars"):
        parser.add_argument(hidden, type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _phases(text: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in text.split(","))
    if unknown := set(names) - set(PHASES):
        raise argparse.ArgumentTypeError(f"no phase is called {sorted(unknown)[0]}; there are {', '.join(PHASES)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
