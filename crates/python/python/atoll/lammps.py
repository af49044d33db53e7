"""Rows from a running LAMMPS, as NumPy arrays.

LAMMPS keeps copies of atoms of neighbouring ranks, called ghosts, behind the atoms of a rank. They belong to other
ranks and would be written twice, so everything here leaves them out.
"""

from __future__ import annotations

from typing import Any

import numpy

from .errors import NotFoundError

#: The names of the components of LAMMPS' vectors, as in its dumps.
COMPONENTS = {
    "x": ("x", "y", "z"), "v": ("vx", "vy", "vz"), "f": ("fx", "fy", "fz"), "mu": ("mux", "muy", "muz"),
    "torque": ("tqx", "tqy", "tqz"), "omega": ("omegax", "omegay", "omegaz"),
    "angmom": ("angmomx", "angmomy", "angmomz"),
}  # fmt: skip


def owned(lmp: Any, *names: str, split: bool = True, floats: Any = None) -> dict[str, numpy.ndarray]:
    """Return columns of the atoms that this rank owns, without ghosts.

    ``lmp`` is a ``lammps.lammps``. ``names`` are per-atom properties that its ``extract_atom`` knows: ``"id"``,
    ``"type"``, ``"x"``, ``"v"`` and so on. Vectors become a column for each component, named as in LAMMPS' dumps
    (``x, y, z``, ``vx, vy, vz``, ``tqx, tqy, tqz``); with ``split=False``, a vector stays one array of shape
    (atoms, 3). ``"mass"``, of which LAMMPS has one for each type, becomes the mass of each atom; where atoms have
    masses of their own, these are ``"rmass"``.

    The arrays share LAMMPS' memory, which changes with the next ``run``: :meth:`Writer.step` copies them in time. With
    ``floats``, such as ``numpy.float32``, floating-point columns are rounded to that type. Then all columns are copies,
    which can be passed with ``give=True``.

    Raises ``NotFoundError`` where LAMMPS has no such property in this simulation.
    """
    count = lmp.extract_setting("nlocal")
    columns: dict[str, numpy.ndarray] = {}
    for name in names:
        values = _extracted(lmp, name)
        # LAMMPS has masses by type; the first is that of type 0, which no atom has.
        values = values[_extracted(lmp, "type")[:count]] if name == "mass" else values[:count]
        if split and values.ndim == 2 and name in COMPONENTS:
            columns |= {part: values[:, place] for place, part in enumerate(COMPONENTS[name])}
        else:
            columns[name] = values
    if floats is None:
        return columns
    return {name: _rounded(values, floats) for name, values in columns.items()}


def _extracted(lmp: Any, name: str) -> numpy.ndarray:
    values: numpy.ndarray | None = lmp.numpy.extract_atom(name)
    if values is None:
        raise NotFoundError(f"LAMMPS has no per-atom property {name!r} in this simulation")
    return values


def _rounded(values: numpy.ndarray, floats: Any) -> numpy.ndarray:
    return numpy.array(values, dtype=floats if values.dtype.kind == "f" else None, order="C", copy=True)
