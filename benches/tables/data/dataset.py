"""The rows on disk: as steps for programs that write, and as z-ordered Parquet for programs that answer.

Invariant: a folder without its description is incomplete, and is made again.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import deck
from .rows import COLUMNS, INDEX, PARTICLES, PRIORITY, ROW_BYTES, SCHEMA
from .tube import Tube
from .weights import priorities, weights
from .zorder import zorder

_LAYOUT = 4
"""Must change with anything that changes the files."""

GROUP_ROWS = 16_384
"""Rows of a Parquet row group: small groups let peers skip the most."""


@dataclass(frozen=True)
class Dataset:
    """Rows that were made, and their files."""

    folder: Path
    rows: int
    steps: int
    source: str

    @property
    def by_step(self) -> Path:
        """Arrow IPC, with a record batch for each output step."""
        return self.folder / "steps.arrow"

    @property
    def z_ordered(self) -> Path:
        """Z-ordered Parquet with zstd and the priority: the file from which peers answer."""
        return self.folder / "z.parquet"

    @property
    def z_ordered_smallest(self) -> Path:
        """The same in the smallest encoding that was found, which is slower to read."""
        return self.folder / "z-smallest.parquet"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of each step, in the order of steps."""
        with pa.memory_map(str(self.by_step)) as source:
            reader = pa.ipc.open_file(source)
            for place in range(reader.num_record_batches):
                yield reader.get_batch(place)

    def columns(self, names: tuple[str, ...] = COLUMNS) -> dict[str, np.ndarray]:
        """Whole columns, in the order of steps."""
        table = pa.Table.from_batches(self.batches()).select(names)
        return {name: table[name].combine_chunks().to_numpy() for name in names}


def prepare(folder: Path, rows: int, source: str) -> Dataset:
    """The first steps that together have at least `rows` rows; makes them if they are missing."""
    place = folder / f"{source}-{rows}-rows-{_LAYOUT}"
    described = place / "dataset.json"
    if not described.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        described.write_text(json.dumps(_make(Dataset(place, 0, 0, source), rows)))
    return Dataset(folder=place, source=source, **json.loads(described.read_text()))


def _make(dataset: Dataset, rows: int) -> dict[str, int]:
    # A run loses particles on its way, but never more than half of them.
    steps = 2 * max(1, -(-rows // PARTICLES))
    frames = deck.frames(steps) if dataset.source == "deck" else Tube(steps).frames()
    made = {"rows": 0, "steps": 0}
    with pa.OSFile(str(dataset.by_step), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for frame in frames:
            writer.write_batch(pa.record_batch([frame[name] for name in COLUMNS], schema=SCHEMA))
            made = {"rows": made["rows"] + len(frame["pid"]), "steps": made["steps"] + 1}
            if made["rows"] >= rows:
                break
    columns = dataset.columns()
    columns[PRIORITY.name] = priorities(weights(columns["pid"], columns["step"]))
    order = zorder([columns[name] for name in INDEX])
    table = pa.table({name: values[order] for name, values in columns.items()}, schema=SCHEMA.append(PRIORITY))
    _write(table, dataset.z_ordered)
    split = {field.name: "BYTE_STREAM_SPLIT" for field in SCHEMA if pa.types.is_floating(field.type)}
    _write(table, dataset.z_ordered_smallest, column_encoding=split)
    assert table.nbytes == table.num_rows * (ROW_BYTES + 4), "columns are plain"
    return made


def _write(table: pa.Table, path: Path, **settings: object) -> None:
    # Dictionaries of floats that hardly repeat make files larger and slower.
    whole = [field.name for field in SCHEMA if pa.types.is_integer(field.type)]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=3,
        row_group_size=GROUP_ROWS,
        write_page_index=True,
        use_dictionary=whole,
        **settings,
    )
