"""Space: bytes on disk of the table at rest, beside every program's own."""

from pathlib import Path

from ..bench import ROWS_TABLE, Bench
from ..peers.base import Peer


def run(bench: Bench, programs: list[Peer]) -> None:
    """Records the ratio, if the table is packed: a log of blocks is not what the bar is about."""
    rows = bench.dataset.rows
    # A store's file keeps room for readers of what a pack replaced; the objects of the table are what is at rest.
    own = bench.packed_bytes.get(ROWS_TABLE, allocated(bench.store(ROWS_TABLE)))
    parquet = bench.dataset.z_ordered.stat().st_size
    smallest = bench.dataset.z_ordered_smallest.stat().st_size
    by_program = {"atoll": own / rows, "parquet zstd": parquet / rows, "parquet zstd, split": smallest / rows}
    for program in programs:
        program.open()
        by_program[program.name] = program.bytes_on_disk() / rows
        program.close()
    bench.measured.detail["bytes a row"] = by_program
    if bench.is_packed:
        bench.measured.record("space", own / parquet, by_program)
    else:
        bench.measured.notes.append(f"not packed, the table takes {own / parquet:.2f}x of z-ordered Parquet")


def allocated(folder: Path) -> int:
    """Bytes that the files below a folder occupy, holes left out."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
