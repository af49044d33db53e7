"""Rows from a running LAMMPS, as NumPy arrays.

LAMMPS keeps copies of atoms of neighbouring ranks, called ghosts, behind the atoms of a rank. They belong to other
ranks and would be written twice, so everything here leaves them out.
"""

from __future__ import annotations

from typing import Any

import numpy

from .errors import NotFoundError

#: The names of the components of LAMMPS' vectors, as in its dumps.
COMPONENTS = {"x": ("x", "y", "z"), "v": ("vx", "vy", "vz"), "f": ("fx", "fy", "fz"), "mu": ("mux", "muy", "muz")}


def owned(lmp: Any, *names: str, split: bool = True, floats: Any = None) -> dict[str, numpy.ndarray]:
    """Return columns of the atoms that this rank owns, without ghosts.

    ``lmp`` is a ``lammps.lammps``. ``names`` are per-atom properties that its ``extract_atom`` knows: ``"id"``,
    ``"type"``, ``"x"``, ``"v"`` and so on. Vectors become a column for each component, named as in LAMMPS' dumps
    (``x, y, z``, ``vx, vy, vz``); with ``split=False``, a vector stays one array of shape (atoms, 3).

    The arrays share LAMMPS' memory, which changes with the next ``run``: :meth:`Writer.step` copies them in time. With
    ``floats``, such as ``numpy.float32``, floating-point columns are rounded to that type. Then all columns are copies,
    which can be passed with ``give=True``.

    Raises ``NotFoundError`` where LAMMPS has no such property in this simulation.
    """
    count = lmp.extract_setting("nlocal")
    columns: dict[str, numpy.ndarray] = {}
    for name in names:
        values = lmp.numpy.extract_atom(name)
        if values is None:
            raise NotFoundError(f"LAMMPS has no per-atom property {name!r} in this simulation")
        values = values[:count]
        if split and values.ndim == 2 and name in COMPONENTS:
            columns |= {part: values[:, place] for place, part in enumerate(COMPONENTS[name])}
        else:
            columns[name] = values
    if floats is None:
        return columns
    return {name: _rounded(values, floats) for name, values in columns.items()}


def _rounded(values: numpy.ndarray, floats: Any) -> numpy.ndarray:
    return numpy.array(values, dtype=floats if values.dtype.kind == "f" else None, order="C", copy=True)
