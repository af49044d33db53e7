"""Closing a store: once it returns, appended rows are there for every reader, and any error was raised."""

import os
import pickle
import shutil
from pathlib import Path

import numpy
import pytest

import atoll
from atoll import errors

ROWS = 20_000


def fill(store: atoll.Store) -> atoll.Table:
    """A table with rows that take a moment to write."""
    table = store.create_table("t", {"pid": "int64", "x": "float64"}, id="pid", index="x")
    table.append({"pid": numpy.arange(ROWS), "x": numpy.linspace(0, 1, ROWS)})
    return table


def opened_in(folder: Path) -> list[str]:
    """Return the files of a folder that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue  # The one that the folder itself was listed with.
    return [path for path in found if path.startswith(str(folder))]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_behind_its_block_a_store_is_closed_and_can_be_carried_away(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    for _ in range(3):
        with atoll.open(folder) as store:
            fill(store)
        assert opened_in(folder) == []
    shutil.move(folder, tmp_path / "moved")
    with atoll.open(tmp_path / "moved", read_only=True) as store:
        assert store.table("t").count() == 3 * ROWS


def test_a_table_that_is_held_keeps_working_and_is_there_for_others(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "store") as store:
        table = fill(store)
    with atoll.open(tmp_path / "store") as other:
        assert other.table("t").count() == ROWS
    table.append({"pid": [ROWS], "x": [0.5]})
    assert table.count() == ROWS + 1


def test_a_store_whose_folder_was_removed_does_not_say_that_it_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    store = atoll.open(folder)
    table = fill(store)
    store.sync()
    shutil.rmtree(folder)
    table.append({"pid": [ROWS], "x": [0.5]})
    with pytest.raises(errors.AtollError, match="cannot sync .*gone/store.atoll.* the file was removed"):
        store.sync()
    del table
    with pytest.raises(errors.AtollError):
        store.close()
    assert not folder.exists()
    with atoll.open(folder) as again:
        assert again.tables() == []


class Broken:
    """A native store whose disk fails at the end."""

    def close(self) -> None:
        raise errors.OutOfSpaceError("no space left")


def broken() -> atoll.Store:
    """A store on top of it."""
    return atoll.Store("broken", Broken(), read_only=False)


def test_what_goes_wrong_at_the_end_is_raised_once_and_hides_no_other_error() -> None:
    store = broken()
    with pytest.raises(errors.OutOfSpaceError), store:
        pass
    store.close()
    with pytest.raises(ZeroDivisionError) as raised, broken():
        raise ZeroDivisionError
    assert "no space left" in raised.value.__notes__[0]


def test_a_notebook_shows_the_text_of_a_store_that_is_closed_or_gone(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "one") as store, atoll.open([tmp_path / "one"]) as stores:
        table = fill(store)
        assert "<td>t</td>" in store._repr_html_() and "tables t" in stores._repr_html_()
        kept = pickle.dumps((store, stores, table))
        assert "<td>pid</td>" in table._repr_html_()
    del table
    assert store._repr_html_() is None and "closed" in repr(store)
    assert stores._repr_html_() is None and repr(stores)
    shutil.rmtree(tmp_path / "one")
    for reopened in pickle.loads(kept):
        assert reopened._repr_html_() is None and "<" in repr(reopened)
    assert not (tmp_path / "one").exists()


class Unreachable:
    """The native half of a table whose store does not answer."""

    name, roles, time_unit = "t", (["pid"], [], ["x"], 0), None

    def __getattr__(self, name: str) -> object:
        raise errors.UnavailableError("nobody answers")


def test_a_notebook_shows_the_text_of_a_table_whose_store_does_not_answer() -> None:
    table = atoll.Table(Unreachable(), broken())
    assert table._repr_html_() is None
    assert repr(table) == '<atoll table "t", whose columns cannot be read now: nobody answers>'
