"""`atoll.Writer` in one process: threads stand for the ranks here."""

import gc
import sys
import threading
import weakref
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy
import pytest
from writer_tables import Failing, Gated

import atoll
from atoll import errors
from atoll._provenance import ATTEMPTS_MAX

ROWS = 100
COLUMNS = {"pid": "int64", "step": "int64", "rank": "int32?", "x": "float64", "pos": "float32[3]"}


@pytest.fixture
def table(store) -> atoll.Table:
    """An empty table with the columns that a writer fills."""
    return store.create_table("run", COLUMNS, id=("pid", "step"), index=("x", "step"))


def rows(rank: int = 0, value: float = 0.5) -> dict[str, numpy.ndarray]:
    """Make a rank's rows of a step."""
    pid = numpy.arange(ROWS) + ROWS * rank
    return {"pid": pid, "x": numpy.full(ROWS, value), "pos": numpy.zeros((ROWS, 3), dtype="float32")}


def steps_of(table: atoll.Table) -> dict[int, int]:
    """Return the number of rows of each visible step."""
    steps, counts = numpy.unique(table.numpy()["step"], return_counts=True)
    return dict(zip(steps.tolist(), counts.tolist(), strict=True))


def test_what_was_given_is_there_and_its_columns_are_filled(table):
    with atoll.Writer(table, "a") as writer:
        for step in (10, 20, 30):
            writer.step(step, step / 10, rows())
    assert steps_of(table) == {10: ROWS, 20: ROWS, 30: ROWS}
    assert set(table.numpy()["rank"]) == {0}
    assert writer.last_complete == 30


def test_a_simulation_may_change_its_arrays_at_once(table):
    gated = Gated(table)
    writer = atoll.Writer(gated, "a")
    mine = rows(value=1.0)
    writer.step(0, 0.0, mine)
    mine["x"][:] = 7.0
    mine["pos"][:] = 7.0
    gated.allowed.release()
    writer.close()
    assert set(table.numpy()["x"]) == {1.0}
    assert not table.numpy()["pos"].any()


def test_arrays_that_are_handed_over_are_kept_and_not_copied(table):
    gated = Gated(table)
    writer = atoll.Writer(gated, "a")
    mine = rows()
    writer.step(0, None, mine, give=True)
    writer.step(1, None, mine)
    gated.allowed.release(2)
    writer.close()
    kept, copied = (columns for _, columns in gated.given)
    assert numpy.shares_memory(kept["pos"], mine["pos"])
    assert not numpy.shares_memory(copied["pos"], mine["pos"])


def test_a_step_that_is_written_takes_no_memory(table):
    with atoll.Writer(table, "a") as writer:
        x = numpy.full(ROWS, 0.5)
        writer.step(0, None, {**rows(), "x": x}, give=True)
        seen = weakref.ref(x)
        del x
        writer.flush()
        gc.collect()
        assert seen() is None


def test_a_step_waits_only_where_the_buffer_is_full(table):
    gated = Gated(table)
    one = sum(values.nbytes for values in rows().values()) + ROWS * (8 + 8)
    writer = atoll.Writer(gated, "a", buffer_bytes=2 * one + one // 2)
    returned = [threading.Event() for _ in range(3)]

    def simulate():
        for step, event in enumerate(returned):
            writer.step(step, None, rows())
            event.set()

    simulation = threading.Thread(target=simulate, daemon=True)
    simulation.start()
    assert returned[1].wait(30), "two steps have room, though none was appended"
    assert not returned[2].wait(0.2), "a third has none"
    gated.allowed.release()
    assert returned[2].wait(30), "until one was appended"
    gated.allowed.release(2)
    writer.close()
    assert steps_of(table) == {0: ROWS, 1: ROWS, 2: ROWS}


def test_a_step_larger_than_the_buffer_passes_alone(table):
    with atoll.Writer(table, "a", buffer_bytes=1) as writer:
        for step in range(3):
            writer.step(step, None, rows())
    assert steps_of(table) == {0: ROWS, 1: ROWS, 2: ROWS}


class Uncopied(numpy.ndarray):
    """An array whose copy fails for lack of memory."""

    def __array_finalize__(self, of: object) -> None:
        if isinstance(of, Uncopied):
            raise MemoryError


def test_a_step_that_could_not_be_copied_takes_no_room(table):
    given = rows()
    with atoll.Writer(table, "a", buffer_bytes=sum(values.nbytes for values in given.values())) as writer:
        with pytest.raises(MemoryError):
            writer.step(0, None, {**given, "x": given["x"].view(Uncopied)})
        assert writer._pump._bytes == 0, "else the next step waits for ever"
        writer.step(0, None, given)
    assert steps_of(table) == {0: ROWS}


def test_an_error_of_the_background_comes_with_the_next_call_and_stays(table):
    failing = Failing(table)
    writer = atoll.Writer(failing, "a")
    for step in range(3):
        writer.step(step, None, rows())
    failing.allowed.release(3)
    for call in (writer.flush, writer.close, lambda: writer.step(9, None, rows()), lambda: writer.last_complete):
        with pytest.raises(errors.OutOfSpaceError):
            call()
    assert failing.given == [0], "after an error nothing more is appended"


def test_an_error_of_the_simulation_is_not_hidden_by_one_of_the_writer(table):
    failing = Failing(table)
    failing.allowed.release(2)
    with pytest.raises(ZeroDivisionError) as raised, atoll.Writer(failing, "a") as writer:
        writer.step(0, None, rows())
        writer.step(1, None, rows())
        raise ZeroDivisionError
    assert "no space left" in raised.value.__notes__[0]


def test_a_step_is_visible_when_all_ranks_have_given_it(table):
    writers = [atoll.Writer(table, "a", rank=rank, size=2, attempt=1) for rank in range(2)]
    writers[0].step(5, None, rows(0))
    with pytest.raises(errors.TimedOutError) as raised:
        writers[0].flush(timeout=0.1)
    assert "every rank gives every step" in raised.value.hint
    assert steps_of(table) == {}
    flushed = threading.Thread(target=writers[0].flush, daemon=True)
    flushed.start()
    writers[1].step(5, None, rows(1))
    flushed.join(30)
    assert not flushed.is_alive(), "the last rank's rows end the wait"
    assert steps_of(table) == {5: 2 * ROWS}
    [writer.close() for writer in writers]


def test_a_rank_without_rows_gives_its_step_too(table):
    writers = [atoll.Writer(table, "a", rank=rank, size=2, attempt=1) for rank in range(2)]
    writers[0].step(5, None, rows(0))
    writers[1].step(5, None, {name: values[:0] for name, values in rows(1).items()})
    writers[0].flush(timeout=30)
    assert steps_of(table) == {5: ROWS}
    [writer.close() for writer in writers]


def test_a_restart_replaces_what_it_computes_again(table):
    with atoll.Writer(table, "a") as writer:
        for step in (10, 20, 30):
            writer.step(step, None, rows(value=1.0))
    with atoll.Writer(table, "a") as again:
        assert again.last_complete == 30
        again.step(20, None, rows(value=2.0))
    assert steps_of(table) == {10: ROWS, 20: ROWS}
    assert set(table.where("step = 20").numpy()["x"]) == {2.0}
    assert again.last_complete == 20


def test_a_flush_is_not_satisfied_by_the_steps_of_an_earlier_attempt(table):
    with atoll.Writer(table, "a", attempt=1) as before:
        before.step(100, None, rows())
    after = atoll.Writer(table, "a", rank=0, size=2, attempt=2)
    after.step(50, None, rows())
    with pytest.raises(errors.TimedOutError):
        after.flush(timeout=0.1)
    after.close()


def test_an_attempt_that_was_overtaken_can_neither_write_nor_wait(table):
    old = atoll.Writer(table, "a", rank=0, size=2, attempt=1)
    old.step(1, None, rows())
    raised = []

    def wait():
        raised.append(pytest.raises(errors.ConflictError, old.flush))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    new = atoll.Writer(table, "a", rank=0, size=2, attempt=2)
    waiting.join(30)
    assert raised, "nobody will ever complete its step"
    assert "another start" in raised[0].value.hint
    with pytest.raises(errors.ConflictError):
        atoll.Writer(table, "a", rank=0, size=2, attempt=1)
    new.close()


def test_several_ranks_must_say_which_attempt_they_are(table):
    with pytest.raises(errors.InvalidInputError, match="which attempt") as raised:
        atoll.Writer(table, "a", rank=0, size=2)
    assert "comm=" in raised.value.hint


@pytest.mark.parametrize(
    ("earlier", "later"),
    [(1, 2), ("81234", "81235"), ("81234.server", "81234:1"), ("81234:9", "81235.server:0"), ("99_4", "100_1")],
)
def test_ids_of_jobs_rise_with_every_start(table, earlier, later):
    atoll.Writer(table, "a", attempt=earlier).close()
    atoll.Writer(table, "a", attempt=later).close()
    with pytest.raises(errors.ConflictError):
        atoll.Writer(table, "a", attempt=earlier)


@pytest.mark.parametrize("wrong", ["", "job", "-3", "12:", "12:1000", 2.5, -1, 2**64, "9" * 30])
def test_what_is_no_id_of_a_job_is_refused(table, wrong):
    with pytest.raises(errors.InvalidInputError):
        atoll.Writer(table, "a", attempt=wrong)


def test_an_attempt_is_never_written_twice(table):
    with atoll.Writer(table, "a", attempt="81234") as writer:
        writer.step(10, None, rows())
    with pytest.raises(errors.ConflictError, match="81234:1"):
        atoll.Writer(table, "a", attempt="81234")


def test_an_attempt_of_which_another_start_left_rows_is_not_begun_again(table):
    with atoll.Writer(table, "a", rank=0, size=2, attempt="81234:2") as first:
        first.step(1, None, rows(0))
    # Rank 1 of the first start never gave anything; rank 0 of the second one must not add to that start's rows.
    with pytest.raises(errors.ConflictError, match="has written already") as raised:
        atoll.Writer(table, "a", rank=0, size=2, attempt="81234:2")
    assert '"81234:3"' in raised.value.hint
    atoll.Writer(table, "a", rank=1, size=2, attempt="81234:2").close()
    with atoll.Writer(table, "b", attempt=7) as number:
        number.step(1, None, rows())
    with pytest.raises(errors.ConflictError) as raised:
        atoll.Writer(table, "b", attempt=7)
    assert "attempt=8" in raised.value.hint


def test_a_run_whose_steps_were_deleted_goes_on(table, tmp_path: Path):
    with atoll.Writer(table, "a") as writer:
        writer.step(10, None, rows())
        writer.flush()
        table.delete(run="a")
        writer.flush(timeout=5)
        assert writer.last_complete is None
        with writer.checkpoint(tmp_path / "state.10") as unfinished:
            unfinished.touch()
        writer.step(20, None, rows())
    assert writer.last_complete == 20


class Counting:
    """A table that counts the calls of its native half."""

    def __init__(self, asked: object) -> None:
        self._asked, self.counts = asked, Counter()

    @property
    def _native(self) -> "Counting":
        return Counting.sharing(self._asked._native, self.counts)

    @classmethod
    def sharing(cls, asked: object, counts: Counter[str]) -> "Counting":
        shared = cls(asked)
        shared.counts = counts
        return shared

    def __getattr__(self, name):
        self.counts[name] += 1
        return getattr(self._asked, name)


def test_a_rank_that_waits_for_another_asks_seldom(table):
    counting = Counting(table)
    writer = atoll.Writer(counting, "a", rank=0, size=2, attempt=1)
    writer.step(5, None, rows())
    counting.counts.clear()
    with pytest.raises(errors.TimedOutError):
        writer.flush(timeout=1)
    # The writer's own commit makes a version; nothing happens after it.
    assert counting.counts["follow"] <= 3 and counting.counts["run_state"] <= 4 and not counting.counts["runs"]
    writer.close()


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_outside_the_ranks_is_refused(table, rank, size):
    with pytest.raises(errors.InvalidInputError, match="no rank") as raised:
        atoll.Writer(table, "a", rank=rank, size=size, attempt=1)
    assert "from 0" in raised.value.hint


def test_steps_rise_and_columns_have_one_length(table):
    with atoll.Writer(table, "a") as writer:
        writer.step(10, None, rows())
        for step in (10, 9):
            with pytest.raises(errors.InvalidInputError, match="steps rise") as raised:
                writer.step(step, None, rows())
            assert "another attempt" in raised.value.hint
        with pytest.raises(errors.InvalidInputError, match="x: 7"):
            writer.step(11, None, rows() | {"x": numpy.zeros(7)})
        with pytest.raises(errors.InvalidInputError, match="one value"):
            writer.step(11, None, rows() | {"x": 7.0})
        writer.step(11, None, rows())
    assert steps_of(table) == {10: ROWS, 11: ROWS}


@pytest.mark.parametrize(("step", "time"), [(-1, 0.0), (2**64, 0.0), (1.5, 0.0), (True, 0.0), ("7", 0.0), (7, "soon")])
def test_a_step_that_is_no_number_is_refused_at_once_and_the_writer_goes_on(table, step, time):
    with atoll.Writer(table, "a") as writer:
        with pytest.raises(errors.InvalidInputError, match="number"):
            writer.step(step, time, rows())
        writer.step(numpy.int64(10), numpy.float32(0.5), rows())
    assert steps_of(table) == {10: ROWS}


def test_where_rows_came_from_is_kept_with_the_run(table, tmp_path: Path):
    deck = tmp_path / "deck.lmp"
    deck.write_text("units lj\n")
    atoll.Writer(table, "a", deck=deck, attributes={"temperature": 0.3}).close()
    atoll.Writer(table, "a", deck="units real\nrun 5").close()
    about = table.run_attributes("a")
    assert about["deck"] == "units real\nrun 5"
    assert about["temperature"] == "0.3"
    hosts = [name for name in about if name.endswith(".host")]
    assert len(hosts) == 2, "each attempt has its own"
    assert any("numpy" in versions for name, versions in about.items() if name.endswith(".versions"))


def test_a_deck_may_be_one_long_line(table, monkeypatch):
    class Odd(ModuleType):
        def __getattr__(self, name: str) -> str:
            raise OSError("what it is made of cannot be imported")

    monkeypatch.setitem(sys.modules, "odd_module", Odd("odd_module"))
    deck = '{"a": 1}' * 60
    atoll.Writer(table, "a", deck=deck).close()
    assert table.run_attributes("a")["deck"] == deck


def test_a_deck_that_is_not_there_begins_no_attempt(table, tmp_path: Path):
    atoll.Writer(table, "a").close()
    with pytest.raises(FileNotFoundError):
        atoll.Writer(table, "a", deck=tmp_path / "no such deck")
    assert table.runs()[0].attempt == 1


@pytest.mark.parametrize("deck", ["inputs/in.lammps", "in.lammps", "~/deck.lmp", "../deck"])
def test_one_word_that_can_only_be_a_path_is_no_deck(table, deck: str):
    with pytest.raises(FileNotFoundError, match="no such deck file"):
        atoll.Writer(table, "a", deck=deck)
    assert table.runs() == []


@pytest.mark.parametrize("deck", ["lj", '{"dt":0.5}', "dt=0.5", "units lj", "run\nin.lammps", ""])
def test_a_short_deck_is_a_deck(table, deck: str):
    atoll.Writer(table, "a", deck=deck).close()
    assert table.run_attributes("a")["deck"] == deck


def test_a_deck_may_lie_at_home(table, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "in.lammps").write_text("units lj")
    for run, deck in (("a", "~/in.lammps"), ("b", Path("~/in.lammps"))):
        atoll.Writer(table, run, deck=deck).close()
        assert table.run_attributes(run)["deck"] == "units lj"


def test_a_run_remembers_where_its_last_attempts_ran(table):
    table.set_attributes({"attempt.note": "mine", "temperature": 310}, run="a")
    for attempt in range(5, 5 + ATTEMPTS_MAX + 3):
        atoll.Writer(table, "a", attempt=attempt).close()
    about = table.attributes(run="a")
    hosts = {int(name.split(".")[1]) for name in about if name.endswith(".host")}
    assert hosts == set(range(8, 8 + ATTEMPTS_MAX))
    assert (about["attempt.note"], about["temperature"]) == ("mine", 310)


def test_runs_are_found_by_the_numbers_among_their_attributes(table):
    noted = {"temperature": 310, "dt": numpy.float32(0.5), "wet": numpy.bool_(True), "seed": 2**70, "drift": float("nan")}
    atoll.Writer(table, "a", attributes={**noted, "solvent": "water"}).close()
    table.set_attributes({"temperature": 290}, run="b")
    assert [run.name for run in table.runs(where="temperature > 300 and dt = 0.5 and wet")] == ["a"]
    kept = table.attributes(run="a")
    assert (kept["temperature"], kept["dt"], kept["wet"], kept["solvent"]) == (310, 0.5, True, "water")
    assert (kept["seed"], kept["drift"]) == (str(2**70), "nan"), "what JSON has no number for is a text"
    atoll.Writer(table, "a").close()
    assert table.attributes(run="a")["temperature"] == 310, "it stays what it is"


def test_a_run_that_begins_anew_has_nothing_of_the_deleted_one(table):
    with atoll.Writer(table, "a", deck="old deck", attributes={"temperature": 300.0, "solvent": "water"}) as writer:
        writer.step(0, 0.0, rows())
    table.delete(run="a")
    with atoll.Writer(table, "a", attributes={"temperature": 310.0}) as writer:
        writer.step(0, 0.0, rows())
    noted = table.attributes(run="a")
    assert noted["temperature"] == 310.0
    assert not {"solvent", "deck"} & set(noted)


def test_an_answer_is_a_step_like_any_frame(table):
    with atoll.Writer(table, run="first") as writer:
        writer.step(1, 0.1, rows())
    with atoll.Writer(table, run="second") as writer:
        writer.step(2, 0.2, table.of_runs("first").select("pid", "x", "pos").read())
    assert steps_of(table) == {1: ROWS, 2: ROWS}
