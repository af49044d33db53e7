"""A query answers what checking every row would: boxes, conditions, samples, and all of them together."""

import pickle
from pathlib import Path

import numpy
import pytest
from conftest import particles

import atoll

MADE = particles(5_000, seed=1)
KEYS = list(zip(MADE["pid"].tolist(), MADE["step"].tolist(), strict=True))


def keys(query: atoll.Query) -> set:
    found = query.select("pid", "step").numpy()
    together = list(zip(found["pid"].tolist(), found["step"].tolist(), strict=True))
    assert len(set(together)) == len(together)
    return set(together)


def those(mask: numpy.ndarray) -> set:
    return {key for key, holds in zip(KEYS, mask.tolist(), strict=True) if holds}


def test_a_box_holds_its_low_end_and_not_its_high_one(table: atoll.Table) -> None:
    assert keys(table.box(step=(2, 5))) == those((MADE["step"] >= 2) & (MADE["step"] < 5))
    assert keys(table.box(x=(None, 0.25))) == those(MADE["x"] < 0.25)
    assert keys(table.box({"pos[0]": (0, None)}, x=(0.5, 0.75))) == those(
        (MADE["pos"][:, 0] >= 0) & (MADE["x"] >= 0.5) & (MADE["x"] < 0.75)
    )
    assert keys(table.box("x=0.5:0.75")) == keys(table.box(x=(0.5, 0.75)))
    assert keys(table.box(x=(None, None))) == set(KEYS)


def test_conditions_and_boxes_add_up(table: atoll.Table) -> None:
    query = table.where(atoll.col("type") == 2, "x > 0.1").box(step=(0, 5)).where("pos[1] > 0 or step = 3")
    mask = (MADE["type"] == 2) & (MADE["x"] > 0.1) & (MADE["step"] < 5)
    mask &= (MADE["pos"][:, 1] > 0) | (MADE["step"] == 3)
    assert keys(query) == those(mask)


def test_samples_nest_and_go_with_every_condition(table: atoll.Table) -> None:
    small, large, half = keys(table.sample(0.1)), keys(table.sample(0.3)), keys(table.where("x < 0.5"))
    assert small < large
    assert keys(table.sample(0.1).where("x < 0.5")) == small & half
    assert keys(table.where("x < 0.5").sample(0.1)) == small & half
    assert keys(table.sample(0.3).sample(0.1)) == keys(table.sample(0.1).sample(0.3)) == small
    assert keys(table.window(0.1, 0.3)) == large - small
    assert keys(table.window(0.1, 0.3).sample(0.1)) == set()


def test_a_sampled_entity_keeps_its_whole_path(table: atoll.Table) -> None:
    sampled = keys(table.sample(0.1))
    entities = {pid for pid, _ in sampled}
    assert 20 < len(entities) < 90
    assert sampled == {key for key in KEYS if key[0] in entities}


def test_rows_without_an_order_are_the_same_rows(table: atoll.Table) -> None:
    table.pack()
    ordered = table.where("x < 0.75").sample(0.5)
    assert keys(ordered.unordered()) == keys(ordered)
    assert len(ordered.unordered().read()) == len(ordered.read())
    assert keys(ordered.unordered().first(7)) == keys(ordered.first(7))
    assert len(table.where("x > 100").unordered().read()) == 0
    assert "the lightest first" in ordered.read()._repr_html_()
    assert "in no order" in ordered.unordered().read()._repr_html_()


def test_a_limit_takes_the_lightest_rows(table: atoll.Table) -> None:
    everything = table.select("pid", "step").read().numpy()
    for least in (table.limit(37).limit(50), table.limit(50).limit(37)):
        limited = least.select("pid", "step").read().numpy()
        assert limited["pid"].tolist() == everything["pid"][:37].tolist()
    assert len(table.limit(0).read()) == 0
    with pytest.raises(atoll.errors.InvalidInputError):
        table.limit(-1)


def test_the_first_units_are_whole(table: atoll.Table) -> None:
    everything = table.select("pid").read().numpy()["pid"]
    first = list(dict.fromkeys(everything.tolist()))[:7]
    found = table.first(7).select("pid").numpy()["pid"]
    assert found.tolist() == [pid for pid in everything.tolist() if pid in set(first)]


def test_columns_come_in_the_order_asked_for(table: atoll.Table) -> None:
    assert table.select("x", "pid").read().columns == ["x", "pid"]
    assert table.read().columns == list(MADE)
    with pytest.raises(atoll.errors.NotFoundError, match="nope"):
        table.select("nope").read()


def test_a_query_never_changes(table: atoll.Table) -> None:
    query = table.sample(0.1)
    before = repr(query)
    query.where("x > 0.5").limit(3).select("x")
    assert repr(query) == before
    with pytest.raises(AttributeError):
        query.until = 1.0


def test_an_answer_tells_what_it_took(table: atoll.Table) -> None:
    answer = table.sample(0.01).read()
    assert answer.work.rows_returned == len(answer)
    assert len(answer) <= answer.work.rows_touched < 5_000
    assert answer.version == table.version()


def test_tables_and_queries_say_what_they_are(table: atoll.Table) -> None:
    query = table.box(x=(0, 0.5)).sample(0.1).select("x").limit(5)
    for said in ("run", "x >= 0 and x < 0.5", "sample 0.1", "5 rows", "columns x"):
        assert said in repr(query), said
    assert "sample key" in table._repr_html_()
    shown = query.read()._repr_html_()
    assert shown.count("<tr>") == 6
    assert "5 rows" in shown


def test_a_notebook_shows_types_and_roles_as_a_table_is_made_with_them(store: atoll.Store) -> None:
    schema = {"id": "int64", "pos": "float32[3]", "x": "float64?"}
    shown = store.create_table("t", schema, id="id", index=("pos[0]", "x"))._repr_html_()
    assert "<td>pos</td><td>float32[3]</td><td>index</td>" in shown
    assert "<td>x</td><td>float64 or null</td><td>index</td>" in shown


def test_a_notebook_shows_what_a_query_asks_without_asking_it(store: atoll.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = {"id": "int64", "<i>x": "float64", "kind": "utf8"}
    table = store.create_table("<b>odd", odd, id="id", index="<i>x")
    table.append({"id": [1], "<i>x": [0.5], "kind": ["<td>"]}, run="<hr>")
    query = table.box({"<i>x": (0, 1)}).where(atoll.col("kind") == "<td>").of_runs("<hr>").select("<i>x", "kind")
    asked = [
        (query.sample(0.1).limit(1_000), ("<td>sample</td><td>0.1 of the units", "<td>at most</td><td>1,000 rows")),
        (query.window(0.1, 0.2).first(7), ("0.1 to 0.2", "7 units")),
        (query.as_of(1).unordered().with_arriving(), ("<td>as of version</td><td>1</td>", "<td>order</td><td>none")),
        (query.splits(1)[0], ("Split here", "rows before conditions")),
    ]

    class Named:
        """A table of which only the name is known."""

        name = table.name

    with monkeypatch.context() as there:
        there.setattr(table, "_native", Named())
        for each, wanted in asked:
            shown = each._repr_html_()
            for told in ("&lt;b&gt;odd", "&lt;i&gt;x", "&lt;td&gt;", "&lt;hr&gt;", *wanted):
                assert told in shown, (told, shown)
            assert not any(raw in shown for raw in ("<b>odd", "<i>", "'<td>'", "<hr>")), shown
    assert pickle.loads(pickle.dumps(query))._repr_html_() == query._repr_html_()


def test_making_and_showing_a_query_reads_nothing(table: atoll.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    native = table._native

    class OnlyKnown:
        """The native half of a table, of which only what needs no read may be asked."""

        def __getattr__(self, name: str) -> object:
            assert name in ("name", "roles", "time_unit", "known_columns"), f"{name} reads the store"
            return getattr(native, name)

    with monkeypatch.context() as there:
        there.setattr(table, "_native", OnlyKnown())
        query = table.box({"pos[0]": (0, 1)}, x=(0, 1)).where(atoll.col("pos")[1] > 0).select("pid", "x").sample(0.5)
        with pytest.raises(atoll.errors.InvalidInputError, match="is an element"):
            table.select("pos[0]")
        assert "pid, step, x, pos, type" in repr(table) and repr(table) in repr(query)
    mask = (MADE["pos"][:, 0] >= 0) & (MADE["pos"][:, 0] < 1) & (MADE["pos"][:, 1] > 0)
    assert 0 < len(query.read()) < mask.sum()


def test_an_empty_table_answers_with_no_rows(store: atoll.Store) -> None:
    table = store.create_table("empty", MADE, id=("pid", "step"), index="x")
    answer = table.box(x=(0, 1)).sample(0.5).read()
    assert len(answer) == 0
    assert answer.numpy()["pos"].shape == (0, 3)
    assert answer.arrow().num_rows == len(answer.pandas()) == len(answer.polars()) == 0


def test_appending_no_rows_is_harmless(store: atoll.Store) -> None:
    table = store.create_table("run", MADE, id=("pid", "step"), index="x")
    table.append({name: values[:0] for name, values in MADE.items()})
    table.append(MADE)
    assert len(table.read()) == 5_000


def test_each_append_adds_and_a_repeated_step_does_not(store: atoll.Store) -> None:
    table = store.create_table("run", MADE, id=("pid", "step"), index="x")
    first, second = ({name: values[part] for name, values in MADE.items()} for part in (slice(0, 9), slice(9, 20)))
    table.append(first)
    table.append(second)
    assert len(table.read()) == 20
    third = {name: values[20:30] for name, values in MADE.items()}
    version = table.append(third, run="r", step=5)
    with pytest.warns(UserWarning, match="step 5 and rank 0 already"):
        assert table.append({**third, "x": third["x"] + 1}, run="r", step=5) == version
    # A caller that names the attempt is retrying on purpose.
    assert table.append(third, run="r", step=5, attempt=1) == version
    assert len(table.read()) == 30


def test_a_count_is_exact_and_an_answer_comes_little_by_little(table: atoll.Table) -> None:
    query = table.where("x < 0.5").select("pid", "step", "x")
    assert query.count() == len(query.read()) == int((MADE["x"] < 0.5).sum())
    shares, found = [0.0], []
    for refined in query.refine():
        found += refined.batch.numpy()["x"].tolist()
        shares.append(refined.cut)
        so_far = query.sample(refined.cut).read().numpy()["x"].tolist()
        assert found == so_far, "what came so far is a sample"
    assert refined.is_last and shares == sorted(shares) and len(shares) > 2
    assert found == query.numpy()["x"].tolist()


def test_batches_are_read_as_they_are_asked_for(table: atoll.Table) -> None:
    batches = table.select("x").batches(rows=100)
    first = next(batches)
    assert len(first) == 100
    assert first.work.rows_touched < 5_000
    assert sum(len(batch) for batch in batches) == 4_900


def test_an_explanation_tells_what_would_be_read(table: atoll.Table) -> None:
    told = table.where("x < 0.5").sample(0.1).explain()
    assert "x < 0.5" in told
    with pytest.raises(atoll.errors.InvalidInputError, match="nope") as raised:
        table.where("nope > 1").explain()
    assert "^" in str(raised.value)


def test_packing_changes_no_answer_and_makes_boxes_read_less(store: atoll.Store) -> None:
    table = store.create_table("run", MADE, id=("pid", "step"), sample_key="pid", index=("x", "step"))
    for part in range(10):
        table.append({name: values[part::10] for name, values in MADE.items()})
    query = table.box(x=(0.4, 0.41)).select("pid", "step")
    before, sampled = query.read(), keys(table.sample(0.3))
    packed = table.pack(whole=True)
    assert packed.rows == 5_000 and packed.version == table.version()
    after = query.read()
    assert keys(query) == those((MADE["x"] >= 0.4) & (MADE["x"] < 0.41))
    assert after.numpy()["pid"].tolist() == before.numpy()["pid"].tolist()
    assert keys(table.sample(0.3)) == sampled
    assert after.work.requests < before.work.requests
    assert len(table.as_of(before.version).read()) == 5_000


def test_batches_in_no_order_hold_a_part_of_the_rows_and_are_all_of_them(store: atoll.Store, tmp_path: Path) -> None:
    random, count = numpy.random.default_rng(1), 4_096
    table = store.create_table("wide", {"id": "int64", "v": "float64[32]"}, id="id", index="id")
    for step in range(24):
        # One megabyte each.
        ids = numpy.arange(count) + count * step
        table.append({"id": ids, "v": random.normal(size=(count, 32))}, run="a", step=step)
    held, found, versions = 0, [], set()
    for batch in table.unordered().batches(1_000):
        assert 0 < len(batch) <= 1_000
        held = max(held, batch.work.rows_touched - len(found))
        found += batch.numpy()["id"].tolist()
        versions.add(batch.version)
    assert sorted(found) == list(range(24 * count))
    assert held < 0.45 * len(found), "the rows of half of the table were held"
    assert versions == {table.version()}
    # A limit on rows keeps the lightest.
    some = [row for batch in table.unordered().limit(50).batches(20) for row in batch.numpy()["id"].tolist()]
    assert some == table.limit(50).read().numpy()["id"].tolist()
    store.close()
    second = atoll.open(tmp_path / "second").create_table("wide", {"id": "int64", "v": "float64[32]"}, id="id", index="id")
    second.append({"id": [-1], "v": numpy.zeros((1, 32))})
    second.store.close()
    with atoll.open([tmp_path / "tables", tmp_path / "second"]) as stores:
        together = stores.table("wide").where("id < 5000").unordered()
        ids = [row for batch in together.select("id").batches() for row in batch.numpy()["id"].tolist()]
    assert sorted(ids) == list(range(-1, 5_000))
