"""The program: `python -m tables`, which `cargo xtask bench tables` starts from the folder `benches`."""

import argparse
import json
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from . import machine
from .asked.plan import kept_plan
from .asked.truth import Truth
from .bench import ROWS_TABLE, Bench, told
from .data import deck
from .data.dataset import prepare
from .guarded import watched
from .peers.atoll_table import AtollTable
from .peers.base import Peer, of_rival
from .peers.together import built
from .phases import cold, counts, load, space, timing
from .report import bars, table

ROWS = 10_000_000
ROWS_QUICK = 1_000_000
PHASES = (
    "counts",
    "warm",
    "cold",
    "space",
    "tolerance",
    "writing",
    "live",
    "sustained",
    "packing",
    "runs",
    "slowdown",
)
_OF_TABLES = ("counts", "warm", "cold", "space", "tolerance")
"""Phases that query the loaded tables."""


def main() -> int:
    """Runs the chosen phases; 1 if an answer was wrong, or if something that is installed failed."""
    asked = _arguments()
    if not (asked.quick or asked.build):
        machine.go_first()
    told(machine.described())
    folder = asked.folder.resolve() / "atoll-bench-tables"
    folder.mkdir(parents=True, exist_ok=True)
    source = asked.source or ("deck" if deck.is_there() else "tube")
    rows = asked.rows or (ROWS_QUICK if asked.quick else ROWS)
    told(f"rows: {rows:,} of the {'simulation' if source == 'deck' else 'synthetic tube'}")
    dataset = prepare(folder / "data", rows, source)
    truth = Truth(dataset.columns())
    place = folder / dataset.folder.name
    place.mkdir(exist_ok=True)
    count = asked.boxes or (300 if asked.quick else 1_000)
    chosen = kept_plan(place, truth, count=count, timed=2 if asked.quick else 3)
    bench = Bench(
        place,
        asked.counter.resolve(),
        dataset,
        truth,
        chosen,
        is_quick=asked.quick,
        is_packed=not asked.blocks,
        rounds=asked.rounds or (3 if asked.quick else 5),
        minutes=asked.minutes,
    )
    if asked.build:
        _programs(bench, asked, "building")
        return 0 if bench.measured.is_well() else 1
    bench.measured.notes.append(
        f"{dataset.rows:,} rows of the {'simulation' if source == 'deck' else 'synthetic tube'},"
        f" {dataset.steps} steps{', quick: not a figure to quote' if asked.quick else ''}"
    )
    # A quick run does not wait for a calm machine, but warns about a busy one.
    if asked.earlier:
        phases = ("loading", *asked.phases)
        bench.measured.take(json.loads(asked.earlier.read_text()), phases=phases, rows=dataset.rows)
    if warning := machine.wait_for_calm(0) if asked.quick else machine.wait_for_calm():
        bench.measured.notes.append(warning)
    _run(bench, asked)
    _report(bench, asked)
    return 0 if bench.measured.is_well() else 1


def _run(bench: Bench, asked: argparse.Namespace) -> None:
    if not _guarded(bench, asked, "loading", partial(load.run, bench)):
        for name in _OF_TABLES:
            if name in asked.phases:
                bench.begin(name)
                bench.fail(name, "the tables that it asks were not loaded", bars.OF_PHASE[name])
        asked.phases = tuple(name for name in asked.phases if name not in _OF_TABLES)
    if "counts" in asked.phases:
        _guarded(bench, asked, "counts", partial(counts.run, bench))
    _run_together(bench, asked)
    _run_alone(bench, asked)


def _run_together(bench: Bench, asked: argparse.Namespace) -> None:
    """The phases in which every program answers; the programs are built within the first of them."""
    phases = {"warm": timing, "cold": cold, "space": space}
    names = [name for name in phases if name in asked.phases]
    programs = cache(lambda: _programs(bench, asked, names[0]))
    for name in names:
        beside = machine.Beside()

        def phase(run: Callable = phases[name].run, beside: machine.Beside = beside) -> None:
            made = programs()
            # Minutes in which rivals are built would hide what ran beside seconds of questions.
            beside.begin()
            run(bench, made)

        _guarded(bench, asked, name, phase, beside)


def _run_alone(bench: Bench, asked: argparse.Namespace) -> None:
    """The phases in which Atoll runs alone, or beside programs of the phase's own."""
    from .phases import live, packing, runs, slowdown, sustained, tolerance, writing

    phases = {
        "tolerance": tolerance,
        "writing": writing,
        "live": live,
        "sustained": sustained,
        "packing": packing,
        "runs": runs,
        "slowdown": slowdown,
    }
    for name, phase in phases.items():
        if name in asked.phases:
            _guarded(bench, asked, name, partial(phase.run, bench))


def _guarded(
    bench: Bench,
    asked: argparse.Namespace,
    name: str,
    phase: Callable[[], None],
    beside: machine.Beside | None = None,
) -> bool:
    """Runs a phase; returns whether it completed. Saves what is known by then."""
    is_over = watched(bench, name, bars.OF_PHASE[name], phase, beside or machine.Beside())
    _keep(bench, asked)
    return is_over


def _programs(bench: Bench, asked: argparse.Namespace, phase: str) -> list[Peer]:
    """Atoll, and every rival that can take part; only the chosen ones, if any were chosen."""
    made: list[Peer] = [AtollTable(bench.dataset, bench.store(ROWS_TABLE), ROWS_TABLE)]
    if asked.peers:
        # A broken package of a rival is not Atoll's failure.
        with of_rival("rivals"):
            from .peers.everyone import PEERS
        made += [peer(bench.dataset, bench.folder) for peer in PEERS if not asked.engines or peer.name in asked.engines]
    return built(bench, phase, made)


def _report(bench: Bench, asked: argparse.Namespace) -> None:
    rows = bars.rows(bench.measured)
    print(table.shown(rows, bench.measured, colours=table.wants_colours()))
    _keep(bench, asked)


def _keep(bench: Bench, asked: argparse.Namespace) -> None:
    """Writes what is known so far to files: an interrupted run has measured something too."""
    if asked.json:
        rows = bars.rows(bench.measured)
        asked.json.write_text(json.dumps([row.as_json() for row in rows], indent=2) + "\n")
    if asked.detail:
        asked.detail.write_text(json.dumps(bench.measured.as_json(), indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cargo xtask bench tables", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows and fewer rounds: a first look")
    parser.add_argument("--peers", action="store_true", help="beside every rival that is there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the bars, as a list of objects")
    parser.add_argument("--detail", type=Path, metavar="FILE", help="write every single figure")
    parser.add_argument("--rows", type=int, metavar="COUNT", help=f"so many rows; {ROWS:,} unless said otherwise")
    parser.add_argument("--boxes", type=int, metavar="COUNT", help="so many boxes; 1,000 unless said otherwise")
    parser.add_argument("--rounds", type=int, metavar="COUNT", help="so many rounds of what is timed; 5 unless said otherwise")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="M", help="how long what lasts lasts; 10 minutes")
    parser.add_argument("--build", action="store_true", help="only make the rows and the tables of rivals, for a later run")
    parser.add_argument("--earlier", type=Path, metavar="FILE", help="begin with the figures that --detail wrote before")
    parser.add_argument("--blocks", action="store_true", help="ask tables as they were appended, nothing packed")
    parser.add_argument("--source", choices=("deck", "tube"), help="where rows come from; the deck if LAMMPS is there")
    parser.add_argument("--phases", type=_phases, default=PHASES, metavar="A,B", help=f"of {', '.join(PHASES)}")
    parser.add_argument(
        "--engines", type=_words, default=(), metavar="A,B", help="of the rivals only these, by their names"
    )
    parser.add_argument("--counter", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _phases(text: str) -> tuple[str, ...]:
    names = _words(text)
    if unknown := set(names) - set(PHASES):
        raise argparse.ArgumentTypeError(f"no phase is called {sorted(unknown)[0]}; there are {', '.join(PHASES)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
