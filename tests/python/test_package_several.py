"""Several stores queried as one: they answer like one table that holds the rows of all of them."""

import dataclasses
import os
import pickle
import random
import shutil
import warnings
from pathlib import Path
from urllib.parse import quote

import numpy
import pytest

import atoll
from conftest import particles

#: Replays a failure: ATOLL_SEED=7 pytest tests/python/test_package_several.py
SEED = int(os.environ.get("ATOLL_SEED", random.randrange(2**32)))
ROLES = {"id": ("pid", "step"), "sample_key": "pid", "index": ("x", "step")}
#: The rows of each store: many, few, and one particle that another store has as well.
SIZES = (3_000, 400, 1_200)


def part(place: int) -> dict[str, numpy.ndarray]:
    """Make the rows of one store. Particles from 100 on are in several stores, with different steps in each."""
    made = particles(SIZES[place], seed=place)
    made["pid"] = made["pid"] + (100 * place)
    made["step"] = made["step"] + 10 * place
    return made


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    whole = atoll.open(folder / "whole").create_table("run", part(0), **ROLES)
    for place in range(len(SIZES)):
        with atoll.open(folder / f"rank-{place}") as store:
            made = part(place)
            table = store.create_table("run", made, **ROLES)
            half = len(made["pid"]) // 2
            for rows in (slice(half), slice(half, None)):
                table.append({name: values[rows] for name, values in made.items()})
            if place == 0:
                table.pack(whole=True)
            whole.append(made)
    whole.store.close()
    return folder


@pytest.fixture(scope="module")
def one(folders: Path) -> atoll.Table:
    """All rows in one table."""
    return atoll.open(folders / "whole").table("run")


@pytest.fixture(scope="module")
def all_of_them(folders: Path) -> atoll.Table:
    """The same rows in three stores."""
    return atoll.open(folders / "rank-*").table("run")


def same(found: dict[str, numpy.ndarray], expected: dict[str, numpy.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        numpy.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def asked(table: atoll.Table, seed: int) -> atoll.Query:
    """Make a random query of a table."""
    draw = random.Random(seed)
    query = table.query()
    if draw.random() < 0.6:
        low = draw.uniform(0, 0.9)
        query = query.box(x=(low, low + draw.uniform(0, 0.5)))
    if draw.random() < 0.3:
        query = query.where(f"type = {draw.randint(1, 3)}")
    if draw.random() < 0.5:
        after = draw.choice([0.0, 0.0, draw.uniform(0, 0.5)])
        query = query.window(after, draw.uniform(after, 1))
    if draw.random() < 0.5:
        query = query.first(draw.choice([0, 1, 7, 50, 500]))
    if draw.random() < 0.3:
        query = query.limit(draw.choice([0, 1, 30, 3_000]))
    if draw.random() < 0.4:
        query = query.select(*draw.sample(["pid", "x", "pos", "type"], draw.randint(1, 3)))
    return query


def test_random_queries_of_three_stores_are_those_of_one_table(one: atoll.Table, all_of_them: atoll.Table) -> None:
    print(f"ATOLL_SEED={SEED}")
    for seed in range(SEED, SEED + 60):
        expected, found = asked(one, seed), asked(all_of_them, seed)
        told = f"ATOLL_SEED={seed}: {found!r}"
        rows = expected.numpy()
        try:
            same(found.numpy(), rows)
            count = len(next(iter(rows.values())))
            assert found.count() == count
            batches = [step.batch.numpy() for step in found.refine()]
            same({name: numpy.concatenate([batch[name] for batch in batches]) for name in rows}, rows)
        except AssertionError as error:
            raise AssertionError(told) from error


def test_the_first_of_many_read_little_of_each(all_of_them: atoll.Table) -> None:
    work = all_of_them.first(5).read().work
    assert work.rows_touched < sum(SIZES) / 2, work


def test_estimates_are_over_all_of_them(one: atoll.Table, all_of_them: atoll.Table) -> None:
    for ask in (
        lambda table: table.sample(0.3).mean("x"),
        lambda table: table.sample(0.3).sum("x"),
        lambda table: table.quantile("x", 0.5),
        lambda table: table.sample(0.4).group_means("x", by="type")[2],
        lambda table: table.sample(0.4).histogram("x", [0, 0.5, 1])[1].share,
    ):
        expected, found = ask(one), ask(all_of_them)
        assert found.value == pytest.approx(expected.value, rel=1e-12)
        assert found.half_width == pytest.approx(expected.half_width, rel=1e-9)
    assert all_of_them.within(relative=0.1).mean("x").is_valid


def test_what_is_asked_again_is_the_same_version_while_others_write(folders: Path, tmp_path: Path) -> None:
    places = []
    for place in range(2):
        places.append(tmp_path / f"s{place}")
        table = atoll.open(places[-1]).create_table("run", part(place), **ROLES)
        table.append(part(place))
        table.store.close()
    together = atoll.open(places).table("run")
    before = together.read()
    writer = atoll.open(places[1]).table("run")
    more = part(2)
    writer.append(more)
    assert len(together.as_of(before.version).read()) == len(before)
    now = together.read()
    assert len(now) == len(before) + len(more["pid"])
    assert now.version > before.version
    assert len(together.runs()) == 3
    assert together.version() == now.version


def test_a_version_of_several_holds_for_one_table_object_and_splits_carry_it(all_of_them: atoll.Table) -> None:
    query = all_of_them.as_of(all_of_them.version())
    rows = query.count()
    assert rows == sum(SIZES)
    with pytest.raises(atoll.errors.NotFoundError, match="has not seen a version"):
        pickle.loads(pickle.dumps(query)).count()
    assert sum(split.count() for split in pickle.loads(pickle.dumps(query.splits(2)))) == rows


def test_several_are_read_only_and_say_which_of_them_does_not_fit(folders: Path, tmp_path: Path) -> None:
    together = atoll.open([folders / "rank-0", folders / "rank-1"])
    assert together.tables() == ["run"]
    assert [os.path.basename(url) for url in together.urls] == ["rank-0", "rank-1"]
    table = together.table("run")
    for change in (
        lambda: table.append(part(1)),
        lambda: table.delete("x > 0"),
        lambda: table.pack(),
        lambda: table.vacuum(),
        lambda: table.begin("again"),
        lambda: table.create_snapshot("now"),
    ):
        with pytest.raises(atoll.errors.UnsupportedError, match="read-only"):
            change()
    for question, ask in {
        "snapshot": table.snapshots,
        "a snapshot": lambda: table.as_of("now"),
    }.items():
        with pytest.raises(atoll.errors.UnsupportedError, match=f"{question}.* of several tables .* not supported yet") as error:
            ask()
        assert "read-only" not in str(error.value)
        assert "each store" in error.value.hint
    other = tmp_path / "other"
    with atoll.open(other) as store:
        store.create_table("run", {"pid": "int64", "x": "float64"}, id="pid", index="x")
        with pytest.raises(atoll.errors.InvalidInputError, match="other"):
            atoll.open([folders / "rank-0", other]).table("run")
        store.drop_table("run")
        with pytest.raises(atoll.errors.NotFoundError, match="other"):
            atoll.open([folders / "rank-0", other]).table("run")
    with pytest.raises(atoll.errors.NotFoundError):
        atoll.open(folders / "nothing-*")
    with pytest.raises(atoll.errors.NotFoundError):
        atoll.open([folders / "rank-0", folders / "rank-9"])
    with pytest.raises(atoll.errors.InvalidInputError):
        atoll.open([])
    assert not (folders / "rank-9").exists(), "a store is made where none was"


def test_several_can_be_pickled_and_shown(all_of_them: atoll.Table) -> None:
    again = pickle.loads(pickle.dumps(all_of_them.where("x < 0.5").sample(0.2)))
    same(again.numpy(), all_of_them.where("x < 0.5").sample(0.2).numpy())
    assert "rank-1" in repr(all_of_them.store) and "rank-1" in all_of_them.store._repr_html_()


def test_steps_that_are_alike_in_two_stores_are_each_announced(tmp_path: Path) -> None:
    for name in ("left", "right"):
        with atoll.open(tmp_path / name) as store:
            table = store.create_table("run", {"pid": "int64", "step": "int64"}, id=("pid", "step"), index="step")
            for step in (1, 2):
                table.append({"pid": [1], "step": [step]}, run="r", step=step)
    with atoll.open([tmp_path / "left", tmp_path / "right"]) as stores:
        followed = stores.table("run").follow(from_start=True)
        assert sorted(next(followed).step for _ in range(4)) == [1, 1, 2, 2]


def test_what_is_noted_on_a_column_keeps_stores_apart_only_if_their_units_differ(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    noted = [
        {"seen by": "build 7"},
        {"seen by": "build 8", "unit": "u", "description": "of an ion"},
        {"PARQUET:field_id": "3"},
        {"unit": "g"},
    ]
    for place, notes in enumerate(noted):
        fields = [pyarrow.field("id", pyarrow.int64()), pyarrow.field("mass", pyarrow.float64(), metadata=notes)]
        with atoll.open(tmp_path / f"noted-{place}") as store:
            table = store.create_table("run", pyarrow.schema(fields), id="id", index="mass")
            table.append({"id": [place], "mass": [2.0]})
    with atoll.open(tmp_path / "noted-[0-2]") as stores:
        together = stores.table("run")
        assert together.mean("mass").value_unit == "u"
        for batches in (together.query().batches(), together.query().unordered().batches()):
            found = [pyarrow.table(batch).schema.field("mass").metadata for batch in batches]
            assert found and all(notes == {b"unit": b"u", b"description": b"of an ion"} for notes in found)
    for others in ("[13]", "[0-3]"):
        with atoll.open(tmp_path / f"noted-{others}") as stores:
            with pytest.raises(atoll.errors.InvalidInputError, match="unit g instead of .*unit u") as told:
                stores.table("run")
            assert str(told.value).startswith(f'table "run" of {tmp_path / "noted-3"} cannot be combined')


@pytest.fixture
def sweep(tmp_path: Path) -> atoll.Table:
    """A store for each temperature, each with a run of the same name and a cell of its own."""
    for place in range(4):
        with atoll.open(tmp_path / f"T{place}") as store:
            table = store.create_table("d", {"id": "i8", "x": "f8"}, id="id", index="x")
            rows = numpy.arange(100)
            table.append({"id": rows, "x": numpy.full(100, float(place))}, run="main", step=0)
            table.append({"id": rows[:10] + 100, "x": numpy.full(10, float(place))}, run=f"own-{place}", step=0)
            table.set_attributes({"temperature": 300 + place}, run="main")
            table.set_cell(atoll.Cell((10.0 + place,)))
            if place == 3:
                table.pack(whole=True)
    return atoll.open(tmp_path / "T*").table("d")


def test_patterns_name_stores_that_are_there_and_create_none(sweep: atoll.Table, tmp_path: Path, monkeypatch) -> None:
    def opened(place: object) -> list[str]:
        with atoll.open(place) as stores:
            return [Path(url).name for url in stores.urls]

    for pattern, names in {"T[02]": "02", "T?": "0123", "T[1-3]": "123", "T[!0]": "123", "?[3]": "3", "[T]*": "0123"}.items():
        assert opened(tmp_path / pattern) == opened([tmp_path / pattern]) == [f"T{name}" for name in names], pattern
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    for pattern in ("T[45]", "runs/[ab]", "runs/run-?", "T??", "[T]"):
        # Only brackets can be meant as the name of a new store, which the test below creates.
        for place, create in [(pattern, False), ([pattern], True), (pattern, "?" in pattern)]:
            with pytest.raises(atoll.errors.NotFoundError, match="no store is at") as error:
                atoll.open(place, create=create)
            assert "[ab]" in error.value.hint
    # What seems to be the options of a URL is refused as before, and names no other store.
    with pytest.raises(atoll.errors.InvalidInputError):
        atoll.open("T0?mode=read")
    assert sorted(tmp_path.iterdir()) == before
    # A folder that has brackets in its name is that folder, also for a new store in it.
    (tmp_path / "T[02]").mkdir()
    for create in (True, False):
        with atoll.open("T[02]/new", create=create) as store:
            assert Path(store.url) == tmp_path / "T[02]" / "new"


def test_brackets_can_name_a_new_store_and_no_folder_is_taken_for_its_neighbour(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(atoll.errors.NotFoundError, match="no store is at"):
            atoll.open("case[1]", **options)
    assert not os.listdir(tmp_path)
    with pytest.warns(UserWarning, match=r"no store matches case\[1\]: a new store"), atoll.open("case[1]") as store:
        store.create_table("d", {"id": "i8"}, id="id", index="id").append({"id": [1]})
    for place in ("exp1/run-a", "exp[1]/run-b"):
        os.makedirs(place)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with atoll.open("case[1]") as store:
            assert store.url == str(tmp_path / "case[1]") and store.tables() == ["d"]
        for place in ("exp1/run-a", "exp[1]/run-b"):
            atoll.open(place).close()
        for pattern in ("exp[1]/*", "exp[1]/run-[ab]", "exp[1]/run-?", "./exp[1]/*", tmp_path / "exp[1]" / "*"):
            with atoll.open(pattern) as stores:
                assert stores.urls == [str(tmp_path / "exp[1]" / "run-b")], pattern
        # Where a store matches, brackets are a pattern.
        with atoll.open("exp1/run-[ab]") as stores:
            assert stores.urls == [str(tmp_path / "exp1" / "run-a")]


def test_a_store_that_a_pattern_matches_is_opened_whatever_it_is_called(tmp_path: Path) -> None:
    for place, name in enumerate(("odd?1", "odd*2", "odd[3]", "odd4")):
        with atoll.open(f"file:{quote(str(tmp_path / name))}") as store:
            store.create_table("d", {"id": "i8"}, id="id", index="id").append({"id": [place]})
    for pattern, ids in {"odd*": [0, 1, 2, 3], "odd??": [0, 1], "odd[?]1": [0], "odd[*]2": [1], "odd?": [3]}.items():
        with atoll.open(tmp_path / pattern) as stores:
            assert sorted(stores.table("d").numpy()["id"].tolist()) == ids, pattern
            # Its places mean the same stores again.
            with atoll.open(stores.urls) as again:
                assert sorted(again.table("d").numpy()["id"].tolist()) == ids, stores.urls


def test_an_equals_sign_behind_a_question_mark_makes_no_option_of_a_pattern(tmp_path: Path, monkeypatch) -> None:
    for name in ("seed1/dt=0.1", "seed2/dt=0.1", "seed2/dt=0.2", "seed1_dt=0.1", "run1mode=read"):
        atoll.open(tmp_path / "sweep" / name).close()
    monkeypatch.chdir(tmp_path)
    for pattern, count in {
        "sweep/seed?/dt=0.1": 2,
        "sweep/seed?_dt=0.1": 1,
        tmp_path / "sweep" / "seed?" / "dt=0.?": 3,
        # Stores that are there say what is meant.
        "sweep/run?mode=read": 1,
    }.items():
        with atoll.open(pattern) as stores:
            assert len(stores.urls) == count, pattern
    with pytest.raises(atoll.errors.InvalidInputError):
        atoll.open("sweep/seed1?mode=read")
    with pytest.raises(atoll.errors.NotFoundError):
        atoll.open("sweep/seed?/dt=0.3")


def test_the_path_of_a_url_may_be_a_pattern(tmp_path: Path, monkeypatch) -> None:
    for name in ("exp[1]/a", "exp[1]/b", "exp1/c"):
        atoll.open(tmp_path / "100 % here" / name).close()
    monkeypatch.chdir(tmp_path / "100 % here")
    quoted = quote(str(tmp_path / "100 % here"))
    for pattern, names in {
        f"file:{quoted}/*/*": "abc",
        f"file://localhost{quoted}/exp%5B1%5D/*": "ab",
        "file:exp[1]/*": "ab",
        "file:**/c": "c",
    }.items():
        for place in (pattern, [pattern]):
            with atoll.open(place) as stores:
                assert "".join(sorted(Path(url).name for url in stores.urls)) == names, place
    with atoll.open("file:exp*/*?mode=read") as stores:
        assert len(stores.urls) == 3 and all(url.endswith("?mode=read") for url in stores.urls)
        with pytest.raises(atoll.errors.ReadOnlyError):
            stores._stores[0].set_attributes({"project": "tubes"})
    with pytest.raises(atoll.errors.NotFoundError):
        atoll.open("file:exp9/*")


def test_a_folder_that_a_list_names_twice_is_opened_once(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "100 % here"
    for place, name in enumerate(("mine", "other")):
        with atoll.open(folder / name) as store:
            store.create_table("d", {"id": "i8"}, id="id", index="id").append({"id": [place, place + 10]})
    (tmp_path / "latest").symlink_to(folder / "mine")
    quoted = quote(str(folder / "mine"))
    monkeypatch.chdir(folder)
    urls = ["file:mine", f"file:{quoted}", f"file://{quoted}?mode=read", f"file://LocalHost{quoted}"]
    for name in ["mine", *urls, tmp_path / "latest"]:
        with atoll.open([folder / "mine", name, "other"]) as stores:
            assert stores.urls == [str(folder / "mine"), str(folder / "other")], name
            assert stores.table("d").count() == 4, name
    with pytest.raises(atoll.errors.InvalidInputError, match='"elsewhere" is another host'):
        atoll.open([folder / "mine", f"file://elsewhere{quoted}"])


def test_a_store_beside_its_copy_is_refused_and_copies_of_a_store_without_rows_are_not(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "template") as store:
        store.create_table("d", {"id": "i8", "x": "f8"}, id="id", index="x")
    for place, name in enumerate(("one", "two")):
        shutil.copytree(tmp_path / "template", tmp_path / name)
        with atoll.open(tmp_path / name) as store:
            store.table("d").append({"id": [place], "x": [0.5]})
    with atoll.open([tmp_path / "one", tmp_path / "two"]) as stores:
        assert stores.table("d").count() == 2
    shutil.copytree(tmp_path / "two", tmp_path / "copy")
    with atoll.open([tmp_path / "one", tmp_path / "two", tmp_path / "copy"]) as stores:
        table = stores.table("d")
        for ask in (table.count, table.numpy, lambda: table.mean("x"), table.info):
            with pytest.raises(atoll.errors.InvalidInputError, match="tables 2 and 3 .* have rows in common") as told:
                ask()
            assert "open each store once" in told.value.hint


def test_runs_of_one_name_in_two_stores_are_two(sweep: atoll.Table) -> None:
    hot = sweep.of_runs(where="temperature > 301")
    assert (hot.count(), hot.mean("x").value) == (200, 2.5)
    assert [run.name for run in sweep.runs(where="temperature > 301")] == ["main", "main"]
    assert sweep.of_runs("main").count() == 400, "a name is that of each store"
    for both in (hot.of_runs("main"), sweep.of_runs("main").of_runs(where="temperature > 301")):
        assert both.count() == 200
    assert hot.of_runs(where="temperature < 303").mean("x").value == 2.0
    assert hot.of_runs("own-3").count() == 0
    assert sweep.of_runs("own-3", where="temperature = 300").count() == 110
    assert sweep.of_runs(where="temperature > 400").count() == 0
    assert pickle.loads(pickle.dumps(hot)).count() == 200
    assert "main of store 2, main of store 3" in repr(hot)
    with pytest.raises(atoll.errors.NotFoundError, match="nobody"):
        sweep.of_runs("nobody", where="temperature = 300").count()


def test_what_differs_from_store_to_store_is_no_single_answer(sweep: atoll.Table) -> None:
    for ask in (
        lambda: sweep.attributes(run="main"),
        sweep.cell,
        lambda: sweep.near((9.9,), 0.4),
        lambda: sweep.box("x=9:11", wrap=True),
    ):
        with pytest.raises(atoll.errors.UnsupportedError, match="differ") as raised:
            ask()
        assert "atoll.open(url)" in raised.value.hint
    assert sweep.near((9.9,), 0.4, cell=atoll.Cell((10.0,))).count() == 110
    assert sweep.attributes(run="own-1") == {}
    assert sweep.of_runs("own-1").near((10.9,), 0.4).count() == 0, "in the cell of the one store that has it"
    assert sweep.of_runs("own-0").near((9.9,), 0.4).count() == 10
    for url in sweep.store.urls:
        with atoll.open(url) as store:
            store.table("d").set_attributes({"temperature": 300}, run="main")
            store.table("d").set_cell(atoll.Cell((10.0,)))
    assert sweep.attributes(run="main") == {"temperature": 300}
    assert sweep.near((9.9,), 0.4).count() == 110


def test_the_cell_of_the_one_run_that_is_asked_for_is_its_own(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "one") as store:
        table = store.create_table("d", {"id": "i8", "x": "f8"}, id="id", index="x")
        table.append({"id": [1, 2], "x": [0.1, 5.0]}, run="a", step=0)
        table.append({"id": [3, 4], "x": [0.1, 5.0]}, run="b", step=0)
        table.set_cell(atoll.Cell((10.0,)), run="a")
        assert table.of_runs("a").near((9.9,), 0.5).count() == 1
        assert table.of_runs("a").box("x=9:11", wrap=True).count() == 1
        assert table.of_runs("b").near((9.9,), 0.5).count() == 0
        assert table.of_runs("a", "b").near((9.9,), 0.5).count() == 0


def test_what_several_are_made_of_adds_up(all_of_them: atoll.Table) -> None:
    of_each = []
    for url in all_of_them.store.urls:
        with atoll.open(url, read_only=True) as store:
            of_each.append(store.table("run").info())
    info = all_of_them.info()
    assert (info.name, info.version, info.rows) == ("run", all_of_them.version(), sum(SIZES))
    assert info._fields[0] == "name" and info._fields[-1] == "time_unit" and info.time_unit is None
    for name in info._fields[1:-1]:
        assert getattr(info, name) == sum(getattr(each, name) for each in of_each), name


def test_splits_of_several_are_together_the_query_and_of_the_version_in_which_they_were_made(sweep: atoll.Table) -> None:
    queries = [sweep.query(), sweep.where("x > 1"), sweep.sample(0.5), sweep.of_runs(where="temperature > 301")]
    divided = [(query.splits(readers), query.numpy()) for query in queries for readers in (1, 2, 3, 50)]
    assert {len(splits) for splits, _ in divided[:4]} == {1, 2, 3, 7}, "three stores of two objects, and a packed one"
    version = sweep.version()
    for url in sweep.store.urls:
        with atoll.open(url) as store:
            store.table("d").append({"id": [1000], "x": [2.0]}, run="later", step=0)
            store.table("d").pack(whole=True)
    for splits, expected in divided:
        # These stores, opened anew, have not seen this version of the union.
        splits = pickle.loads(pickle.dumps(splits))
        with atoll.open(sweep.store.urls) as elsewhere:
            splits = [dataclasses.replace(split, table=elsewhere.table("d")) for split in splits]
            found = [split.read() for split in splits]
            assert all(split.version == answer.version == version for split, answer in zip(splits, found, strict=True))
            assert sum(split.count() for split in splits) == len(expected["id"])
            of_all = [answer.numpy() for answer in found]
            rows = sorted((row for each in of_all for row in zip(each["id"].tolist(), each["x"].tolist(), strict=True)))
        assert rows == sorted(zip(expected["id"].tolist(), expected["x"].tolist(), strict=True))


def test_splits_of_several_are_estimated_and_refuse_another_version(sweep: atoll.Table) -> None:
    splits = sweep.splits(3)
    assert sum(split.sum("x").value for split in splits) == sweep.sum("x").value
    for split in splits:
        assert sum(len(step.batch) for step in split.refine()) == split.count() == split.about_rows
        assert sum(len(batch) for batch in split.unordered().batches(40)) == split.count()
        assert "about" in repr(split) and "reads" in split.explain()
    with atoll.open(sweep.store.urls[0]) as store:
        store.table("d").append({"id": [1000], "x": [2.0]}, run="later", step=0)
        with pytest.raises(atoll.errors.InvalidInputError, match="not a split of a query of this table and version"):
            dataclasses.replace(splits[0], table=store.table("d"), version=None).count()
    with pytest.raises(atoll.errors.InvalidInputError, match="not a split of a query of this table and version"):
        splits[0].as_of(sweep.version()).count()
    with pytest.raises(atoll.errors.InvalidInputError, match="cannot be divided"):
        sweep.first(5).splits(2)


def test_an_error_within_is_not_hidden_by_one_of_closing(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = atoll.open([str(folders / f"rank-{rank}") for rank in range(2)])

    def fail() -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(stores, "close", fail)
    with pytest.raises(ValueError, match="mine") as told, stores:
        raise ValueError("mine")
    assert any("the disk is gone" in note for note in told.value.__notes__)
    with pytest.raises(OSError, match="gone"), stores:
        pass
