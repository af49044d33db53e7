"""A start of `atoll.Writer` that does not find the checkpoint of its run replaces no step that the run has."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from test_writer_checkpoints import endings
from test_writer_ranks import Killed, keep, own, start
from test_writer_ranks import give as give_all

import atoll
from atoll import errors
from atoll._agreement import NOTED_MAX

Resume = Callable[[str | Path], object]


@pytest.fixture
def table(store) -> atoll.Table:
    """An empty table."""
    return store.create_table("run", {"pid": "int64", "step": "int64", "x": "float64"}, id=("pid", "step"), index="x")


def rows() -> dict[str, numpy.ndarray]:
    """Make the rows of a step."""
    return {"pid": numpy.arange(10), "x": numpy.full(10, 0.5)}


def crash_after(table: atoll.Table, folder: Path, *steps: int, kept: int = 1_000) -> None:
    """Run a start that names checkpoints of these steps, keeps the newest `kept`, and gives one step more."""
    with atoll.Writer(table, "a") as writer:
        writer.resume(folder / "state.{step}")
        for number, step in enumerate(steps):
            writer.step(step, None, rows())
            keep(writer, folder / f"state.{step}")
            if number >= kept:
                (folder / f"state.{steps[number - kept]}").unlink()
        writer.step(steps[-1] + 1, None, rows())


def alone(table: atoll.Table) -> Resume:
    """Return a function that resumes as a single process does."""

    def resume(pattern: str | Path) -> object:
        with atoll.Writer(table, "a") as writer:
            return writer.resume(pattern)

    return resume


def together(table: atoll.Table) -> Resume:
    """Return a function that resumes as ranks with a communicator do; all of them get the same answer."""

    def resume(pattern: str | Path) -> object:
        told: list[object] = [None, None]

        def work(writer: atoll.Writer) -> None:
            told[writer.rank] = writer.resume(pattern)

        first, second = endings(table, work)
        assert told[0] == told[1]
        assert (type(first), str(first)) == (type(second), str(second))
        if first is None:
            return told[0]
        assert first.hint == second.hint
        raise first

    return resume


@pytest.fixture(params=[alone, together])
def resume(request, table) -> Resume:
    """The ways in which a later start asks what it resumes from."""
    return request.param(table)


def refused(resume: Resume, pattern: str | Path) -> errors.ConflictError:
    """Return the error of a start that does not find its checkpoint."""
    with pytest.raises(errors.ConflictError) as raised:
        resume(pattern)
    return raised.value


@pytest.mark.parametrize("is_mounted", [True, False])
def test_a_disk_that_is_not_there_and_a_mistyped_name_take_nothing_back(table, resume, tmp_path: Path, is_mounted: bool):
    folder, away = tmp_path / "restart", tmp_path / "away"
    crash_after(table, folder, 10, 20)
    folder.rename(away)
    if is_mounted:
        # The mount point of a missing disk is an empty folder.
        folder.mkdir()
    told = refused(resume, folder / "state.{step}")
    assert "step 20" in str(told) and str(folder / "state.20") in str(told)
    assert "mount" in told.hint and "table.delete(run='a')" in told.hint
    assert "correct the pattern" in refused(resume, away / "stat.{step}").hint
    if is_mounted:
        folder.rmdir()
    away.rename(folder)
    assert resume(folder / "state.{step}") == (20, folder / "state.20")
    assert sorted(file.name for file in folder.iterdir()) == ["state.10", "state.20"]


def test_who_deletes_the_steps_begins_again(table, resume, tmp_path: Path):
    crash_after(table, tmp_path / "gone", 10, 20)
    shutil.rmtree(tmp_path / "gone")
    refused(resume, tmp_path / "state.{step}")
    table.delete(run="a")
    assert resume(tmp_path / "state.{step}") is None
    crash_after(table, tmp_path / "gone", 10)
    shutil.rmtree(tmp_path / "gone")
    # The same if the steps are deleted by their numbers.
    table.delete(run="a", steps=(0, 100))
    assert resume(tmp_path / "state.{step}") is None


def test_a_pattern_that_was_never_that_of_the_files_begins_nothing_again(table, resume, tmp_path: Path):
    with atoll.Writer(table, "a") as writer:
        assert writer.resume(tmp_path / "stat.{step}") is None
        writer.step(10, None, rows())
        keep(writer, tmp_path / "state.10")
    refused(resume, tmp_path / "stat.{step}")
    assert resume(tmp_path / "state.{step}").step == 10


def test_ranks_with_a_communicator_note_what_they_name(table, tmp_path: Path):
    def work(writer: atoll.Writer) -> None:
        writer.step(10, None, {"pid": numpy.arange(10) + 10 * writer.rank, "x": numpy.full(10, 0.5)})
        with writer.checkpoint(tmp_path / "restart" / "state.10") as unfinished:
            unfinished.touch()

    assert endings(table, work) == [None, None]
    (tmp_path / "restart").rename(tmp_path / "away")
    for asks in (alone(table), together(table)):
        refused(asks, tmp_path / "restart" / "state.{step}")
        assert asks(tmp_path / "away" / "state.{step}").step == 10


def test_who_removes_the_newest_one_goes_on_from_an_earlier_one_at_the_next_start(table, resume, tmp_path: Path):
    crash_after(table, tmp_path, 10, 20, 30)
    (tmp_path / "state.30").unlink()
    assert "the next start resumes" in refused(resume, tmp_path / "state.{step}").hint
    assert resume(tmp_path / "state.{step}").step == 20


def test_a_job_that_starts_again_under_its_id_goes_on_as_well(table, tmp_path: Path):
    crash_after(table, tmp_path, 10, 20)
    (tmp_path / "state.20").unlink()

    def job(pattern: Path) -> object:
        with atoll.Writer(table, "a", attempt="81234") as writer:
            return writer.resume(pattern)

    refused(job, tmp_path / "state.{step}")
    assert job(tmp_path / "state.{step}").step == 10


def test_a_checkpoint_that_was_named_and_not_noted_counts_for_one_process(table, resume, tmp_path: Path):
    crash_after(table, tmp_path, 10)
    with pytest.MonkeyPatch.context() as patch, atoll.Writer(table, "a") as writer:
        writer.step(20, None, rows())
        patch.setattr("atoll._agreement.Agreement.note", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed), writer.checkpoint(tmp_path / "state.20") as unfinished:
            unfinished.touch()
    assert resume(tmp_path / "state.{step}").step == 20
    # From this start on, the checkpoint is looked for.
    (tmp_path / "state.20").rename(tmp_path / "kept")
    refused(resume, tmp_path / "state.{step}")


def test_a_checkpoint_that_has_no_name_yet_is_not_looked_for(table, resume, tmp_path: Path):
    crash_after(table, tmp_path, 10)
    with atoll.Writer(table, "a") as writer:
        writer.step(20, None, rows())
        keep(writer, tmp_path / "state.20", is_killed=True)
    assert resume(tmp_path / "state.{step}").step == 10


def test_who_names_checkpoints_alone_is_asked_nothing(table, resume, tmp_path: Path):
    for step in (10, 20):
        (tmp_path / f"state.{step}").touch()
    with atoll.Writer(table, "a") as writer:
        writer.step(15, None, rows())
    assert resume(tmp_path / "state.{step}").step == 10
    assert (tmp_path / "state.20.superseded").exists()
    # Only what the writer named is looked for, as in runs of older builds, which noted nothing.
    (tmp_path / "state.10").unlink()
    assert resume(tmp_path / "state.{step}") is None
    assert table._native.rank_notes("a", 100) == {}


def test_an_older_start_that_noted_nothing_is_gone_on_with(table, resume, tmp_path: Path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll._agreement.Agreement.note", lambda *_: None)
        crash_after(table, tmp_path, 10, 20)
    assert resume(tmp_path / "state.{step}").step == 20
    with atoll.Writer(table, "a") as writer:
        writer.step(30, None, rows())
        keep(writer, tmp_path / "state.30")
    assert resume(tmp_path / "state.{step}").step == 30


def test_what_is_kept_beside_the_checkpoints_is_not_looked_for(table, resume, tmp_path: Path):
    crash_after(table, tmp_path, 10, 20)
    with atoll.Writer(table, "a") as writer:
        assert writer.resume(tmp_path / "state.{step}").step == 20
        writer.step(25, None, rows())
        keep(writer, tmp_path / "final")
    assert resume(tmp_path / "state.{step}").step == 20


def test_where_the_last_steps_are_deleted_an_earlier_checkpoint_is_taken_or_missed(table, resume, tmp_path: Path):
    steps = range(10, 10 * (NOTED_MAX + 20), 10)
    crash_after(table, tmp_path, *steps, kept=NOTED_MAX + 10)
    # The notes no longer have this one, only that there were some.
    table.delete(run="a", steps=(151, None))
    assert resume(tmp_path / "state.{step}").step == 150
    [(tmp_path / file).unlink() for file in tmp_path.glob("state.*0")]
    told = refused(resume, tmp_path / "state.{step}")
    assert "step 150" in str(told)


def test_what_was_forgotten_is_missed_all_the_same(table, resume, tmp_path: Path):
    crash_after(table, tmp_path, *range(10, 10 * (NOTED_MAX + 20), 10), kept=2)
    table.delete(run="a", steps=(100, None))
    assert "step 10" in str(refused(resume, tmp_path / "state.{step}"))
    table.delete(run="a", steps=(10, None))
    assert resume(tmp_path / "state.{step}") is None


@pytest.mark.parametrize("is_killed", [False, True])
def test_ranks_that_forgot_their_checkpoints_begin_nothing_again(table, tmp_path: Path, is_killed: bool):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll._agreement.NOTED_MAX", 2)
        writers = start(table, 1)
        [writer.resume(own(tmp_path, writer.rank)) for writer in writers]
        for step in (10, 20, 30, 40):
            give_all(writers, step)
            for writer in writers:
                keep(writer, tmp_path / f"state.{step}.{writer.rank}", is_killed=is_killed and (step, writer.rank) == (40, 1))
            [file.unlink() for file in tmp_path.glob(f"state.{step - 20}.*")]
    # The first rank remembers one checkpoint more, since the second was killed.
    table.delete(run="a", steps=(25, None))
    for attempt in (2, 3):
        for writer in start(table, attempt):
            with pytest.raises(errors.ConflictError, match="step 10"):
                writer.resume(own(tmp_path, writer.rank))
    table.delete(run="a")
    assert [writer.resume(own(tmp_path, writer.rank)) for writer in start(table, 4)] == [None, None]


def test_an_earlier_file_that_nobody_noted_is_one_all_the_same(table, resume, tmp_path: Path):
    crash_after(table, tmp_path, 10, 20, 30)
    for step in (10, 20, 30):
        (tmp_path / f"state.{step}").unlink()
    (tmp_path / "state.15").touch()
    refused(resume, tmp_path / "none.{step}")
    assert "the next start" in refused(resume, tmp_path / "state.{step}").hint
    assert resume(tmp_path / "state.{step}").step == 15


def test_ranks_of_which_each_lost_what_the_other_has_begin_nothing_again(table, tmp_path: Path):
    writers = start(table, 1)
    for step in (10, 20, 30):
        give_all(writers, step)
        [keep(writer, tmp_path / f"state.{step}.{writer.rank}") for writer in writers]
    for gone in ("state.30.0", "state.20.0", "state.30.1", "state.10.1"):
        (tmp_path / gone).rename(tmp_path / f"kept.{gone}")
    for attempt in (2, 3, 4):
        for writer in start(table, attempt):
            with pytest.raises(errors.ConflictError) as raised:
                writer.resume(own(tmp_path, writer.rank))
            assert attempt == 2 or "bring it back" in raised.value.hint
    (tmp_path / "kept.state.20.0").rename(tmp_path / "state.20.0")
    for writer in start(table, 5)[:1]:
        with pytest.raises(errors.ConflictError):
            writer.resume(own(tmp_path, writer.rank))
    assert [writer.resume(own(tmp_path, writer.rank)).step for writer in start(table, 6)] == [20, 20]


@pytest.mark.parametrize("first", [0, 1])
def test_ranks_go_on_from_what_one_process_named_or_from_nothing(table, tmp_path: Path, first: int):
    crash_after(table, tmp_path, 10, 20)
    writers = start(table, 8)
    for rank in (first, 1 - first):
        with pytest.raises(errors.ConflictError):
            writers[rank].resume(own(tmp_path, rank))
    writers = start(table, 9)
    assert [writers[rank].resume(tmp_path / "state.{step}").step for rank in (first, 1 - first)] == [20, 20]
    give_all(writers, 30)
    [keep(writer, tmp_path / f"state.30.{writer.rank}") for writer in writers]
    writers = start(table, 10)
    assert [writers[rank].resume(own(tmp_path, rank)).step for rank in (first, 1 - first)] == [30, 30]


def test_one_process_goes_on_from_what_ranks_named_or_from_nothing(table, resume, tmp_path: Path):
    writers = start(table, 1)
    [writer.resume(own(tmp_path, writer.rank)) for writer in writers]
    for step in (10, 20):
        give_all(writers, step)
        [keep(writer, tmp_path / f"state.{step}.{writer.rank}") for writer in writers]
    refused(resume, tmp_path / "state.{step}")
    assert resume(own(tmp_path, 0)).step == 20


def test_ranks_begin_nothing_again_where_one_process_missed_what_one_named_for_all(table, resume, tmp_path: Path):
    pattern = tmp_path / "state.{step}"
    writers = start(table, 1)
    assert [writer.resume(pattern) for writer in writers] == [None, None]
    give_all(writers, 10)
    keep(writers[0], tmp_path / "state.10")
    (tmp_path / "state.10").rename(tmp_path / "state.0")
    refused(resume, pattern)
    for writer in start(table, 9):
        with pytest.raises(errors.ConflictError):
            writer.resume(pattern)


@pytest.mark.parametrize("first", [0, 1])
def test_what_is_there_again_is_there_for_all_ranks_of_the_next_start(table, tmp_path: Path, first: int):
    writers = start(table, 1)
    for step in (10, 20, 30):
        give_all(writers, step)
        [keep(writer, tmp_path / f"state.{step}.{writer.rank}") for writer in writers]
    lost = ("30.0", "20.0", "30.1", "10.1")
    [(tmp_path / f"state.{name}").rename(tmp_path / f"kept.{name}") for name in lost]

    def begin(attempt: int) -> list[object]:
        again, told = start(table, attempt), []
        for rank in (first, 1 - first):
            try:
                told.append(again[rank].resume(own(tmp_path, rank)).step)
            except errors.ConflictError:
                told.append("refused")
        return told

    assert begin(2) == ["refused", "refused"]
    (tmp_path / "kept.20.0").rename(tmp_path / "state.20.0")
    # The rank that asks first notes that its checkpoint is there; that changes nothing for the rank that asks after it.
    assert begin(3) == ["refused", "refused"]
    assert begin(4) == [20, 20]
    [(tmp_path / f"state.20.{rank}").rename(tmp_path / f"kept.20.{rank}") for rank in (0, 1)]
    assert begin(5) == begin(6) == ["refused", "refused"]
    [(tmp_path / f"kept.20.{rank}").rename(tmp_path / f"state.20.{rank}") for rank in (0, 1)]
    assert begin(7) == [20, 20]
