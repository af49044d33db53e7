"""Files that `atoll.Writer` keeps aside from the checkpoints of `resume` never change what a start resumes from."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_writer_not_found import Resume, refused, resume, rows, table  # noqa: F401 - fixtures
from test_writer_ranks import Native, give, keep, own, start

import atoll
from atoll import errors
from atoll._agreement import Agreement

#: The number of checkpoints that are remembered in these tests.
NOTED_MAX = 4
MANY = NOTED_MAX + 1


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll._agreement.NOTED_MAX", NOTED_MAX)


def told(table: atoll.Table, attempt: int, folder: Path, first: int = 0) -> list[int | None]:
    """Let two ranks resume, each from its own checkpoints, rank `first` first; return the step of each rank."""
    writers, chosen = start(table, attempt), {}
    for rank in (first, 1 - first):
        chosen[rank] = writers[rank].resume(own(folder, rank))
    return [None if chosen[rank] is None else chosen[rank].step for rank in (0, 1)]


def run_alone(table: atoll.Table, folder: Path, names: Callable[[int], list[str]], *, until: int, resumes: bool) -> None:
    """Run a first start of one process, which names these files after each step."""
    with atoll.Writer(table, "a") as writer:
        if resumes:
            assert writer.resume(folder / "state.{step}") is None
        for step in range(1, until + 1):
            writer.step(step, None, rows())
            [keep(writer, folder / name) for name in names(step)]


def run_ranks(table: atoll.Table, folder: Path, names: Callable[[int, int], list[str]], *, until: int, resumes: bool) -> None:
    """Run a first start of two ranks, which name these files after each step."""
    writers = start(table, 1)
    if resumes:
        assert [writer.resume(own(folder, writer.rank)) for writer in writers] == [None, None]
    for step in range(1, until + 1):
        give(writers, step)
        [keep(writer, folder / name) for writer in writers for name in names(step, writer.rank)]


@pytest.mark.parametrize("resumes", [True, False])
def test_one_process_goes_on_from_its_newest_checkpoint_whatever_it_kept_beside(table, resume, tmp_path: Path, resumes: bool):
    def names(step: int) -> list[str]:
        return ["state.10"] if step == 10 else ["final"] if step == 15 else [f"diag.{step}"]

    run_alone(table, tmp_path, names, until=12 + MANY, resumes=resumes)
    for _ in range(2):
        assert resume(tmp_path / "state.{step}") == (10, tmp_path / "state.10")


@pytest.mark.parametrize("resumes", [True, False])
def test_a_checkpoint_that_was_named_before_its_step_was_given_is_of_the_step_in_its_name(
    table, resume, tmp_path: Path, resumes: bool
):
    def names(step: int) -> list[str]:
        # As if the checkpoint were at the top of the loop.
        return [f"state.{step + 1}"] if (step + 1) % 10 == 0 else []

    run_alone(table, tmp_path, names, until=19, resumes=resumes)
    assert resume(tmp_path / "state.{step}").step == 10
    assert (tmp_path / "state.20.superseded").exists()
    table.delete(run="a", steps=(9, None))
    # There never was a checkpoint of the steps that are left.
    assert resume(tmp_path / "state.{step}") is None


@pytest.mark.parametrize("resumes", [True, False])
def test_a_first_checkpoint_before_a_step_that_was_never_given_refuses_nothing(table, resume, tmp_path: Path, resumes: bool):
    run_alone(table, tmp_path, lambda step: ["state.10"] if step == 9 else [], until=9, resumes=resumes)
    for _ in range(2):
        assert resume(tmp_path / "state.{step}") is None


def test_what_was_kept_beside_counts_where_there_is_nothing_else(table, resume, tmp_path: Path):
    run_alone(table, tmp_path, lambda step: [f"state.{step}"], until=3, resumes=False)
    # The pattern may be mistyped.
    assert "stat.{step}" in str(refused(resume, tmp_path / "stat.{step}"))
    assert resume(tmp_path / "state.{step}").step == 3


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("resumes", [True, False])
@pytest.mark.parametrize("who", [[0], [0, 1]])
def test_ranks_go_on_from_what_all_have_whatever_they_kept_beside(
    table, tmp_path: Path, first: int, resumes: bool, who: list[int]
):
    def names(step: int, rank: int) -> list[str]:
        if step == 10:
            return [f"state.10.{rank}"]
        return ([f"diag.{step}.{rank}"] + [f"final.{rank}"] * (step > 12)) * (rank in who)

    run_ranks(table, tmp_path, names, until=12 + MANY, resumes=resumes)
    for attempt in (2, 3):
        assert told(table, attempt, tmp_path, first) == [10, 10]


@pytest.mark.parametrize("first", [0, 1])
def test_what_a_rank_kept_beside_is_no_checkpoint_that_it_lacked(table, tmp_path: Path, first: int):
    def names(step: int, rank: int) -> list[str]:
        return [f"diag.10.{rank}"] if rank == 1 else ["state.10.0"] if step == 10 else []

    run_ranks(table, tmp_path, names, until=10, resumes=True)
    # As if the job had been killed before the second rank named its first checkpoint.
    assert told(table, 2, tmp_path, first) == [None, None]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("resumes", [True, False])
def test_a_rank_that_keeps_something_beside_goes_on_from_what_another_one_names_for_all(
    table, tmp_path: Path, first: int, resumes: bool
):
    pattern, writers = tmp_path / "state.{step}", start(table, 1)
    if resumes:
        assert [writer.resume(pattern) for writer in writers] == [None, None]
    for step in (5, 10, 20):
        give(writers, step)
        keep(writers[step == 5], tmp_path / ("diag" if step == 5 else f"state.{step}"))
    again = start(table, 2)
    assert [again[rank].resume(pattern).step for rank in (first, 1 - first)] == [20, 20]


@pytest.mark.parametrize("first", [0, 1])
def test_ranks_that_only_kept_something_beside_begin_nothing_again(table, tmp_path: Path, first: int):
    run_ranks(table, tmp_path, lambda step, rank: [f"diag.{step}.{rank}"], until=3, resumes=True)
    for attempt in (2, 3):
        for rank in (first, 1 - first):
            with pytest.raises(errors.ConflictError):
                start(table, attempt)[rank].resume(own(tmp_path, rank))


@pytest.mark.parametrize("first", [0, 1])
def test_ranks_whose_names_differ_in_more_than_numbers_go_on_as_others(table, tmp_path: Path, first: int):
    names = ("alpha", "beta")
    run_ranks(table, tmp_path, lambda step, rank: [f"state.{step}.{names[rank]}"] * (step % 10 == 0), until=20, resumes=False)

    def chosen(attempt: int) -> list[int]:
        again = start(table, attempt)
        return [again[rank].resume(tmp_path / f"state.{{step}}.{names[rank]}").step for rank in (first, 1 - first)]

    assert chosen(2) == [20, 20]
    (tmp_path / "state.20.beta").unlink()
    with pytest.raises(errors.ConflictError):
        start(table, 3)[1].resume(tmp_path / "state.{step}.beta")
    assert chosen(4) == [10, 10]


def test_files_of_a_start_that_never_asked_are_found_where_the_disk_is_mounted_elsewhere(table, tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    run_ranks(table, old, lambda step, rank: [f"state.{step}.{rank}"] * (step % 10 == 0), until=20, resumes=False)
    old.rename(new)
    assert told(table, 2, new) == [20, 20]


def test_what_is_noted_stays_small_whatever_files_are_called(table, tmp_path: Path):
    native = Native(table._native)
    agreement = Agreement(SimpleNamespace(_native=native), "a", 1, 0, 1)
    letters = str.maketrans("0123456789", "abcdefghij")
    agreement.note(tmp_path / "state.10", 10)
    for step in range(11, 1_000):
        agreement.note(tmp_path / f"best-{str(step).translate(letters)}", step)
    assert "state.10" in native.kept and len(native.kept) < 20_000


def test_an_earlier_checkpoint_is_still_one_where_the_disk_is_mounted_elsewhere(table, tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    run_ranks(table, old, lambda step, rank: [f"state.{step}.{rank}"] * (step % 10 == 0), until=20, resumes=True)
    old.rename(new)
    assert told(table, 2, new) == [20, 20]
    (new / "state.20.1").unlink()
    with pytest.raises(errors.ConflictError):
        start(table, 3)[1].resume(own(new, 1))
    assert told(table, 4, new) == [10, 10]


def test_notes_of_an_earlier_build_are_understood(table, tmp_path: Path):
    note = '{"path": "%s", "by": 1}'
    for rank in (0, 1):
        steps = f'{{"10": {note % (tmp_path / f"state.10.{rank}")}, "20": {note % (tmp_path / f"state.20.{rank}")}}}'
        text = f'{{"since": 1, "pattern": "{own(tmp_path, rank)}", "is_own": true, "steps": {steps}}}'
        table._native.set_rank_notes(text, "a", 1, rank)
        [(tmp_path / f"state.{step}.{rank}").touch() for step in (10, 20)]
    assert [Agreement(table, "a", 2, rank, 2).resume(own(tmp_path, rank), 19).step for rank in (0, 1)] == [10, 10]


@pytest.mark.parametrize("first", [0, 1])
def test_a_file_that_nobody_noted_is_not_one_of_all_ranks_for_what_one_kept_beside(table, tmp_path: Path, first: int):
    run_ranks(table, tmp_path, lambda step, rank: [["best", "final"][step - 1]] * (rank == 0), until=2, resumes=True)
    # On one of the two ranks, as if the job had been killed between the name and the note.
    (tmp_path / "state.2.1").touch()
    again, steps = start(table, 2), []
    for rank in (first, 1 - first):
        try:
            steps.append(again[rank].resume(own(tmp_path, rank)).step)
        except errors.ConflictError as error:
            assert "from step 2" in str(error)
    assert steps == [2]
    # By this start it is known that the checkpoint is gone.
    assert told(table, 3, tmp_path, first) == [None, None]


@pytest.mark.parametrize("first", [0, 1])
def test_a_first_checkpoint_that_is_gone_is_missed_once_later_steps_are_deleted(table, tmp_path: Path, first: int):
    run_ranks(table, tmp_path, lambda step, rank: [f"state.{step}.{rank}"] * (step % 10 == 0), until=30, resumes=True)
    [(tmp_path / f"state.{step}.0").unlink() for step in (10, 30)]
    with pytest.raises(errors.ConflictError):
        start(table, 2)[0].resume(own(tmp_path, 0))
    writers = start(table, 3)
    assert [writer.resume(own(tmp_path, writer.rank)).step for writer in writers] == [20, 20]
    give(writers, 30)
    [keep(writer, tmp_path / f"state.30.{writer.rank}") for writer in writers]
    table.delete(run="a", steps=(15, None))
    for rank in (first, 1 - first):
        with pytest.raises(errors.ConflictError, match="from step 10"):
            start(table, 4)[rank].resume(own(tmp_path, rank))
