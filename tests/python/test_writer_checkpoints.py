"""Checkpoints of `atoll.Writer` that all ranks write together: threads stand for the ranks here."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

import atoll
from atoll import errors

ROWS = 100


@pytest.fixture
def table(store) -> atoll.Table:
    """An empty table."""
    return store.create_table("run", {"pid": "int64", "step": "int64", "x": "float64"}, id=("pid", "step"), index="x")


def rows(rank: int) -> dict[str, numpy.ndarray]:
    """Make a rank's rows of a step."""
    return {"pid": numpy.arange(ROWS) + ROWS * rank, "x": numpy.full(ROWS, 0.5)}


class Ranks:
    """The parts of an mpi4py communicator that the writer uses, for threads."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.said = size, threading.Barrier(size, timeout=60), [None] * size

    def of(self, rank: int) -> "Rank":
        return Rank(self, rank)


class Rank:
    def __init__(self, ranks: Ranks, rank: int) -> None:
        self._ranks, self._rank = ranks, rank

    def Get_rank(self) -> int:  # noqa: N802 - as MPI has it
        return self._rank

    def Get_size(self) -> int:  # noqa: N802
        return self._ranks.size

    def allgather(self, value):
        self._ranks.said[self._rank] = value
        self._ranks.barrier.wait()
        said = list(self._ranks.said)
        self._ranks.barrier.wait()
        return said

    def bcast(self, value, root: int = 0):
        return self.allgather(value)[root]


def endings(table: atoll.Table, work: Callable[[atoll.Writer], None], **named: object) -> list[BaseException | None]:
    """Return how the same work ends on each of two ranks; `named` are arguments of their writers."""
    ranks, ended = Ranks(2), [None, None]

    def run(rank: int) -> None:
        try:
            with atoll.Writer(table, "a", comm=ranks.of(rank), **named) as writer:
                work(writer)
        except BaseException as error:
            ended[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(2)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not any(thread.is_alive() for thread in threads), "nobody waits for one that went away"
    return ended


def test_a_checkpoint_that_fails_on_one_rank_fails_on_all_and_leaves_nobody_waiting(table, tmp_path: Path):
    def work(writer: atoll.Writer) -> None:
        writer.step(10, None, rows(writer.rank))
        with writer.checkpoint(tmp_path / "state.10"):
            pass  # Nobody wrote the file.

    assert [type(error) for error in endings(table, work)] == [FileNotFoundError, FileNotFoundError]


def test_ranks_that_write_one_checkpoint_name_one_file(table, tmp_path: Path):
    def work(writer: atoll.Writer) -> None:
        with writer.checkpoint(tmp_path / f"state.{writer.rank}") as unfinished:
            unfinished.touch()

    for error in endings(table, work):
        assert isinstance(error, errors.InvalidInputError) and "state.1" in str(error)
    assert list(tmp_path.glob("state*")) == []


@pytest.mark.parametrize("named", [{"deck": Path("no such deck")}, {"attributes": 7}])
def test_what_one_rank_alone_looks_at_fails_on_all(table, named: dict[str, object]):
    first, second = endings(table, lambda writer: writer.resume("state.{step}"), **named)
    assert first is not None and type(first) is type(second)


class Synced:
    """A table that remembers which files existed whenever its store was synced."""

    def __init__(self, table: atoll.Table, folder: Path) -> None:
        self._table, self._folder, self.seen = table, folder, []

    def _sync(self) -> None:
        self.seen.append(sorted(file.name for file in self._folder.iterdir()))
        self._table._sync()

    def __getattr__(self, name):
        return getattr(self._table, name)


def test_the_steps_of_a_checkpoint_are_on_the_disk_before_it_counts(table, tmp_path: Path):
    folder = tmp_path / "restart"
    folder.mkdir()
    synced = Synced(table, folder)

    def work(writer: atoll.Writer) -> None:
        writer.step(10, None, rows(writer.rank))
        with writer.checkpoint(folder / "state.10") as unfinished:
            if writer.rank == 0:
                unfinished.write_text("whole")

    assert endings(synced, work) == [None, None]
    assert synced.seen == [["state.10.unfinished"]]
    with atoll.Writer(synced, "b") as alone:
        alone.step(10, None, rows(0))
        with alone.checkpoint(folder / "state.11") as unfinished:
            unfinished.write_text("whole")
    assert synced.seen[1:] == [["state.10", "state.11.unfinished"]]


def test_folders_that_a_checkpoint_makes_are_on_the_disk_before_it_counts(table, tmp_path: Path):
    synced = []
    with pytest.MonkeyPatch.context() as patch, atoll.Writer(table, "a") as writer:
        patch.setattr("atoll._checkpoints._sync", synced.append)
        with writer.checkpoint(tmp_path / "restart" / "10" / "state") as unfinished:
            # The name of a folder is part of its parent folder.
            assert synced == [tmp_path / "restart", tmp_path]
            unfinished.touch()
        assert synced[2:] == [unfinished, tmp_path / "restart" / "10"]
        synced.clear()
        with writer.checkpoint(tmp_path / "restart" / "10" / "more") as unfinished:
            unfinished.touch()
        assert synced == [unfinished, tmp_path / "restart" / "10"]


def test_a_folder_is_a_checkpoint_with_all_that_the_ranks_write_into_it_now(table, tmp_path: Path):
    # Left by a killed start that had more ranks.
    left = tmp_path / "state.10.unfinished" / "deep"
    left.mkdir(parents=True)
    (left / "7").write_text("half")
    part, synced = left.parent, []

    def work(writer: atoll.Writer) -> None:
        writer.step(10, None, rows(writer.rank))
        with writer.checkpoint(tmp_path / "state.10") as unfinished:
            (unfinished / "deep").mkdir(parents=True, exist_ok=True)
            (unfinished / "deep" / str(writer.rank)).write_text("whole")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll._checkpoints._sync", lambda path: synced.append((path, part.exists())))
        assert endings(table, work) == [None, None]
    assert sorted(file.name for file in (tmp_path / "state.10" / "deep").iterdir()) == ["0", "1"]
    # All of its contents are synced before it has its name, and its parent folder after that.
    assert sorted(synced[:2]) == [(left / "0", True), (left / "1", True)]
    assert synced[2:] == [(left, True), (part, True), (tmp_path, False)]
    assert not part.exists()


@pytest.mark.parametrize("is_seen_late", [False, True])
def test_each_machine_syncs_what_its_ranks_wrote_before_a_checkpoint_counts(table, tmp_path: Path, is_seen_late: bool):
    part, ranks, synced = tmp_path / "state.10.unfinished", {}, []

    def work(writer: atoll.Writer) -> None:
        ranks[threading.current_thread()] = writer.rank
        writer.step(10, None, rows(writer.rank))
        with writer.checkpoint(tmp_path / "state.10") as unfinished:
            unfinished.mkdir(exist_ok=True)
            (unfinished / str(writer.rank)).write_text("whole")

    def sync(path: Path) -> None:
        rank = ranks[threading.current_thread()]
        # Other machines may list names that are gone, and not list new ones yet.
        if is_seen_late and rank == 1 and path in (part, part / "0"):
            raise FileNotFoundError(path)
        synced.append((rank, path, part.exists()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll.writer.machine", lambda: str(ranks[threading.current_thread()]))
        patch.setattr("atoll._checkpoints._sync", sync)
        assert endings(table, work) == [None, None]
    own = [(0, part / "0", True), (0, part / "1", True), (1, part / "1", True)]
    others = [] if is_seen_late else [(1, part / "0", True)]
    assert sorted(told for told in synced if told[1].parent == part) == sorted(own + others)
    assert synced[-1] == (0, tmp_path, False)


def test_links_and_pipes_in_a_folder_hold_nobody_up(table, tmp_path: Path):
    with atoll.Writer(table, "a") as writer, writer.checkpoint(tmp_path / "state.0") as unfinished:
        (unfinished / "own").mkdir(parents=True)
        (unfinished / "nowhere").symlink_to(tmp_path / "nowhere")
        (unfinished / "around").symlink_to(tmp_path)
        os.mkfifo(unfinished / "pipe")
    assert sorted(file.name for file in (tmp_path / "state.0").iterdir()) == ["around", "nowhere", "own", "pipe"]


class Odd(Exception):  # noqa: N818
    """An error that cannot be pickled: it holds something that no other process could have."""

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__("odd")
        self.lock = lock


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ZeroDivisionError("no force"), ZeroDivisionError),
        (Odd(threading.Lock()), errors.UnavailableError),
        (SystemExit(3), errors.UnavailableError),
    ],
)
def test_a_body_that_fails_on_one_rank_fails_on_all_with_the_rank(table, tmp_path: Path, failure, told):
    def work(writer: atoll.Writer) -> None:
        if writer.rank == 0:
            writer.step(10, None, rows(0))
        # Rank 1 has not even given its step, so no rank may wait for it.
        with writer.checkpoint(tmp_path / "state.10") as unfinished:
            if writer.rank == 1:
                raise failure
            unfinished.write_text("half")

    first, second = endings(table, work)
    assert second is failure
    assert type(first) is told and "on rank 1" in first.__notes__
    assert not (tmp_path / "state.10").exists()


def test_a_checkpoint_without_a_place_on_one_rank_begins_on_none(table, tmp_path: Path):
    (tmp_path / "file").touch()
    began = []

    def work(writer: atoll.Writer) -> None:
        writer.step(10, None, rows(writer.rank))
        with writer.checkpoint(tmp_path / ("file" if writer.rank == 1 else "folder") / "state.10"):
            began.append(writer.rank)

    assert [isinstance(error, OSError) for error in endings(table, work)] == [True, True]
    assert began == []


def test_a_checkpoint_counts_though_somebody_closed_the_store(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "results") as store:
        table = store.create_table("run", {"pid": "int64", "step": "int64", "x": "float64"}, id=("pid", "step"), index="x")
    with atoll.Writer(table, run="r") as writer:
        writer.step(1, 0.1, rows(0))
        with writer.checkpoint(tmp_path / "state.1") as part:
            part.touch()
    assert (tmp_path / "state.1").exists()
