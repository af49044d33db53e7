"""Ranks of `atoll.Writer` without a communicator, and what they still agree on, through the table."""

from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

import atoll
from atoll import errors
from atoll._agreement import Agreement
from atoll._checkpoints import finish

ROWS = 100


@pytest.fixture
def table(store) -> atoll.Table:
    """An empty table."""
    return store.create_table("run", {"pid": "int64", "step": "int64", "x": "float64"}, id=("pid", "step"), index="x")


def rows(rank: int) -> dict[str, numpy.ndarray]:
    """Make a rank's rows of a step."""
    return {"pid": numpy.arange(ROWS) + ROWS * rank, "x": numpy.full(ROWS, 0.5)}


def start(table: atoll.Table, attempt: int) -> list[atoll.Writer]:
    """Start the writers of two ranks."""
    return [atoll.Writer(table, "a", rank=rank, size=2, attempt=attempt) for rank in range(2)]


class Killed(BaseException):
    """The end of a job."""


def give(writers: list[atoll.Writer], step: int) -> None:
    """Give a step on all ranks."""
    for writer in writers:
        writer.step(step, None, rows(writer.rank))


def keep(writer: atoll.Writer, path: Path, *, is_killed: bool = False) -> None:
    """Write a rank's checkpoint; or kill the job just before it has its name."""
    with pytest.MonkeyPatch.context() as patch:
        if is_killed:
            patch.setattr("atoll.writer.finish", lambda *_: killed())
        try:
            with writer.checkpoint(path, timeout=30) as unfinished:
                unfinished.write_text("state")
        except Killed:
            assert is_killed


def killed() -> None:
    raise Killed


def own(folder: Path, rank: int) -> str:
    """Return the pattern of a rank's checkpoints."""
    return str(folder / f"state.{{step}}.{rank}")


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("resumes", [True, False])
def test_after_a_crash_between_two_names_all_ranks_go_on_from_the_one_that_all_have(
    table, tmp_path: Path, first: int, resumes: bool
):
    writers = start(table, 1)
    if resumes:
        assert [writer.resume(own(tmp_path, writer.rank)) for writer in writers] == [None, None]
    for step in (10, 20):
        give(writers, step)
        for rank in (0, 1):
            keep(writers[rank], tmp_path / f"state.{step}.{rank}", is_killed=(step, rank) == (20, 1))
    again = start(table, 2)
    chosen = {rank: again[rank].resume(own(tmp_path, rank)) for rank in (first, 1 - first)}
    assert {rank: checkpoint.step for rank, checkpoint in chosen.items()} == {0: 10, 1: 10}
    assert (tmp_path / "state.20.0.superseded").exists()
    give(again, 20)
    for writer in again:
        keep(writer, tmp_path / f"state.20.{writer.rank}")
    third = start(table, 3)
    assert [writer.resume(own(tmp_path, writer.rank)).step for writer in third] == [20, 20]


class Native:
    """The native half of a table that counts reads of the notes of all ranks, and remembers what was noted."""

    def __init__(self, native: object) -> None:
        self._asked, self.scans, self.kept = native, 0, ""

    def rank_notes(self, run: str, attempt: int) -> dict[int, str]:
        self.scans += 1
        return self._asked.rank_notes(run, attempt)

    def set_rank_notes(self, text: str, run: str, attempt: int, rank: int) -> None:
        self.kept = text
        self._asked.set_rank_notes(text, run, attempt, rank)


def test_a_checkpoint_costs_the_note_of_its_own_rank_and_not_those_of_all(table, tmp_path: Path):
    native = Native(table._native)
    agreement = Agreement(SimpleNamespace(_native=native), "a", 1, 0, 1_000)
    agreement.begin(None)
    agreement.resume(own(tmp_path, 0), None)
    native.scans = 0
    for step in range(200):
        agreement.note(tmp_path / f"state.{step}.0", step)
    assert native.scans == 0 and len(native.kept) < 10_000
    assert "state.199.0" in native.kept and "state.190.0" in native.kept
    # Later steps of earlier attempts do not keep a new attempt from noting.
    again = Agreement(SimpleNamespace(_native=native), "a", 2, 0, 1_000)
    again.begin(199)
    again.note(tmp_path / "state.3.0", 3)
    assert "state.3.0" in native.kept and "state.199.0" not in native.kept


def test_notes_of_very_long_paths_are_fewer_and_the_newest_stay(table, tmp_path: Path):
    native = Native(table._native)
    agreement = Agreement(SimpleNamespace(_native=native), "a", 1, 0, 1_000)
    agreement.begin(None)
    folder = tmp_path / ("d" * 12_000)
    for step in range(12):
        for kind in "abcdefghij":
            agreement.note(folder / f"{kind}.{step}", step)
    # All of them would take 1.4 MB, more than the table takes.
    assert len(native.kept) < 1 << 20
    for kept in ("a.0", "j.0", "a.11", "j.11", "j.10"):
        assert f"/{kept}\"" in native.kept


@pytest.mark.parametrize("first", [0, 1])
def test_where_a_rank_has_named_none_all_begin_again(table, tmp_path: Path, first: int):
    writers = start(table, 1)
    [writer.resume(own(tmp_path, writer.rank)) for writer in writers]
    give(writers, 10)
    for rank in (0, 1):
        keep(writers[rank], tmp_path / f"state.10.{rank}", is_killed=rank == 1)
    again = start(table, 2)
    assert [again[rank].resume(own(tmp_path, rank)) for rank in (first, 1 - first)] == [None, None]


def test_ranks_in_folders_of_their_own_share_no_names(table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folders = [tmp_path / str(rank) for rank in range(2)]
    [folder.mkdir() for folder in folders]

    def resumed(writer: atoll.Writer) -> object:
        monkeypatch.chdir(folders[writer.rank])
        return writer.resume("restart.{step}")

    writers = start(table, 1)
    [resumed(writer) for writer in writers]
    give(writers, 10)
    for writer in writers:
        monkeypatch.chdir(folders[writer.rank])
        keep(writer, Path("./restart.10"), is_killed=writer.rank == 1)
    assert [resumed(writer) for writer in start(table, 2)] == [None, None]


def test_one_rank_may_name_checkpoints_for_all(table, tmp_path: Path):
    pattern = tmp_path / "state.{step}"
    writers = start(table, 1)
    [writer.resume(pattern) for writer in writers]
    for step in (10, 20):
        give(writers, step)
        keep(writers[0], tmp_path / f"state.{step}")
    again = start(table, 2)
    assert [writer.resume(pattern) for writer in again] == [(20, tmp_path / "state.20")] * 2


def crash_after(table: atoll.Table, folder: Path, *steps: int) -> None:
    """Run the first attempt: all ranks name their checkpoints of some steps."""
    writers = start(table, 1)
    [writer.resume(own(folder, writer.rank)) for writer in writers]
    for step in steps:
        give(writers, step)
        for writer in writers:
            keep(writer, folder / f"state.{step}.{writer.rank}")


@pytest.mark.parametrize("removed", ["state.20.1", "state.20.*"])
def test_who_removes_checkpoints_goes_on_from_an_earlier_one_at_the_next_start_but_one(
    table, tmp_path: Path, removed: str
):
    crash_after(table, tmp_path, 10, 20)
    [file.unlink() for file in tmp_path.glob(removed)]
    again, ended = start(table, 2), []
    # Several times in one attempt: what one rank notes changes nothing for the others in it.
    for writer in [again[1], *again, *again]:
        try:
            ended.append(writer.resume(own(tmp_path, writer.rank)).step)
        except errors.ConflictError as error:
            assert "the next start" in error.hint
            ended.append(None)
    first = 20 if removed == "state.20.1" else None
    assert ended == [None, first, None, first, None]
    assert [writer.resume(own(tmp_path, writer.rank)).step for writer in start(table, 3)] == [10, 10]


def test_who_removes_all_checkpoints_begins_again_once_the_steps_are_deleted(table, tmp_path: Path):
    crash_after(table, tmp_path, 10, 20)
    [file.unlink() for file in tmp_path.glob("state.*")]
    for attempt in (2, 3):
        refuses(table, attempt, tmp_path)
    table.delete(run="a")
    assert [writer.resume(own(tmp_path, writer.rank)) for writer in start(table, 4)] == [None, None]


def refuses(table: atoll.Table, attempt: int, folder: Path) -> None:
    """Check that ranks that do not find their checkpoints resume from none, and that the error has a remedy."""
    for writer in start(table, attempt):
        with pytest.raises(errors.ConflictError, match="no checkpoint") as raised:
            writer.resume(own(folder, writer.rank))
        assert "delete the steps of the run" in raised.value.hint


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("last", [20, 10])
@pytest.mark.parametrize("mistyped", [1, 2])
def test_a_pattern_that_is_not_that_of_the_one_rank_that_names_takes_nothing_back(
    table, tmp_path: Path, mistyped: int, last: int, first: int
):
    wrong, right = tmp_path / "stat.{step}", tmp_path / "state.{step}"
    writers = start(table, 1)
    assert [writer.resume(wrong) for writer in writers] == [None, None]
    for step in (10, 20):
        give(writers, step)
        keep(writers[0], tmp_path / f"state.{step}")
    for attempt in range(2, mistyped + 1):
        for writer in start(table, attempt):
            with pytest.raises(errors.ConflictError, match="no checkpoint of it at .*stat.{step}"):
                writer.resume(wrong)
    if last < 20:
        # If the second step is deleted, there still were two checkpoints, also for ranks that ask later.
        table.delete(run="a", steps=(last + 1, None))
    again = start(table, mistyped + 1)
    assert [again[rank].resume(right).step for rank in (first, 1 - first)] == [last, last]
    assert sorted(tmp_path.glob("state.*0")) == [tmp_path / f"state.{step}" for step in (10, 20) if step <= last]


@pytest.mark.parametrize("first", [0, 1])
def test_what_is_gone_for_one_of_the_ranks_that_share_a_name_is_gone_for_all(table, tmp_path: Path, first: int):
    pattern = tmp_path / "state.{step}"
    writers = start(table, 1)
    [writer.resume(pattern) for writer in writers]
    for step in (10, 20):
        give(writers, step)
        keep(writers[0], tmp_path / f"state.{step}")
    again = start(table, 2)
    assert again[0].resume(pattern).step == 20
    # As if the second rank did not see the disk of the first.
    (tmp_path / "state.20").rename(tmp_path / "kept")
    with pytest.raises(errors.ConflictError):
        again[1].resume(pattern)
    (tmp_path / "kept").rename(tmp_path / "state.20")
    third = start(table, 3)
    assert [third[rank].resume(pattern).step for rank in (first, 1 - first)] == [10, 10]
    # Once it is computed and named again it is there, also for the rank that names none.
    give(third, 20)
    keep(third[0], tmp_path / "state.20")
    fourth = start(table, 4)
    assert [fourth[rank].resume(pattern).step for rank in (first, 1 - first)] == [20, 20]


@pytest.mark.parametrize("is_mounted", [True, False])
def test_a_disk_that_is_not_there_and_a_mistyped_name_take_nothing_back(table, tmp_path: Path, is_mounted: bool):
    folder, away = tmp_path / "restart", tmp_path / "away"
    crash_after(table, folder, 10, 20)
    folder.rename(away)
    if is_mounted:
        # The mount point of a missing disk is an empty folder.
        folder.mkdir()
    refuses(table, 2, folder)
    refuses(table, 3, tmp_path / "restrat")
    if is_mounted:
        folder.rmdir()
    away.rename(folder)
    assert [writer.resume(own(folder, writer.rank)).step for writer in start(table, 4)] == [20, 20]


@pytest.mark.parametrize("first", [0, 1])
def test_a_rank_that_names_none_and_never_asked_goes_on_from_that_of_another(table, tmp_path: Path, first: int):
    pattern = tmp_path / "state.{step}"
    writers = start(table, 1)
    give(writers, 10)
    keep(writers[0], tmp_path / "state.10")
    again = start(table, 2)
    assert [again[rank].resume(pattern).step for rank in (first, 1 - first)] == [10, 10]


@pytest.mark.parametrize("first", [0, 1])
def test_how_files_are_called_from_now_on_changes_nothing_for_ranks_that_ask_later(table, tmp_path: Path, first: int):
    writers = start(table, 1)
    [writer.resume(own(tmp_path, writer.rank)) for writer in writers]
    give(writers, 10)
    keep(writers[0], tmp_path / "state.10.0")
    # The second rank has none; in the next attempt it asks with the first rank's pattern.
    again = start(table, 2)
    assert [again[rank].resume(own(tmp_path, 0)) for rank in (first, 1 - first)] == [None, None]


def test_ranks_that_come_to_share_one_file_go_on_from_it(table, tmp_path: Path):
    crash_after(table, tmp_path, 10)
    table.delete(run="a")
    pattern = tmp_path / "state.{step}"
    writers = start(table, 2)
    assert [writer.resume(pattern) for writer in writers] == [None, None]
    give(writers, 10)
    keep(writers[0], tmp_path / "state.10")
    assert [writer.resume(pattern).step for writer in start(table, 3)] == [10, 10]


@pytest.mark.parametrize("step", [20, 30])
def test_a_checkpoint_before_the_first_step_of_a_start_changes_nothing_for_ranks_that_ask_later(
    table, tmp_path: Path, step: int
):
    crash_after(table, tmp_path, 10, 20)
    for attempt in (2, 3):
        first, second = start(table, attempt)
        assert first.resume(own(tmp_path, 0)).step == 20
        # As if the checkpoint were at the top of the loop: an earlier start gave the step that it is of.
        keep(first, tmp_path / f"state.{step}.0")
        assert second.resume(own(tmp_path, 1)).step == 20
        assert not (tmp_path / "state.20.1.superseded").exists()
    give([first, second], 40)
    [keep(writer, tmp_path / f"state.40.{writer.rank}") for writer in (first, second)]
    assert [writer.resume(own(tmp_path, writer.rank)).step for writer in start(table, 4)] == [40, 40]


@pytest.mark.parametrize("suffix", ["", ".{rank}"])
def test_ranks_that_name_what_they_begin_with_begin_together(table, tmp_path: Path, suffix: str):
    for attempt in (1, 2, 3):
        writers = start(table, attempt)
        for writer in writers:
            # If they share names, the second rank sets aside a file that it cannot know to be of this start.
            name = f"state.{{}}{suffix.format(rank=writer.rank)}"
            assert writer.resume(tmp_path / name.format("{step}")) is None
            if writer.rank == 0:
                keep(writer, tmp_path / name.format(0))
        give(writers, 5)
        [writer.flush(timeout=30) for writer in writers]


@pytest.mark.parametrize("overtaken", ["atoll.Table._sync", "atoll.writer.finish"])
def test_an_attempt_that_was_replaced_names_and_notes_no_checkpoint_any_more(table, tmp_path: Path, overtaken: str):
    crash_after(table, tmp_path, 10)
    writers, later = start(table, 2), []
    [writer.resume(own(tmp_path, writer.rank)) for writer in writers]
    give(writers, 20)
    with pytest.MonkeyPatch.context() as patch:
        works = atoll.Table._sync if overtaken == "atoll.Table._sync" else finish

        def slow(*given: object) -> None:
            works(*given)
            later.extend(start(table, 3))

        patch.setattr(overtaken, slow)
        with pytest.raises(errors.ConflictError, match="attempt 3"):
            keep(writers[0], tmp_path / "state.20.0")
    assert (tmp_path / "state.20.0").exists() == (works is finish)
    assert [writer.resume(own(tmp_path, writer.rank)).step for writer in later] == [10, 10]
    assert '"20"' not in str(table._native.rank_notes("a", 3))


def test_ranks_of_a_later_attempt_are_answered_alike_while_one_that_it_replaced_still_notes(table, tmp_path: Path):
    crash_after(table, tmp_path, 10)
    writers, chosen = start(table, 2), []
    [writer.resume(own(tmp_path, writer.rank)) for writer in writers]
    give(writers, 20)
    keep(writers[0], tmp_path / "state.20.0")
    with pytest.MonkeyPatch.context() as patch:
        note = Agreement.note

        def late(*given: object) -> None:
            # The rank looked while current; before it writes its note, a later attempt begins and its first rank asks.
            later = start(table, 3)
            chosen.extend([later, later[0].resume(own(tmp_path, 0))])
            note(*given)

        patch.setattr(Agreement, "note", late)
        with pytest.raises(errors.ConflictError, match="attempt 3"):
            keep(writers[1], tmp_path / "state.20.1")
    later, first = chosen
    assert [first.step, later[1].resume(own(tmp_path, 1)).step] == [10, 10]


def test_checkpoints_of_one_step_of_two_attempts_are_not_taken_together(table, tmp_path: Path):
    crash_after(table, tmp_path, 10, 20)
    # Without resume, so that no rank sets aside the existing files.
    writers = start(table, 2)
    give(writers, 20)
    for rank in (0, 1):
        keep(writers[rank], tmp_path / f"state.20.{rank}", is_killed=rank == 1)
    assert [writer.resume(own(tmp_path, writer.rank)).step for writer in start(table, 3)] == [10, 10]


def test_a_rank_whose_checkpoint_was_removed_says_so(table, tmp_path: Path):
    writers = start(table, 1)
    give(writers, 10)
    for writer in writers:
        keep(writer, tmp_path / f"state.10.{writer.rank}")
    (tmp_path / "state.10.1").unlink()
    again = start(table, 2)
    assert again[0].resume(own(tmp_path, 0)).step == 10
    with pytest.raises(errors.ConflictError, match="rank 1 has no checkpoint"):
        again[1].resume(own(tmp_path, 1))


@pytest.mark.parametrize("resumes", [True, False])
def test_a_first_checkpoint_that_was_named_and_not_noted_is_nobodys(table, tmp_path: Path, resumes: bool):
    writers = start(table, 1)
    if resumes:
        [writer.resume(own(tmp_path, writer.rank)) for writer in writers]
    give(writers, 10)
    [writer.flush(timeout=30) for writer in writers]
    # As a kill between the name and the note leaves it.
    (tmp_path / "state.10.0").touch()
    assert [writer.resume(own(tmp_path, writer.rank)) for writer in start(table, 2)] == [None, None]


def test_checkpoints_of_ranks_that_noted_nothing_are_taken_as_they_are(table, tmp_path: Path):
    with pytest.MonkeyPatch.context() as patch:
        # As with a communicator, and as in earlier builds.
        patch.setattr("atoll._agreement.Agreement._keep", lambda *_: None)
        give(writers := start(table, 1), 10)
        [writer.flush(timeout=30) for writer in writers]
    for rank in (0, 1):
        (tmp_path / f"state.10.{rank}").touch()
    # They note then what they resume from, so that the next start does as well.
    for attempt in (2, 3):
        assert [writer.resume(own(tmp_path, writer.rank)).step for writer in start(table, attempt)] == [10, 10]


def test_what_ranks_noted_that_a_copy_of_an_older_version_does_not_have_is_nobodys(table, tmp_path: Path):
    for attempt in (7, 1):
        # The notes of a later attempt, which were copied too, and those of the attempt that the copy continues from.
        for rank in (0, 1):
            Agreement(table, "a", attempt, rank, 2).begin(None)
    (tmp_path / "state.10.0").touch()
    for rank in (0, 1):
        assert Agreement(table, "a", 2, rank, 2).resume(own(tmp_path, rank), 10) is None


def test_no_rank_passes_over_a_step_that_another_gave(table):
    writers = start(table, 1)
    writers[0].step(5, None, rows(0))
    with pytest.raises(errors.TimedOutError):
        writers[0].flush(timeout=0.1)
    writers[1].step(6, None, rows(1))
    with pytest.raises(errors.InvalidInputError, match="step 5 of run .* can never be complete") as raised:
        writers[1].flush(timeout=30)
    assert "length 0" in raised.value.hint
    third = start(table, 2)
    third[1].step(6, None, rows(1))
    with pytest.raises(errors.TimedOutError):
        third[1].flush(timeout=0.1)
    third[0].step(5, None, rows(0))
    with pytest.raises(errors.InvalidInputError, match="rank 1 goes on to step 6"):
        third[0].flush(timeout=30)
