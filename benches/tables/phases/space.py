"""Space: bytes on disk of the table at rest, beside every program's own."""

from ..bench import ROWS_TABLE, Bench
from ..peers.base import ATOLL, Peer
from ..peers.together import Together


def run(bench: Bench, programs: list[Peer]) -> None:
    """Records the ratio, if the table is packed: a log of blocks is not what the bar is about."""
    rows = bench.dataset.rows
    # A store's file keeps room for readers of what a pack replaced; the objects of the table are what is at rest.
    own = bench.packed_bytes.get(ROWS_TABLE)
    parquet = bench.dataset.z_ordered.stat().st_size
    smallest = bench.dataset.z_ordered_smallest.stat().st_size
    by_program = {"parquet zstd": parquet / rows, "parquet zstd, split": smallest / rows}
    together = Together(bench, "space", programs)
    for program in [*together.there]:
        found = together.alone(program, program.bytes_on_disk)
        if found is not None:
            by_program[program.name] = found / rows
    if own is not None and ATOLL in by_program:
        by_program["atoll's whole file"] = by_program.pop(ATOLL)
        by_program[ATOLL] = own / rows
        bench.measured.record("space", own / parquet, by_program)
    bench.measured.detail["bytes a row"] = by_program
