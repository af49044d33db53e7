"""What a table tells of itself, and of what was done with it: steps, runs, packs, copies."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """A step that is complete: every rank's rows are there."""

    run: str
    step: int
    #: Physical time, in the unit that the writer chose; ``None`` if none was given.
    time: float | None
    #: The attempt that wrote it.
    attempt: int
    rows: int


class Packed(NamedTuple):
    """What a pack did."""

    #: The version that it made last; ``None`` if there was nothing to do.
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
    #: How often another packer, or a delete, was faster.
    lost: int


class Info(NamedTuple):
    """What the current version of a table is made of."""

    name: str
    version: int
    #: Rows; those that were deleted by a condition count until they are packed.
    rows: int
    #: Bytes that they take in the store.
    bytes: int
    #: Pieces that lie as they were appended.
    blocks: int
    #: Objects of packed rows.
    cubes: int
    runs: int
    #: Steps that are complete.
    steps: int


class Vacuumed(NamedTuple):
    """What a vacuum did."""

    #: The oldest version that can still be asked, snapshots apart.
    oldest: int
    #: Objects that only older versions had, and that are gone.
    objects: int
    #: Objects that never became part of a version, and that are gone.
    orphans: int
    #: Entries of the table's history that lead to older versions alone, and that are gone.
    history: int


class Copied(NamedTuple):
    """What a copy of a table is of, and what it took."""

    #: The version that the copy shows, and counts on from.
    version: int
    #: Rows; those that were deleted by a condition count until they are packed.
    rows: int
    #: Objects that they lie in.
    objects: int
    #: Objects that were copied now; the others were there from a call that was interrupted.
    copied: int
    #: Bytes that were copied now.
    bytes: int


class Run(NamedTuple):
    """A run, over all its attempts."""

    name: str
    #: The attempt that began last.
    attempt: int
    ranks: int
    #: The last step of which every rank's rows are there, whichever attempt wrote it; ``None`` before the first.
    last_complete: int | None
    #: The last step that the current attempt made visible; ``None`` before its first.
    published: int | None
    #: How many steps are complete.
    steps: int
    rows: int
