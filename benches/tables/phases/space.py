"""Space: bytes on disk of the table at rest, beside every program's own."""

import shutil
from pathlib import Path

from ..bench import ROWS_TABLE, Bench, told
from ..peers.atoll_table import occupied
from ..peers.base import ATOLL, Peer
from ..peers.together import Together

_AS_IT_LIES = "atoll's whole file"
"""Including room for readers of what a pack replaced."""
_OBJECTS = "atoll's objects alone"
"""Without what is needed to find them: leaves, the manifest, its versions."""


def run(bench: Bench, programs: list[Peer]) -> None:
    """Records the ratio to the smallest file of z-ordered Parquet with zstd, if the table is packed: the bar is not
    about a log of blocks.
    """
    rows = bench.dataset.rows
    parquet = bench.dataset.z_ordered.stat().st_size
    smallest = bench.dataset.z_ordered_smallest.stat().st_size
    by_program = {"parquet zstd": parquet / rows, "parquet zstd, split": smallest / rows}
    together = Together(bench, "space", (program for program in programs if not program.is_only_warm))
    for program in [*together.there]:
        found = together.alone(program, program.bytes_on_disk)
        if found is not None:
            by_program[program.name] = found / rows
    objects = bench.packed_bytes.get(ROWS_TABLE)
    if objects is not None and ATOLL in by_program:
        at_rest = _at_rest(bench)
        told(f"  bytes: {at_rest:,} at rest, {objects:,} of objects alone")
        by_program[_AS_IT_LIES] = by_program.pop(ATOLL)
        by_program |= {_OBJECTS: objects / rows, ATOLL: at_rest / rows}
        bench.measured.record("space", at_rest / min(parquet, smallest), by_program)
    bench.measured.detail["bytes a row"] = by_program


def _at_rest(bench: Bench) -> int:
    """The bytes on disk of a store that has only ever held this table: everything that the others count, and no more.
    """
    import atoll

    place: Path = bench.folder / "atoll-at-rest"
    shutil.rmtree(place, ignore_errors=True)
    try:
        with atoll.open(bench.store(ROWS_TABLE), create=False) as store, atoll.open(place) as empty:
            store.table(ROWS_TABLE).copy_to(empty)
        return occupied(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
