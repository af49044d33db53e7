"""Checkpoints of one `atoll.Writer`: which count, and which one a restart takes."""

import errno
import os
import stat
from pathlib import Path

import numpy
import pytest

import atoll
from atoll import errors
from atoll._checkpoints import set_aside

ROWS = 100
COLUMNS = {"pid": "int64", "step": "int64", "x": "float64"}


@pytest.fixture
def table(store) -> atoll.Table:
    """An empty table."""
    return store.create_table("run", COLUMNS, id=("pid", "step"), index=("x", "step"))


def rows(rank: int = 0) -> dict[str, numpy.ndarray]:
    """Make a rank's rows of a step."""
    return {"pid": numpy.arange(ROWS) + ROWS * rank, "x": numpy.full(ROWS, 0.5)}


def checkpoint(folder: Path, *steps: int) -> str:
    """Make finished checkpoints of these steps, and return the pattern of their names."""
    for step in steps:
        (folder / f"state.{step}.bin").write_text(str(step))
    return str(folder / "state.{step}.bin")


def test_a_restart_takes_the_newest_checkpoint_whose_steps_are_complete(table, tmp_path: Path):
    with atoll.Writer(table, "a") as writer:
        for step in (10, 20, 30):
            writer.step(step, None, rows())
    pattern = checkpoint(tmp_path, 0, 20, 40)
    (tmp_path / "state.25.bin.unfinished").write_text("torn")
    again = atoll.Writer(table, "a")
    assert again.resume(pattern) == (20, tmp_path / "state.20.bin")
    assert (tmp_path / "state.40.bin.superseded").exists(), "its future is replaced"
    assert again.resume(pattern).step == 20
    again.close()


def test_the_number_of_a_checkpoint_may_be_that_of_its_folder(table, tmp_path: Path):
    with atoll.Writer(table, "a") as writer:
        writer.step(20, None, rows())
    for step in ("10", "020", "30", "x"):
        (tmp_path / step).mkdir()
        (tmp_path / step / f"state.{step}").touch()
    again = atoll.Writer(table, "a")
    assert again.resume(tmp_path / "{step}" / "state.{step}") == (20, tmp_path / "020" / "state.020")
    assert (tmp_path / "30" / "state.30.superseded").exists()
    again.close()


def test_late_checkpoints_that_another_rank_set_aside_are_no_error(tmp_path: Path, monkeypatch):
    pattern = checkpoint(tmp_path, 10, 20)
    rename = Path.replace

    def another_first(path: Path, to: Path) -> Path:
        rename(path, to)
        return rename(path, to)

    monkeypatch.setattr(Path, "replace", another_first)
    set_aside(pattern, after=10)
    assert (tmp_path / "state.20.bin.superseded").exists()


def test_folders_are_superseded_as_often_as_their_step_is_computed_again(table, tmp_path: Path):
    for start in "abc":
        (tmp_path / "state.30").mkdir()
        (tmp_path / "state.30" / "0").write_text(start)
        with atoll.Writer(table, "a") as writer:
            assert writer.resume(tmp_path / "state.{step}") is None
    kept = ["state.30.superseded", "state.30.superseded.1", "state.30.superseded.2"]
    assert [(tmp_path / name / "0").read_text() for name in kept] == ["a", "b", "c"]


def test_a_checkpoint_takes_the_place_of_one_of_its_name_be_they_files_or_folders(table, tmp_path: Path):
    final = tmp_path / "restart" / "final.7"
    final.parent.mkdir()
    with atoll.Writer(table, "a") as writer:
        writer.step(7, None, rows())
        for time, kind in enumerate(["folder", "folder", "file", "folder"]):
            final.with_name("final.7.unfinished").write_text("torn")
            with writer.checkpoint(final) as unfinished:
                if kind == "folder":
                    unfinished.mkdir()
                (unfinished / "state" if kind == "folder" else unfinished).write_text(str(time))
            assert (final / "state" if kind == "folder" else final).read_text() == str(time)
            assert [file.name for file in final.parent.iterdir()] == ["final.7"]
    with atoll.Writer(table, "a") as again:
        assert again.resume(tmp_path / "restart" / "final.{step}") == (7, final)


@pytest.mark.parametrize("refused", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_syncs_no_folders_takes_checkpoints(table, tmp_path: Path, monkeypatch, refused):
    fsync = os.fsync

    def files_alone(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(refused, os.strerror(refused))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", files_alone)
    with atoll.Writer(table, "a") as writer, writer.checkpoint(tmp_path / "state.0") as unfinished:
        unfinished.write_text("whole")
    assert (tmp_path / "state.0").exists()


def test_without_a_complete_step_there_is_nothing_to_go_on_from(table, tmp_path: Path):
    writer = atoll.Writer(table, "a", rank=0, size=2, attempt=1)
    writer.step(10, None, rows())
    assert writer.resume(checkpoint(tmp_path, 0, 10)) is None
    with pytest.raises(errors.InvalidInputError, match=r"\{step\}"):
        writer.resume(tmp_path / "state")
    writer.close()


def test_a_checkpoint_counts_only_when_its_steps_are_complete(table, tmp_path: Path):
    writers = [atoll.Writer(table, "a", rank=rank, size=2, attempt=1) for rank in range(2)]
    writers[0].step(10, None, rows(0))
    path = tmp_path / "folder" / "state.10"
    with pytest.raises(errors.TimedOutError), writers[0].checkpoint(path, timeout=0.1) as unfinished:
        unfinished.write_text("half")
    assert not path.exists()
    writers[1].step(10, None, rows(1))
    with writers[0].checkpoint(path, timeout=30) as unfinished:
        unfinished.write_text("whole")
    assert path.read_text() == "whole"
    assert not unfinished.exists()
    [writer.close() for writer in writers]


def test_a_checkpoint_that_could_not_be_written_has_no_name(table, tmp_path: Path):
    with atoll.Writer(table, "a") as writer:
        writer.step(10, None, rows())
        with pytest.raises(ZeroDivisionError), writer.checkpoint(tmp_path / "state.10"):
            raise ZeroDivisionError
    assert not (tmp_path / "state.10").exists()
