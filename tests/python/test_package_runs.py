"""Runs and steps: times, attempts, ranks, and the steps that a query covers."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

import atoll
from conftest import particles

STEPS = range(0, 50, 10)


def frame(step: int, count: int = 20) -> dict:
    made = particles(count, seed=step, steps=1)
    return {**made, "step": numpy.full(count, step)}


@pytest.fixture
def run(store: atoll.Store) -> atoll.Table:
    table = store.create_table("run", frame(0), id=("pid", "step"), sample_key="pid", index=("x", "step"))
    for step in STEPS:
        table.append(frame(step), run="a", step=step, time=step * 0.01)
    return table


def steps_in(query: atoll.Query) -> set:
    return set(query.numpy()["step"].tolist())


def test_steps_and_runs_are_listed(run: atoll.Table) -> None:
    assert [(step.run, step.step, step.time, step.rows) for step in run.steps()] == [
        ("a", step, step * 0.01, 20) for step in STEPS
    ]
    (found,) = run.runs()
    assert (found.name, found.attempt, found.ranks, found.last_complete, found.published) == ("a", 1, 1, 40, 40)
    assert (found.steps, found.rows) == (5, 100)
    assert run.last_complete("a") == 40
    assert run.last_complete("nobody") is None
    with pytest.raises(atoll.errors.NotFoundError, match="nobody"):
        run.steps("nobody")


def test_a_step_is_found_by_number_and_by_time(run: atoll.Table) -> None:
    assert steps_in(run.at(step=20)) == {20}
    assert steps_in(run.at(time=0.3)) == {30}
    assert steps_in(run.at(time=0.34, nearest=True)) == {30}
    # Halfway between two steps, both are the nearest.
    assert steps_in(run.at(time=-5, nearest=True)) == {0}
    assert steps_in(run.last()) == {40}
    with pytest.raises(atoll.errors.NotFoundError, match="time 0.34") as raised:
        run.at(time=0.34)
    assert "nearest" in raised.value.hint
    with pytest.raises(atoll.errors.InvalidInputError):
        run.at()
    with pytest.raises(atoll.errors.InvalidInputError):
        run.at(step=1, time=1.0)


def test_a_time_is_that_of_its_own_steps_and_not_of_others_with_their_numbers(run: atoll.Table) -> None:
    def found(query: atoll.Query) -> list[tuple[int, float]]:
        rows = query.numpy()
        return sorted(set(zip(rows["step"].tolist(), rows["x"].tolist(), strict=True)))

    # Run b has the step that run a has at 0.2 as well, at another time or without a time.
    run.append({**frame(20), "x": numpy.full(20, 2.0)}, run="b", step=20, time=7.0)
    run.append({**frame(30), "x": numpy.full(20, 3.0)}, run="b", step=30)
    assert 2.0 not in [x for _, x in found(run.at(time=0.2))] and run.at(time=0.2).count() == 20
    assert found(run.at(time=7.0)) == [(20, 2.0)]
    assert found(run.at(time=6.9, nearest=True)) == [(20, 2.0)]
    assert run.at(time=0.3).count() == 20
    # The same time and the same step in both runs.
    run.append({**frame(40), "x": numpy.full(20, 4.0)}, run="b", step=40, time=0.4)
    assert run.at(time=0.4).count() == 40
    # The same time at different steps: the other combinations of run and step must not be included.
    run.append(frame(10), run="c", step=10, time=0.0)
    run.append(frame(20), run="c", step=20, time=0.2)
    assert run.at(time=0.2).count() == 40
    with pytest.raises(atoll.errors.UnsupportedError, match="time 0 .* step 10 of run 'a'") as raised:
        run.at(time=0.0)
    assert "of_runs('a').where(\"step = 0\")" in raised.value.hint
    with pytest.raises(atoll.errors.NotFoundError):
        run.at(time=float("nan"), nearest=True)


def test_nothing_is_last_before_the_first_step(store: atoll.Store) -> None:
    table = store.create_table("empty", frame(0), id=("pid", "step"), index="x")
    with pytest.raises(atoll.errors.NotFoundError, match="no step") as raised:
        table.last()
    assert "follow()" in raised.value.hint


def test_without_a_step_the_next_one_is_written(run: atoll.Table) -> None:
    run.append(frame(41), run="a")
    assert run.last_complete("a") == 41
    run.append(frame(0), run="b")
    assert run.last_complete("b") == 0


def test_each_append_without_a_step_is_a_step_though_other_ranks_have_not_come(store: atoll.Store) -> None:
    table = store.create_table("run", frame(0), id=("pid", "step"), index="x")
    table.begin("a", ranks=2)
    for rank in range(2):
        table.append(frame(0, count=1 + rank), run="a", rank=rank)
        table.append(frame(1, count=10 + rank), run="a", rank=rank)
        table.append(frame(7, count=20), run="a", rank=rank, step=7)
        table.append(frame(8, count=30), run="a", rank=rank)
    assert [(step.step, step.rows) for step in table.steps("a")] == [(0, 3), (1, 21), (7, 40), (8, 60)]


def test_threads_that_append_without_a_step_append_steps_of_their_own(store: atoll.Store) -> None:
    table = store.create_table("run", frame(0), id=("pid", "step"), index="x")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda count: table.append(frame(0, count=count), run="a"), range(1, 21)))
    assert sorted(step.rows for step in table.steps("a")) == list(range(1, 21))
    assert [step.step for step in table.steps("a")] == list(range(20))


def test_handles_that_append_as_one_rank_of_one_attempt_get_a_step_each(store: atoll.Store, run: atoll.Table) -> None:
    attempt = run.begin("shared", ranks=2)
    other = store.table("run")
    for number in range(3):
        for handle in (run, other):
            handle.append(frame(number), run="shared", attempt=attempt)
    for step in range(6):
        run.append(frame(step), run="shared", attempt=attempt, step=step, rank=1)
    assert [step.rows for step in run.steps("shared")] == [40] * 6


def test_a_new_attempt_replaces_the_steps_from_where_it_begins(store: atoll.Store, run: atoll.Table) -> None:
    again = store.table("run")
    assert again.begin("a") == 2
    changed = frame(20, count=7)
    again.append(changed, run="a", step=20)
    assert [(step.step, step.attempt, step.rows) for step in run.steps("a")] == [(0, 1, 20), (10, 1, 20), (20, 2, 7)]
    assert steps_in(run.query()) == {0, 10, 20}
    with pytest.raises(atoll.errors.ConflictError):
        run.append(frame(50), run="a", step=50)


def test_whoever_has_begun_no_attempt_replaces_no_step_of_a_run(store: atoll.Store, run: atoll.Table) -> None:
    before, other = run.version(), store.table("run")
    for step in (0, 20, 40):
        with pytest.raises(atoll.errors.ConflictError, match="would replace them") as raised:
            other.append(frame(step, count=3), run="a", step=step)
        assert 'begin("a")' in raised.value.hint
    assert (run.version(), run.last_complete("a")) == (before, 40)
    # The refused append does not end the current attempt either.
    run.append(frame(50), run="a", step=50)
    other.append(frame(60), run="a", step=60)
    assert steps_in(run.query()) == {*STEPS, 50, 60}


def test_an_older_version_is_still_there(store: atoll.Store, run: atoll.Table) -> None:
    before = run.version()
    other = store.table("run")
    other.begin("a")
    other.append(frame(10, count=3), run="a", step=10)
    assert steps_in(run.query()) == {0, 10}
    assert steps_in(run.as_of(before)) == set(STEPS)


def test_a_step_of_several_ranks_is_seen_once_all_have_come(store: atoll.Store) -> None:
    table = store.create_table("run", frame(0), id=("pid", "step"), index="x")
    table.begin("a", ranks=2)
    table.append(frame(0), run="a", step=0, rank=1)
    assert len(table.read()) == 0
    assert len(table.with_arriving().read()) == 20
    assert table.last_complete("a") is None
    other = {**frame(0), "pid": frame(0)["pid"] + 100}
    table.append(other, run="a", step=0, rank=0)
    assert len(table.read()) == 40
    assert table.last_complete("a") == 0


def test_something_can_be_noted_about_a_run(run: atoll.Table) -> None:
    assert run.run_attributes("a") == {}
    run.set_run_attributes("a", {"deck": "airway", "host": "n7"})
    assert run.run_attributes("a") == {"deck": "airway", "host": "n7"}


def test_what_is_noted_leaves_what_others_noted(store: atoll.Store, run: atoll.Table) -> None:
    run.set_cell(atoll.Cell((10.0,), axes=("x",)), run="a")
    run.set_attributes({"temperature": numpy.int64(300), "drift": float("nan"), "tags": ["wet", numpy.float32(0.5)]}, run="a")
    run.set_run_attributes("a", {"deck": "airway", "temperature": "300"})
    kept = run.attributes(run="a")
    assert kept.pop("cell") is not None and run.cell(run="a").lengths == (10.0,)
    assert kept == {"temperature": 300, "drift": "nan", "tags": ["wet", 0.5], "deck": "airway"}
    run.set_attributes({"tags": None, "never": None}, run="a")
    assert "tags" not in run.attributes(run="a") and "deck" in run.attributes(run="a")
    run.set_attributes({"temperature": 310}, run="a", replace=True)
    assert run.attributes(run="a") == {"temperature": 310} and run.cell(run="a") is None
    for wrong in ({"when": object()}, {"deep": [1, {2: {3}}]}):
        with pytest.raises(atoll.errors.InvalidInputError, match="cannot be stored") as raised:
            run.set_attributes(wrong, run="a")
        assert raised.value.hint
    with pytest.raises(atoll.errors.InvalidInputError, match="not a cell"):
        run.set_cell((10, 10, 10))


def test_what_several_note_at_once_is_all_there(run: atoll.Table) -> None:
    def note(place: int) -> None:
        for number in range(20):
            run.set_attributes({f"of.{place}.{number}": number}, run="a")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(note, range(4)))
    assert len(run.attributes(run="a")) == 80


def test_tables_are_listed_and_dropped(store: atoll.Store, run: atoll.Table) -> None:
    store.create_table("other", {"id": "int64"}, id="id", index="id")
    assert store.tables() == ["other", "run"]
    assert "<b>" in store._repr_html_() and "other" in store._repr_html_()
    store.drop_table("other")
    assert store.tables() == ["run"]
    with pytest.raises(atoll.errors.NotFoundError):
        store.drop_table("other")
    with pytest.raises(atoll.errors.NotFoundError):
        store.table("other")


def test_rows_of_some_runs_are_asked_by_name_and_by_what_was_noted_of_them(run: atoll.Table) -> None:
    run.append(frame(0, count=7), run="b", step=0)
    run.set_attributes({"temperature": 300, "solvent": "water"}, run="a")
    run.set_attributes({"temperature": 310.5}, run="b")
    assert [found.name for found in run.runs(where="temperature > 305")] == ["b"]
    assert [found.name for found in run.runs(where=atoll.col("solvent") == "water")] == ["a"]
    for _ in range(2):
        assert (run.of_runs("a").count(), run.of_runs("b").count(), run.of_runs("a", "b").count()) == (100, 7, 107)
        assert run.of_runs(where="temperature < 305").where("step = 0").count() == 20
        assert run.of_runs("a").of_runs("a", "b").count() == 100
        assert len(run.of_runs("b").read()) == 7
        run.pack(whole=True)
    assert "of runs a" in repr(run.of_runs("a"))
    with pytest.raises(atoll.errors.NotFoundError, match="nobody"):
        run.of_runs("nobody").count()
    with pytest.raises(atoll.errors.InvalidInputError, match="pressure"):
        run.runs(where="pressure > 1")
    with pytest.raises(atoll.errors.InvalidInputError, match="names or a condition"):
        run.of_runs()


@pytest.mark.parametrize("run", [None, "new"])
def test_rows_that_do_not_fit_begin_no_run(store: atoll.Store, run: str | None) -> None:
    table = store.create_table("run", frame(0), id=("pid", "step"), index="x")
    for wrong in ({"pid": [1]}, {**frame(0), "zz": numpy.zeros(20)}, {**frame(0), "x": ["a"] * 20}):
        with pytest.raises(atoll.errors.InvalidInputError):
            table.append(wrong, run=run)
    assert table.runs() == []
    table.append(frame(0), run=run)
    assert [each.steps for each in table.runs()] == [1]


def test_rows_that_say_another_step_than_they_are_appended_as_are_warned_of(run: atoll.Table) -> None:
    with pytest.warns(UserWarning, match='step 50, but their column "step" has 0 in one of them') as warned:
        run.append(frame(0), run="a", step=50)
        run.append(frame(0), run="a", step=51)
    assert [each.filename for each in warned] == [__file__], "once, however many steps come"
    assert run.last_complete("a") == 51 and run.at(step=50).count() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.append(frame(60), run="a", step=60)
        with atoll.Writer(run, "b") as writer:
            writer.step(3, 0.0, {name: values for name, values in frame(3).items() if name != "step"})
