"""Load MDAnalysis trajectories into a table, and read the runs of a table as MDAnalysis trajectories.

>>> import MDAnalysis, atoll, atoll.mdanalysis                              # doctest: +SKIP
>>> universe = MDAnalysis.Universe("protein.tpr", "protein.xtc")            # doctest: +SKIP
>>> store = atoll.open("results")                                           # doctest: +SKIP
>>> table = atoll.mdanalysis.create_table(store, "protein", universe)       # doctest: +SKIP
>>> atoll.mdanalysis.load(table, universe, run="first")                     # doctest: +SKIP
>>> again = atoll.mdanalysis.universe(table, run="first")                   # doctest: +SKIP

MDAnalysis reads the file with its own reader, whatever the format; importing this module registers a reader for runs of
tables: ``MDAnalysis.Universe(topology, "results", format="ATOLL", table="protein", run="first")``. Lengths are in
ångström, times in picoseconds and velocities in ångström per picosecond, as everywhere in MDAnalysis. Needs
``MDAnalysis`` and ``numpy``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._convert import needed
from ._expression import col
from ._store import Store
from ._store import open as open_store
from .errors import InvalidInputError, NotFoundError, UnsupportedError

numpy: Any = needed("numpy", "atoll.mdanalysis")
_base: Any = needed("MDAnalysis.coordinates.base", "atoll.mdanalysis")
_analysis: Any = needed("MDAnalysis", "atoll.mdanalysis")

if TYPE_CHECKING:
    from ._table import Table

#: The columns of each moving attribute of MDAnalysis.
_MOVING = {"positions": ("x", "y", "z"), "velocities": ("vx", "vy", "vz"), "forces": ("fx", "fy", "fz")}
#: The columns of the fixed attributes of atoms, with their types; a table has those that the universe has.
_FIXED = {
    "names": ("name", "utf8"), "types": ("type", "utf8"), "resids": ("resid", "int64"),
    "resnames": ("resname", "utf8"), "masses": ("mass", "float64"), "charges": ("charge", "float64"),
}  # fmt: skip
#: The attribute for boxes. On a run, it holds the first step and the six numbers of the box with which the run began;
#: on a step, the box of that step where it differs.
_BOXES = "mdanalysis.dimensions"
_UNITS = {"time": "ps", "length": "Angstrom", "velocity": "Angstrom/ps", "force": "kJ/(mol*Angstrom)"}


def create_table(store: Store, name: str, universe: Any, *, salt: int = 0) -> Table:
    """Create a table for the atoms of a universe, or open the existing one if its columns are the same.

    A row is an atom in a frame: ``pid`` (its index, from 0), ``step`` (the frame), ``time``, ``x, y, z``, velocities
    and forces if the trajectory has them, and names, types, residues, masses and charges if the topology has them. The
    unit of sampling is the atom, so that a sampled atom keeps its whole path; the index columns are x, y, z and the
    step.

    Raises ``ConflictError`` where a table of that name has other columns.
    """
    schema = {"pid": "int64", "step": "int64", "time": "float64"}
    for attribute in _moving(universe.trajectory.ts):
        schema |= dict.fromkeys(_MOVING[attribute], "float32")
    schema |= {column: kind for attribute, (column, kind) in _FIXED.items() if hasattr(universe.atoms, attribute)}
    index = ("x", "y", "z", "step")
    return store.create_table(name, schema, id=("pid", "step"), sample_key="pid", index=index, salt=salt)


def load(
    table: Table,
    universe: Any,
    run: str,
    *,
    select: str = "all",
    frames: slice = slice(None),
    progress: Any = None,
) -> int:
    """Append the frames of a universe's trajectory as steps of a run; return the number of frames appended.

    ``select`` selects atoms, in MDAnalysis' language, once for all frames; ``frames`` selects frames. The step is the
    number of the frame. Frames that the run already has are skipped, so repeating the same call continues an
    interrupted load. Velocities and forces are left out if the table has no columns for them. ``progress`` is called
    with (frame, frames) after each frame.

    Raises ``InvalidInputError`` where the table has no columns for positions, where nothing is selected, and where a
    frame that the run does not have lies before frames that it has, which it would replace.
    """
    atoms = universe.select_atoms(select)
    if len(atoms) == 0:
        raise InvalidInputError(f"{select!r} selects no atom")
    missing = {"pid", "step", *_MOVING["positions"]} - set(table.columns)
    if missing:
        raise InvalidInputError.hinted(
            f"the table has no column {', '.join(sorted(missing))}", "make it with atoll.mdanalysis.create_table"
        )
    chosen = _frames_to_load(table, run, range(universe.trajectory.n_frames)[frames])
    if not chosen:
        return 0
    attempt = table.begin(run)
    fixed = _fixed(table, atoms)
    boxes = _boxes(table, run)
    columns = set(table.columns)
    for place, frame in enumerate(chosen, 1):
        ts = universe.trajectory[frame]
        _note_box(table, run, boxes, frame, ts.dimensions)
        rows = {**fixed, "step": numpy.full(len(atoms), frame, dtype="int64")}
        rows |= {"time": numpy.full(len(atoms), ts.time), "run": [run] * len(atoms)}
        for attribute in _moving(ts):
            values = getattr(atoms, attribute)
            rows |= {column: values[:, axis] for axis, column in enumerate(_MOVING[attribute])}
        rows = {name: values for name, values in rows.items() if name in columns}
        table.append(rows, run=run, step=frame, time=float(ts.time), attempt=attempt)
        if progress is not None:
            progress(place, len(chosen))
    return len(chosen)


def universe(table: Table, run: str | None = None) -> Any:
    """Return a universe of a run of a table: its atoms in the order of ``pid``, its steps as frames.

    Names, types, residues, masses and charges are present if the table has columns for them. ``run`` may be omitted if
    the table has only one run.
    """
    store = table.store
    if not isinstance(store, Store):
        raise InvalidInputError("MDAnalysis reads a run of one store, not of several")
    if store.url.startswith("mem:"):
        raise UnsupportedError.hinted("MDAnalysis opens the store once more, and this one is in memory", "use a folder")
    run = _run_named(table, run)
    first = _frame(table, run, _steps(table, run)[0].step, [column for column, _ in _FIXED.values()])
    made = _universe_of(first)
    made.load_new(store.url, format="ATOLL", table=table.name, run=run)
    return made


def _universe_of(atoms: dict[str, Any]) -> Any:
    """Return a universe of these atoms. The atoms of one residue are contiguous, as in every topology."""
    count = len(atoms["pid"])
    known = [column for column in ("resid", "resname") if column in atoms]
    is_first = numpy.arange(count) == 0
    for column in known:
        is_first[1:] |= atoms[column][1:] != atoms[column][:-1]
    residues = numpy.flatnonzero(is_first)
    made = _analysis.Universe.empty(
        count, n_residues=len(residues), atom_resindex=numpy.cumsum(is_first) - 1, trajectory=False
    )
    for attribute, (name, _) in _FIXED.items():
        if name in atoms:
            made.add_TopologyAttr(attribute, atoms[name][residues] if name in known else atoms[name])
    return made


def _frames_to_load(table: Table, run: str, frames: range) -> list[int]:
    """Return the frames that the run does not have, in rising order."""
    last = table.last_complete(run)
    if last is None:
        return sorted(frames)
    there = {step.step for step in table.steps(run)}
    chosen = sorted(frame for frame in frames if frame not in there)
    if chosen and chosen[0] < last:
        raise InvalidInputError.hinted(
            f"frame {chosen[0]} lies before frame {last}, which run {run!r} has already", "load it as a run of its own"
        )
    return chosen


def _moving(ts: Any) -> list[str]:
    there = {"positions": True, "velocities": ts.has_velocities, "forces": ts.has_forces}
    return [attribute for attribute, is_there in there.items() if is_there]


def _fixed(table: Table, atoms: Any) -> dict[str, Any]:
    """Return the fixed attributes of the atoms, as the columns that each of their rows repeats."""
    columns = {"pid": atoms.indices.astype("int64")}
    for attribute, (column, kind) in _FIXED.items():
        if column in table.columns and hasattr(atoms, attribute):
            values = getattr(atoms, attribute)
            columns[column] = [str(value) for value in values] if kind == "utf8" else numpy.asarray(values, dtype=kind)
    return columns


def _boxes(table: Table, run: str) -> list[list[Any]]:
    return json.loads(table.run_attributes(run).get(_BOXES, "[]"))


def _note_box(table: Table, run: str, boxes: list[list[Any]], frame: int, dimensions: Any) -> None:
    """Note the box at the beginning of the run, and for each frame whose box differs: it may change in every frame."""
    box = None if dimensions is None else [float(length) for length in dimensions]
    if not boxes:
        boxes.append([frame, box])
        table.set_run_attributes(run, {_BOXES: json.dumps(boxes)})
    elif boxes[-1][1] != box:
        # Setting the attribute to None would remove it.
        table.set_attributes({_BOXES: box or []}, run=run, step=frame)
    elif _BOXES in table.attributes(run=run, step=frame):
        # A box left by a frame of this number that was deleted, or is being replaced.
        table.set_attributes({_BOXES: None}, run=run, step=frame)


def _run_named(table: Table, run: str | None) -> str:
    names = [found.name for found in table.runs()]
    if run is None and len(names) == 1:
        return names[0]
    if run is not None and run in names:
        return run
    if not names:
        raise NotFoundError.hinted(
            "the table has no run yet", "load one: atoll.mdanalysis.load(table, universe, run=...)"
        )
    problem = f"there is no run {run!r}" if run is not None else f"there are {len(names)} runs, and none was named"
    raise NotFoundError.hinted(problem, f"give run=, one of {', '.join(names)}")


def _steps(table: Table, run: str) -> list[Any]:
    steps = table.steps(run)
    if not steps:
        raise NotFoundError(f"run {run!r} has no complete step")
    return steps


def _frame(table: Table, run: str, step: int, columns: list[str]) -> dict[str, Any]:
    """Return the rows of one step, in the order of the atoms, with those of the columns that the table has."""
    there = [column for column in columns if column in table.columns]
    rows = table.of_runs(run).where(col("step") == step).select("pid", *there).numpy()
    order = numpy.argsort(rows["pid"], kind="stable")
    return {name: values[order] for name, values in rows.items()}


class AtollReader(_base.ReaderBase):  # type: ignore[misc]
    """Reads a run of a table as a trajectory: each step is a frame, with its atoms in the order of ``pid``.

    ``filename`` is the store; ``table`` and ``run`` may be omitted if there is only one.
    """

    format = "ATOLL"
    units = _UNITS

    def __init__(self, filename: Any, table: str | None = None, run: str | None = None, **options: Any) -> None:
        super().__init__(filename, **options)
        # Read-only: a reader changes nothing, and must not keep the folder from processes that write.
        store = open_store(os.fspath(filename), create=False, read_only=True)
        names = store.tables()
        if table is None and not names:
            raise NotFoundError.hinted(
                "the store has no table yet", "make one: atoll.mdanalysis.create_table(store, name, universe)"
            )
        if table is None and len(names) > 1:
            raise NotFoundError.hinted(
                f"there are {len(names)} tables, and none was named", f"give table=, one of {', '.join(names)}"
            )
        self._table = store.table(names[0] if table is None else table)
        self._run = _run_named(self._table, run)
        # The arguments that `copy` passes to the new reader; MDAnalysis only records those of its own `__init__`.
        self._kwargs |= {"table": self._table.name, "run": self._run}
        self._steps = _steps(self._table, self._run)
        self._boxes = _boxes(self._table, self._run)
        first = self._rows(0)
        self.n_atoms = len(first["pid"])
        has = {name: columns[0] in first for name, columns in _MOVING.items()}
        self.ts = self._Timestep(
            self.n_atoms, velocities=has["velocities"], forces=has["forces"], **self._ts_kwargs
        )
        self._fill(0, first)

    @staticmethod
    def parse_n_atoms(filename: Any, **options: Any) -> int:
        """Return the number of atoms in a frame."""
        with AtollReader(filename, **options) as reader:
            return reader.n_atoms

    @property
    def n_frames(self) -> int:
        """The number of complete steps."""
        return len(self._steps)

    def _read_frame(self, frame: int) -> Any:
        if not 0 <= frame < len(self._steps):
            raise OSError(f"there is no frame {frame}: the run has {len(self._steps)}")
        self._fill(frame, self._rows(frame))
        return self.ts

    def _rows(self, frame: int) -> dict[str, Any]:
        columns = [column for moving in _MOVING.values() for column in moving]
        return _frame(self._table, self._run, self._steps[frame].step, columns)

    def _box(self, step: int) -> Any:
        noted = self._table.attributes(run=self._run, step=step)
        if _BOXES in noted:
            return noted[_BOXES] or None
        earlier = [box for since, box in self._boxes if since <= step]
        return earlier[-1] if earlier else None

    def _fill(self, frame: int, rows: dict[str, Any]) -> None:
        step = self._steps[frame]
        if len(rows["pid"]) != self.n_atoms:
            raise OSError(
                f"step {step.step} has {len(rows['pid'])} atoms and the first frame {self.n_atoms}: "
                "MDAnalysis needs as many in every frame"
            )
        ts = self.ts
        ts.frame = frame
        for attribute, columns in _MOVING.items():
            if columns[0] in rows:
                setattr(ts, attribute, numpy.stack([rows[column] for column in columns], axis=1))
        ts.data["step"] = step.step
        if step.time is not None:
            ts.data["time"] = step.time
        ts.dimensions = self._box(step.step)

    def _read_next_timestep(self, ts: Any = None) -> Any:
        if self.ts.frame + 1 >= len(self._steps):
            raise OSError("the last frame was read")
        return self._read_frame(self.ts.frame + 1)

    def _reopen(self) -> None:
        self.ts.frame = -1

    def close(self) -> None:
        """Do nothing: the reader holds only the store, which closes when nothing refers to it any more."""

    def __iter__(self) -> Iterator[Any]:
        self._reopen()
        while self.ts.frame + 1 < len(self._steps):
            yield self._read_next_timestep()
        self.rewind()
