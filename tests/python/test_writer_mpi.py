"""`atoll.Writer` on real MPI ranks, started by the environment's `mpiexec` and killed with -9."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy
import pytest
from writer_ranks import PARTICLES, owners

import atoll

RANKS = Path(__file__).with_name("writer_ranks.py")
AIRWAY = Path(__file__).parents[2] / "examples/airway"
MPIEXEC = Path(sys.prefix) / "bin/mpiexec"
KILLED = "signal 9"
"""What mpiexec says of a rank that ended with -9."""
STEPS = 60
PATIENCE_SECONDS = 300


def job(program: Path, *words: object) -> subprocess.Popen:
    """Two ranks of a program, whose output lines arrive as they are printed."""
    command = [MPIEXEC, "-n", "2", sys.executable, "-m", "mpi4py", program, *map(str, words)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
    # In a process group of its own, so that a failed test leaves nothing running.
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )


def run(program: Path, *words: object, kill: tuple[int, int] | None = None) -> list[str]:
    """What the job says to its end; `kill` is which rank ends with -9, and at which step.

    A job that was to be killed and ended by itself, before or in another way, is told from one that was killed.
    """
    started, said, processes, killed = job(program, *words), [], {}, False
    # One that hangs says nothing for ever.
    hung = threading.Timer(PATIENCE_SECONDS, os.killpg, (started.pid, signal.SIGKILL))
    hung.start()
    try:
        for line in started.stdout:
            said.append(line.rstrip())
            spoken = line.split()
            if spoken[:1] == ["rank"]:
                processes[int(spoken[1])] = int(spoken[-1])
            if kill is not None and not killed and spoken[:1] == ["step"] and int(spoken[1]) >= kill[1]:
                os.kill(processes[kill[0]], signal.SIGKILL)
                killed = True
        status = started.wait(60)
    finally:
        hung.cancel()
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
    said.append(f"ended with {status}")
    assert status != -signal.SIGKILL, f"no end after {PATIENCE_SECONDS} s: {said}"
    if kill is not None:
        assert killed and status != 0 and any(KILLED in line for line in said), said
    return said


@pytest.fixture(params=range(2))
def seed(request) -> int:
    """The first seed, printed when a test fails; `WRITER_SEEDS=17 pytest` begins with another one."""
    given = os.environ.get("WRITER_SEEDS")
    return int(given) + request.param if given else request.param


def test_two_ranks_write_one_table(tmp_path: Path):
    said = run(RANKS, tmp_path / "store", tmp_path, STEPS)
    assert said[-1] == "ended with 0", said
    with atoll.open(tmp_path / "store") as store:
        rows = store.table("toy").numpy()
    assert len(rows["pid"]) == STEPS * PARTICLES
    assert set(rows["rank"]) == {0, 1}


def test_a_job_that_ends_by_itself_is_not_taken_for_one_that_was_killed(tmp_path: Path):
    (tmp_path / "ends.py").write_text(
        "import os, sys\n"
        "from mpi4py import MPI\n"
        "print('rank', MPI.COMM_WORLD.rank, 'is', os.getpid(), flush=True)\n"
        "sys.exit(1)\n"
    )
    with pytest.raises(AssertionError, match="ended with"):
        run(tmp_path / "ends.py", kill=(0, 5))


def test_ranks_killed_again_and_again_lose_nothing_and_double_nothing(tmp_path: Path, seed: int):
    chance = random.Random(seed)
    print(f"seed {seed}; replay with WRITER_SEEDS={seed}")
    for _ in range(3):
        # A job that starts past that step dies at its first one.
        kill = (chance.randrange(2), chance.randrange(5, STEPS - 5))
        run(RANKS, tmp_path / "store", tmp_path, STEPS, kill[1] + 5, kill=kill)
    said = run(RANKS, tmp_path / "store", tmp_path, STEPS)
    assert said[-1] == "ended with 0", said
    with atoll.open(tmp_path / "store") as store:
        rows = store.table("toy").numpy()
    assert wrong_steps(rows) == []


def wrong_steps(rows: dict[str, numpy.ndarray]) -> list[str]:
    """Return the steps whose rows are not exactly those that one attempt computed."""
    wrong, attempts = [], []
    for step in range(1, STEPS + 1):
        here = {name: values[rows["step"] == step] for name, values in rows.items()}
        order = numpy.argsort(here["pid"])
        attempt = int(here["attempt"].max(initial=0))
        attempts.append(attempt)
        is_whole = numpy.array_equal(here["pid"][order], numpy.arange(PARTICLES)) and numpy.array_equal(
            here["rank"][order], owners(attempt, step, 2)
        )
        if not is_whole or set(here["attempt"]) != {attempt}:
            wrong.append(f"step {step}: {len(here['pid'])} rows of attempts {set(here['attempt'])}")
    if attempts != sorted(attempts) or len(rows["pid"]) != STEPS * PARTICLES:
        wrong.append(f"attempts {attempts}, {len(rows['pid'])} rows")
    return wrong


def test_what_rank_0_cannot_do_fails_on_every_rank(tmp_path: Path):
    (tmp_path / "fail.py").write_text(
        "import atoll\n"
        "from mpi4py import MPI\n"
        "def begin(*_, **__): raise atoll.errors.OutOfSpaceError('no space left')\n"
        "table = atoll.open('mem:').create_table('t', {'id': 'int64'}, id='id', index='id')\n"
        "table.begin = begin\n"
        "try:\n"
        "    atoll.Writer(table, 'run', comm=MPI.COMM_WORLD)\n"
        "except atoll.errors.OutOfSpaceError as error:\n"
        "    heard = MPI.COMM_WORLD.gather(str(error))\n"
        "    if MPI.COMM_WORLD.rank == 0: print(*heard, sep='\\n', flush=True)\n"
    )
    assert run(tmp_path / "fail.py") == ["no space left", "no space left", "ended with 0"]


def test_two_ranks_of_lammps_survive_a_kill(tmp_path: Path):
    words = ["--particles", 400, "--every", 20, "--checkpoint-every", 60]
    words = [tmp_path / "store", *words, "--checkpoints", tmp_path, "--ledger", tmp_path / "ledger"]
    # So many steps that it cannot end before it is killed, however late that is.
    killed = run(AIRWAY / "simulate.py", *words, "--steps", 1_000_000, kill=(1, 140))
    # Some frames more than a second attempt finds, however late the first one was killed.
    reached = [int(line.split()[1]) for line in killed if line.startswith("step ")]
    finished = run(AIRWAY / "simulate.py", *words, "--steps", max(reached) + 1000)
    assert finished[-1] == "ended with 0", finished
    assert any(line.startswith("attempt") and "from airway." in line for line in finished), finished
    proof = subprocess.run(
        [sys.executable, AIRWAY / "ledger.py", tmp_path / "store", tmp_path / "ledger"], capture_output=True, text=True
    )
    assert proof.returncode == 0, proof.stdout + proof.stderr
    with atoll.open(tmp_path / "store") as store:
        about = store.table("airway").run_attributes("airway")
    assert "read_restart" in about["deck"]
    assert "lammps 2" in about["attempt.1.versions"]
    assert "simulate.py" in about["attempt.2.command"]
