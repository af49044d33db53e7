"""The program: `python -m tables`, which `cargo xtask bench tables` starts from the folder `benches`."""

import argparse
import json
import sys
from pathlib import Path

from . import machine
from .asked.plan import plan
from .asked.truth import Truth
from .bench import ROWS_TABLE, Bench, told
from .data import deck
from .data.dataset import prepare
from .peers.atoll_table import AtollTable
from .peers.base import Peer, Unavailable
from .phases import cold, counts, load, space, timing
from .report import bars, table

ROWS = 10_000_000
ROWS_QUICK = 1_000_000
PHASES = ("counts", "warm", "cold", "space", "tolerance", "writing", "live", "runs", "slowdown")


def main() -> int:
    """Runs what was asked for; 1 if an answer was wrong."""
    asked = _arguments()
    machine.go_first()
    told(machine.described())
    folder = asked.folder.resolve() / "atoll-bench-tables"
    folder.mkdir(parents=True, exist_ok=True)
    source = asked.source or ("deck" if deck.is_there() else "tube")
    rows = asked.rows or (ROWS_QUICK if asked.quick else ROWS)
    told(f"rows: {rows:,} of the {'simulation' if source == 'deck' else 'synthetic tube'}")
    dataset = prepare(folder / "data", rows, source)
    truth = Truth(dataset.columns())
    chosen = plan(truth, count=asked.boxes or (300 if asked.quick else 1_000), timed=2 if asked.quick else 3)
    place = folder / dataset.folder.name
    place.mkdir(exist_ok=True)
    bench = Bench(
        place, asked.counter.resolve(), dataset, truth, chosen, is_quick=asked.quick, is_packed=not asked.blocks
    )
    bench.measured.notes.append(
        f"{dataset.rows:,} rows of the {'simulation' if source == 'deck' else 'synthetic tube'},"
        f" {dataset.steps} steps{', quick: not a figure to quote' if asked.quick else ''}"
    )
    # A first look waits for nobody, and says so all the same.
    if warning := machine.wait_for_calm(0) if asked.quick else machine.wait_for_calm():
        bench.measured.notes.append(warning)
    _run(bench, asked)
    _report(bench, asked.json, asked.detail)
    return 1 if bench.measured.wrong else 0


def _run(bench: Bench, asked: argparse.Namespace) -> None:
    told("loading")
    load.run(bench)
    if "counts" in asked.phases:
        told("counts of work")
        counts.run(bench)
    programs = _programs(bench, asked.peers, asked.engines)
    if "warm" in asked.phases:
        told("times, warm")
        timing.run(bench, programs)
    if "cold" in asked.phases:
        told("times, cold")
        cold.run(bench, programs)
    if "space" in asked.phases:
        space.run(bench, programs)
    _run_alone(bench, asked)


def _run_alone(bench: Bench, asked: argparse.Namespace) -> None:
    """The phases that have nobody beside them, or bring their own."""
    from .phases import live, runs, slowdown, tolerance, writing

    phases = {"tolerance": tolerance, "writing": writing, "live": live, "runs": runs, "slowdown": slowdown}
    for name, phase in phases.items():
        if name not in asked.phases:
            continue
        told(name)
        try:
            phase.run(bench)
        except Unavailable as missing:
            bench.leave_out(name, missing)


def _programs(bench: Bench, with_peers: bool, asked: tuple[str, ...]) -> list[Peer]:
    """Atoll, and every rival that can take part; of those that were asked for, if any were."""
    made: list[Peer] = [AtollTable(bench.dataset, bench.store(ROWS_TABLE), ROWS_TABLE)]
    if with_peers:
        from .peers.everyone import PEERS

        made += [peer(bench.dataset, bench.folder) for peer in PEERS if not asked or peer.name in asked]
    there = []
    for program in made:
        told(f"  building {program.name}")
        try:
            program.build()
        except Unavailable as missing:
            bench.leave_out(program.name, missing)
        else:
            there.append(program)
    return there


def _report(bench: Bench, bars_file: Path | None, detail_file: Path | None) -> None:
    rows = bars.rows(bench.measured)
    print(table.shown(rows, bench.measured, colours=table.wants_colours()))
    if bars_file:
        bars_file.write_text(json.dumps([row.as_json() for row in rows], indent=2) + "\n")
    if detail_file:
        detail_file.write_text(json.dumps(bench.measured.detail, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cargo xtask bench tables", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows and fewer rounds: a first look")
    parser.add_argument("--peers", action="store_true", help="beside every rival that is there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the bars, as a list of objects")
    parser.add_argument("--detail", type=Path, metavar="FILE", help="write every single figure")
    parser.add_argument("--rows", type=int, metavar="COUNT", help=f"so many rows; {ROWS:,} unless said otherwise")
    parser.add_argument("--boxes", type=int, metavar="COUNT", help="so many boxes; 1,000 unless said otherwise")
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
