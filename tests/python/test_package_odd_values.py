"""Values of other libraries that a table cannot hold as they are: refused with their column, or kept in full."""

import signal
import threading

import numpy
import pandas
import polars
import pytest

import atoll
from atoll import col
from atoll.errors import ConflictError, InvalidInputError

HALF = "ok\udcff"
FAR_APART = [numpy.datetime64("1600-01-01", "s"), numpy.datetime64("2020-01-01", "ns")]
LONG_AND_SHORT = [numpy.timedelta64(400 * 365, "D"), numpy.timedelta64(1, "ns")]


@pytest.fixture
def times(store: atoll.Store) -> atoll.Table:
    """A table of instants and durations."""
    columns = {"id": "int64", "at": "timestamp[ns]?", "took": "duration[ns]?"}
    return store.create_table("times", columns, id="id", index="id")


@pytest.fixture
def texts(store: atoll.Store) -> atoll.Table:
    """A table of nullable texts and numbers."""
    return store.create_table("texts", {"id": "int64", "v": "utf8?", "x": "float64?"}, id="id", index="id")


@pytest.mark.parametrize(("name", "values"), [("at", FAR_APART), ("took", LONG_AND_SHORT)])
def test_times_that_no_one_unit_holds_are_refused_and_not_wrapped_around(
    times: atoll.Table, name: str, values: list
) -> None:
    with pytest.raises(InvalidInputError, match=f'"{name}"'):
        times.append({"id": [0, 1], name: values})
    with atoll.Writer(times, "a") as writer, pytest.raises(InvalidInputError, match=f'"{name}"'):
        writer.step(0, None, {"id": [0, 1], name: values})


def test_times_of_several_units_that_one_holds_are_taken(times: atoll.Table) -> None:
    at = [numpy.datetime64("2020-01-01", "s"), numpy.datetime64("NaT"), numpy.datetime64("2020-01-01T00:00:00.5", "ms")]
    times.append({"id": [0, 1, 2], "at": at, "took": [numpy.timedelta64(1, "s"), None, numpy.timedelta64(1, "ns")]})
    rows = times.read().arrow().sort_by("id").to_pydict()
    assert [each and each.isoformat() for each in rows["at"]] == ["2020-01-01T00:00:00", None, "2020-01-01T00:00:00.500000"]
    assert [each if each is None else each.value for each in rows["took"]] == [1_000_000_000, None, 1]


def test_a_column_of_polars_without_any_value_is_taken_as_nulls(texts: atoll.Table) -> None:
    frame = polars.DataFrame({"id": [1, 2], "v": [None, None], "x": [None, None]})
    texts.append(frame)
    texts.append({"id": [3, 4], "v": frame["v"], "x": [0.5, 1.5]})
    with atoll.Writer(texts, "a") as writer:
        writer.step(0, None, polars.DataFrame({"id": [5], "v": [None], "x": [2.5]}))
        writer.step(1, None, polars.DataFrame({"id": [6], "v": ["there"], "x": [None]}))
    rows = texts.read().arrow().sort_by("id").to_pydict()
    assert rows == {"id": [1, 2, 3, 4, 5, 6], "v": [None] * 5 + ["there"], "x": [None, None, 0.5, 1.5, 2.5, None]}


def test_half_of_a_surrogate_pair_is_refused_by_its_column_and_row(texts: atoll.Table) -> None:
    with pytest.raises(InvalidInputError, match='"v", row 1.*surrogate'):
        texts.append({"id": [1, 2], "v": ["whole", HALF]})
    with atoll.Writer(texts, "a") as writer:
        with pytest.raises(InvalidInputError, match='"v", row 0'):
            writer.step(0, None, {"id": [1], "v": [HALF], "x": [0.5]})
        writer.step(0, None, {"id": [1], "v": ["whole"], "x": [0.5]})
    for ask in (
        lambda: texts.append({"id": [1], "v": ["a"]}, run=HALF),
        lambda: texts.append({"id": [1], HALF: ["a"]}),
        lambda: texts.select(HALF).count(),
        lambda: texts.of_runs(HALF).count(),
        lambda: texts.where(col("v") == HALF).count(),
        lambda: texts.where(f"v = '{HALF}'").count(),
    ):
        with pytest.raises(InvalidInputError, match="surrogate"):
            ask()


def test_what_no_argument_can_be_is_an_error_of_atoll(texts: atoll.Table) -> None:
    texts.append({"id": [1, 2], "x": [0.5, 1.5]})
    assert texts.mean("x", confidence="0.95").is_exact and texts.quantile("x", "0.5").is_exact
    assert texts.pack(whole=True, share="1").rows == 2
    for ask in (
        lambda: texts.append(pandas.DataFrame({"id": [1], "x": [1j]})),
        lambda: next(texts.refine(quantile="x")),
        lambda: texts.keep_packed(idle="soon"),
        lambda: texts.add_column("c", "f4", unit=3),
        lambda: texts.histogram("x", 5.0),
        lambda: atoll.Writer(texts, "a", attributes=[("a", 1)]),
        lambda: atoll.Writer(texts, "a", buffer_bytes="1"),
        lambda: atoll.Cell(("a",)),
        lambda: col("x").between(None, 5),
        lambda: col("x").is_in([1, None]),
        lambda: col("x").is_in(numpy.ma.array([1.0, 2.0], mask=[False, True])),
        lambda: col("x").between(numpy.ma.masked, 5),
        lambda: col("at") == numpy.datetime64("NaT"),
        lambda: col("at") == pandas.NaT,
        lambda: col("x") > numpy.timedelta64(5, "ns"),
        lambda: col("x") > numpy.timedelta64(5, "us"),
    ):
        with pytest.raises(InvalidInputError):
            ask()


def test_a_signal_handler_may_append_in_the_middle_of_an_append(texts: atoll.Table) -> None:
    """The handler runs on the thread of an append that waits: with locks that are not re-entrant, it deadlocks."""
    noted: list[int] = []
    appended = 0

    def note(*_: object) -> None:
        # A signal may come within the handler as well.
        number = 10_000 + len(noted)
        noted.append(number)
        texts.append({"id": [number], "x": [0.5]})
        texts.append({"id": [number], "x": [0.5]}, run="begun")

    texts.begin("begun")
    before = signal.signal(signal.SIGUSR1, note)
    ended = threading.Event()
    sender = threading.Thread(target=lambda: _send(ended), daemon=True)
    try:
        sender.start()
        while len(noted) < 20:
            texts.append({"id": [appended], "x": [0.5]})
            texts.append({"id": [appended], "x": [0.5]}, run="begun")
            appended += 1
    finally:
        ended.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    wanted = sorted(2 * [*range(appended), *noted])
    assert sorted(texts.select("id").read().arrow()["id"].to_pylist()) == wanted


def _send(ended: threading.Event) -> None:
    while not ended.wait(0.002):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)


def test_a_signal_handler_cannot_begin_a_run_while_its_thread_begins_one(
    texts: atoll.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = texts.begin

    def interrupted(run: str) -> int:
        with pytest.raises(ConflictError, match="is beginning a run"):
            texts.append({"id": [2], "x": [0.5]}, run=run)
        return begin(run)

    monkeypatch.setattr(texts, "begin", interrupted)
    texts.append({"id": [1], "x": [0.5]}, run="a")
    assert texts.count() == 1
