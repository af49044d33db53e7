"""Loading whole steps: they are packed as they come, and written once."""

import numpy
import pandas
import polars
import pyarrow
import pytest

import atoll


def rows_of(step: int, count: int) -> dict[str, numpy.ndarray]:
    pid = numpy.arange(count, dtype="int64")
    return {"pid": pid, "step": numpy.full(count, step), "x": pid * 7919 % 1000 / 8.0}


def made(store: atoll.Store, **words: object) -> atoll.Table:
    return store.create_table("run", rows_of(0, 1), id=("pid", "step"), index=("x", "step"), **words)


def test_what_is_loaded_is_packed_and_answers_as_what_was_appended(store: atoll.Store) -> None:
    loaded = made(store)
    version = loaded.load(((step, step / 4, rows_of(step, 30_000)) for step in range(5)), run="a")
    assert version == loaded.version()
    info = loaded.info()
    assert (info.rows, info.blocks) == (150_000, 0)
    assert info.cubes > 0
    assert [(step.step, step.time, step.rows) for step in loaded.steps("a")] == [
        (step, step / 4, 30_000) for step in range(5)
    ]
    appended = store.create_table("other", rows_of(0, 1), id=("pid", "step"), index=("x", "step"))
    for step in range(5):
        appended.append(rows_of(step, 30_000), run="a", step=step)
    for query in (lambda table: table.sample(0.01), lambda table: table.box(x=(3, 7), step=(1, 3))):
        mine, theirs = (query(table).read().pandas() for table in (loaded, appended))
        assert len(mine) > 0
        assert mine.sort_values(["pid", "step"], ignore_index=True).equals(
            theirs.sort_values(["pid", "step"], ignore_index=True)
        )


def test_steps_come_tree_by_tree_and_what_came_before_an_error_stays(store: atoll.Store) -> None:
    table = made(store)

    def steps():
        for step in range(6):
            yield step, rows_of(step, 100)
        yield 6, {"pid": [1]}

    with pytest.raises(atoll.errors.InvalidInputError, match="step"):
        table.load(steps(), run="a", tree_bytes=100 * 24 * 2)
    last = table.last_complete("a")
    assert last == 5
    assert table.count() == (last + 1) * 100
    table.load(((step, rows_of(step, 100)) for step in range(last + 1, 7)), run="a")
    assert table.count() == 700


def test_loading_again_changes_nothing_and_loading_between_is_refused(store: atoll.Store) -> None:
    table = made(store)
    steps = [(step, rows_of(step, 10)) for step in (10, 20)]
    version = table.load(steps, run="a", attempt=table.begin("a"))
    assert table.load(steps, run="a") == version
    with pytest.raises(atoll.errors.InvalidInputError, match="20"):
        table.load([(15, rows_of(15, 10))], run="a")
    assert table.load([], run="a") == version
    assert table.count() == 20


@pytest.mark.parametrize("bad", [(1,), (1, 0.5, 2, {}), {}, ("a", {}), (-1, {}), (2**64, {}), (True, {}), (1.5, {})])
def test_what_is_no_step_is_refused(store: atoll.Store, bad: object) -> None:
    table = made(store)
    with pytest.raises(atoll.errors.InvalidInputError, match="step"):
        table.load([bad], run="a")
    assert table.count() == 0


def test_ids_of_a_run_that_are_there_are_refused(store: atoll.Store) -> None:
    table = store.create_table("run", rows_of(0, 1), id=("pid",), index=("x",), unique=True)
    table.load([(0, rows_of(0, 10))], run="a")
    with pytest.raises(atoll.errors.ConflictError):
        table.load([(1, rows_of(1, 10))], run="a")
    assert table.count() == 10


def frames_of(kind: str, step: int, x: numpy.ndarray) -> object:
    """Make rows that share the memory of `x`, which the caller reuses."""
    columns = {"pid": numpy.arange(4), "step": numpy.full(4, step), "x": x}
    if kind == "pandas":
        return pandas.DataFrame(columns, copy=False)
    return {"pyarrow": pyarrow.table, "polars": polars.DataFrame}[kind]({**columns, "x": pyarrow.array(x)})


@pytest.mark.parametrize("kind", ["pyarrow", "polars", "pandas"])
def test_what_the_caller_does_with_memory_that_was_loaded_changes_nothing(store: atoll.Store, kind: str) -> None:
    table, x = made(store), numpy.zeros(4)

    def steps():
        for step in range(3):
            x[:] = step
            yield step, frames_of(kind, step, x)

    table.load(steps(), run="a")
    assert sorted(table.numpy()["x"].tolist()) == [0.0] * 4 + [1.0] * 4 + [2.0] * 4


class Unreadable(Exception):
    """An exception of the user's own reader."""


@pytest.mark.parametrize("bad", [Unreadable("cannot read step 3"), KeyboardInterrupt(), None])
def test_what_came_before_a_step_that_cannot_be_read_is_there(store: atoll.Store, bad: BaseException | None) -> None:
    table = made(store)

    def steps():
        for step in range(3):
            yield step, rows_of(step, 100)
        if bad is not None:
            raise bad
        yield 3, {"pid": "no rows"}

    with pytest.raises(atoll.errors.InvalidInputError if bad is None else type(bad)) as error:
        table.load(steps(), run="a")
    assert not getattr(error.value, "__notes__", ()) or bad is None
    assert (table.last_complete("a"), table.count()) == (2, 300)


def test_where_not_even_what_came_before_can_be_loaded_both_errors_are_told(store: atoll.Store) -> None:
    table = made(store)

    def steps():
        yield 0, rows_of(0, 100)
        table.begin("a")
        raise Unreadable("cannot read step 1")

    with pytest.raises(Unreadable, match="step 1") as error:
        table.load(steps(), run="a")
    assert "in addition" in error.value.__notes__[0]
    assert table.last_complete("a") is None


def test_a_handle_that_began_no_attempt_loads_no_step_that_a_run_has(store: atoll.Store) -> None:
    table = made(store)
    table.load(((step, rows_of(step, 100)) for step in range(5)), run="a")
    other = store.table("run")
    for first in (0, 4):
        with pytest.raises(atoll.errors.ConflictError, match="would replace them"):
            other.load(((step, rows_of(step, 7)) for step in range(first, 6)), run="a")
    assert table.last_complete("a") == 4 and table.count() == 500
    # Loading continues after the existing steps, and loading the same step again changes nothing.
    for _ in range(2):
        other.load([(5, rows_of(5, 7))], run="a")
        assert table.count() == 507
    assert other.load([], run="b") == table.version() and table.runs()[-1].name == "a"
    other.begin("a")
    other.load([(0, rows_of(0, 9))], run="a")
    assert table.count() == 9


def test_a_load_tells_how_far_it_has_come(store: atoll.Store) -> None:
    table, seen = made(store), []
    # Two steps make a tree.
    steps = [(10 * step, rows_of(10 * step, 100)) for step in range(6)]
    version = table.load(steps, run="a", tree_bytes=100 * 24 * 2, progress=seen.append)
    assert version == table.version()
    assert [(told.steps, told.rows, told.step) for told in seen[:-1]] == [
        (step + 1, 100 * (step + 1), 10 * step) for step in range(6)
    ]
    # Steps are in the table tree by tree, not as they are taken.
    lasts = [-1 if told.last is None else told.last for told in seen]
    assert lasts == sorted(lasts) and lasts[0] == -1 and -1 < lasts[-2] < 50
    assert seen[-1] == atoll.Loaded(steps=6, rows=600, step=50, last=50)
    seen.clear()
    table.load([], run="a", progress=seen.append)
    assert seen == []
    with pytest.raises(atoll.errors.InvalidInputError, match="progress is called"):
        table.load([], run="a", progress=True)


def test_what_was_taken_before_an_error_of_who_is_told_is_there(store: atoll.Store) -> None:
    table = made(store)

    def told(loaded: atoll.Loaded) -> None:
        if loaded.steps == 3:
            raise Unreadable("the bar broke")

    with pytest.raises(Unreadable, match="the bar"):
        table.load(((step, rows_of(step, 100)) for step in range(9)), run="a", progress=told)
    assert (table.last_complete("a"), table.count()) == (2, 300)
