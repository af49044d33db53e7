"""Periodic cells: how the space of a simulation repeats, and which columns are the positions in it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from . import _atoll
from ._convert import number
from .errors import InvalidInputError


@dataclasses.dataclass(frozen=True)
class Cell:
    """A periodic cell: a box of one to three axes that repeats, and may be tilted.

    ``Cell((10, 10, 10))`` is a cube over the columns ``x``, ``y``, ``z`` that begins at 0. ``lengths`` are in the unit
    of the positions, with ``math.inf`` for an axis that does not repeat. ``tilts`` are ``(xy,)`` for two axes and
    ``(xy, xz, yz)`` for three, as in LAMMPS: the edges are a = (lx, 0, 0), b = (xy, ly, 0), c = (xz, yz, lz). ``axes``
    are the columns, one for each axis, or one vector column: ``("pos",)``. ``low`` is the corner at which the cell
    begins.
    """

    lengths: tuple[float, ...]
    tilts: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    axes: tuple[str, ...] = ("x", "y", "z")

    def __post_init__(self) -> None:
        for name in ("lengths", "tilts", "low"):
            object.__setattr__(self, name, tuple(number(each, f"one of {name}") for each in getattr(self, name)))
        axes = _axis_names(self.axes)
        # The default axes, cut to the number of lengths.
        object.__setattr__(self, "axes", axes[: len(self.lengths)] if axes == ("x", "y", "z") else axes)

    @classmethod
    def lammps(
        cls,
        bounds: Sequence[tuple[float, float]],
        tilts: Iterable[float] = (),
        *,
        periodic: Sequence[bool] = (True, True, True),
        axes: Sequence[str] | str = ("x", "y", "z"),
    ) -> Cell:
        """Make a cell from ``(lo, hi)`` of each axis and the tilt factors ``xy, xz, yz``, as in ``lmp.extract_box()``.

        The bounds in a dump's ``ITEM: BOX BOUNDS xy xz yz`` are those of the box *around* a tilted cell: subtract the
        tilts first, as LAMMPS' page on triclinic boxes describes.
        """
        lengths = [high - low if repeats else math.inf for (low, high), repeats in zip(bounds, periodic, strict=False)]
        low = tuple(low for low, _ in bounds)
        return cls(tuple(lengths), tuple(tilts), low, _axis_names(axes))

    @classmethod
    def dimensions(cls, dimensions: Sequence[float], *, axes: Sequence[str] | str = ("x", "y", "z")) -> Cell:
        """Make a cell from ``[a, b, c, alpha, beta, gamma]``, angles in degrees: MDAnalysis' ``ts.dimensions``."""
        told = [] if dimensions is None else [number(each, "one of dimensions") for each in dimensions]
        if len(told) != 6:
            raise InvalidInputError("dimensions are three lengths and three angles in degrees")
        (a, b, c), angles = told[:3], told[3:]
        # The cosine of a right angle is exactly 0, which `math.cos` does not return.
        alpha, beta, gamma = (0.0 if angle == 90.0 else math.cos(math.radians(angle)) for angle in angles)
        xy, xz = b * gamma, c * beta
        ly = _edge_length(b * b - xy * xy, told)
        yz = (b * c * alpha - xy * xz) / ly
        lz = _edge_length(c * c - xz * xz - yz * yz, told)
        return cls((a, ly, lz), (xy, xz, yz), (), _axis_names(axes))

    def _parts(self) -> tuple[list[str], list[float], list[float], list[float]]:
        return list(self.axes), list(self.low), list(self.lengths), list(self.tilts)

    def _kept(self) -> dict[str, Any]:
        """Return the cell as an attribute holds it: the length of an axis that does not repeat is ``None``."""
        kept: dict[str, Any] = json.loads(_atoll.checked_cell(self._parts()))
        return kept

    @classmethod
    def _of(cls, kept: dict[str, Any]) -> Cell:
        lengths = tuple(math.inf if length is None else length for length in kept["lengths"])
        return cls(lengths, tuple(kept.get("tilts", ())), tuple(kept.get("low", ())), tuple(kept["axes"]))


def _edge_length(square: float, dimensions: list[float]) -> float:
    """Return the positive length whose square this is."""
    if not square > 0:
        raise InvalidInputError(f"there is no box of these lengths and angles: {dimensions}")
    return math.sqrt(square)


def _axis_names(axes: Sequence[str] | str) -> tuple[str, ...]:
    return (axes,) if isinstance(axes, str) else tuple(axes)
