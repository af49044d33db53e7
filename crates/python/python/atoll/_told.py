"""Reports of a table: its steps, runs and contents, and the results of packs, loads, vacuums and copies."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """A complete step: the rows of every rank are present."""

    run: str
    step: int
    #: Physical time, in :attr:`Table.time_unit` or else in the unit that the writer chose; ``None`` if none was given.
    time: float | None
    #: The attempt that wrote it.
    attempt: int
    rows: int


class Packed(NamedTuple):
    """The result of a pack."""

    #: The last version that the pack made; ``None`` if there was nothing to do.
    version: int | None
    #: Trees that were written.
    trees: int
    objects_before: int
    objects_after: int
    #: Cubes that were written.
    cubes: int
    #: Rows that were written.
    rows: int
    #: Rows that were left out because they had been deleted.
    dropped: int
    bytes_read: int
    bytes_written: int
    #: How often another packer, or a delete, finished first.
    lost: int


class Loaded(NamedTuple):
    """How far a load has come."""

    #: Steps that were taken.
    steps: int
    #: Their rows.
    rows: int
    #: The last step that was taken.
    step: int
    #: The last step that is certain to be in the table; ``None`` before the first. Later ones wait for their tree.
    last: int | None


class Info(NamedTuple):
    """The contents of the current version of a table."""

    name: str
    version: int
    #: Rows; rows deleted by a condition count until they are packed.
    rows: int
    #: Bytes that the rows take in the store.
    bytes: int
    #: Pieces that are stored as they were appended.
    blocks: int
    #: Objects of packed rows.
    cubes: int
    runs: int
    #: Complete steps.
    steps: int
    #: The unit of the times of steps; ``None`` if the table does not say.
    time_unit: str | None


class Vacuumed(NamedTuple):
    """The result of a vacuum."""

    #: The oldest version that can still be queried, apart from snapshots.
    oldest: int
    #: Removed objects that only older versions had.
    objects: int
    #: Removed objects that never became part of a version.
    orphans: int
    #: Removed entries of the table's history that lead only to older versions.
    history: int


class Copied(NamedTuple):
    """The result of copying a table."""

    #: The version that the copy shows, and from which its own versions count on.
    version: int
    #: Rows; rows deleted by a condition count until they are packed.
    rows: int
    #: Objects that hold the rows.
    objects: int
    #: Objects that this call copied; an interrupted earlier call copied the others.
    copied: int
    #: Bytes that this call copied.
    bytes: int


class Run(NamedTuple):
    """A run, over all of its attempts."""

    name: str
    #: The attempt that began last.
    attempt: int
    ranks: int
    #: The last step for which every rank's rows are present, whichever attempt wrote it; ``None`` before the first.
    last_complete: int | None
    #: The last step that the current attempt made visible; ``None`` before its first.
    published: int | None
    #: How many steps are complete.
    steps: int
    rows: int
