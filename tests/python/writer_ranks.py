"""A toy simulation on MPI ranks, for the tests of `atoll.Writer`: writer_ranks.py STORE CHECKPOINTS STEPS [WAIT]

Its particles change hands from step to step and from attempt to attempt, as in a simulation that is not
reproducible, so that rows of two attempts in one step would double some particles and lose others.
"""

import os
import signal
import sys
from pathlib import Path

import numpy
from mpi4py import MPI

import atoll

PARTICLES = 2_000
COLUMNS = {"pid": "int32", "step": "int32", "attempt": "int64", "rank": "int32", "x": "float64"}


def owners(attempt: int, step: int, size: int) -> numpy.ndarray:
    """Return the rank of each particle."""
    return numpy.random.default_rng((attempt, step)).integers(size, size=PARTICLES)


def main() -> None:
    """Compute to the last step."""
    comm, folder, steps = MPI.COMM_WORLD, Path(sys.argv[2]), int(sys.argv[3])
    wait_at = int(sys.argv[4]) if len(sys.argv) > 4 else steps + 1
    # Output of several ranks may be interleaved, so only the first one prints.
    for rank, process in enumerate(comm.gather(os.getpid()) or []):
        print(f"rank {rank} is process {process}", flush=True)
    table = atoll.open(sys.argv[1]).create_table("toy", COLUMNS, id=("pid", "step"), index=("x", "step"))
    with atoll.Writer(table, run="toy", comm=comm) as writer:
        checkpoint = writer.resume(folder / "state.{step}")
        step = 0 if checkpoint is None else int(checkpoint.path.read_text())
        # Fails if the name and content of the checkpoint disagree, or if it is past the last complete step.
        assert step <= (writer.last_complete or 0)
        if comm.rank == 0:
            print(f"attempt {writer.attempt} from {step}", flush=True)
        while step < steps:
            step += 1
            mine = numpy.flatnonzero(owners(writer.attempt, step, comm.size) == comm.rank)
            columns = {"pid": mine, "x": mine / PARTICLES, "attempt": numpy.full(len(mine), writer.attempt)}
            writer.step(step, step / 10, columns)
            if step % 10 == 0:
                with writer.checkpoint(folder / f"state.{step}") as unfinished:
                    if comm.rank == 0:
                        unfinished.write_text(str(step))
            if comm.rank == 0:
                print(f"step {step}", flush=True)
                if step >= wait_at:
                    # The process that kills this job may be slow.
                    signal.pause()
        writer.flush()


if __name__ == "__main__":
    main()
