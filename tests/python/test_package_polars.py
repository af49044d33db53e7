"""A lazy Polars frame on a table returns what the same frame in memory returns, and reads less."""

import datetime
import os
import random

import numpy
import polars
import pytest
from conftest import particles
from polars.testing import assert_frame_equal

import atoll
from atoll._polars import translated

SCHEMA = {
    "id": "int64",
    "n": "int32?",
    "x": "float64?",
    "f": "float32",
    "flag": "bool?",
    "text": "utf8?",
    "at": "timestamp[us]",
}
NUMBERS = [0, 1, -2, 0.1, 2.5, -0.5, 3e38]


def frame(count: int, draw: random.Random) -> polars.DataFrame:
    def maybe(value: object) -> object:
        return None if draw.random() < 0.1 else value

    numbers = [*NUMBERS, float("nan"), float("inf")]
    rows = {
        "id": list(range(count)),
        "n": [maybe(draw.randint(-3, 3)) for _ in range(count)],
        "x": [maybe(float(draw.choice(numbers))) for _ in range(count)],
        "f": [float(draw.choice(numbers)) for _ in range(count)],
        "flag": [maybe(draw.random() < 0.5) for _ in range(count)],
        "text": [maybe(draw.choice(["a", "b", "it's"])) for _ in range(count)],
        "at": [datetime.datetime(2026, 1, draw.randint(1, 9)) for _ in range(count)],
    }
    types = {"n": polars.Int32, "x": polars.Float64, "f": polars.Float32, "at": polars.Datetime("us")}
    return polars.DataFrame(rows, schema_overrides=types)


def random_predicate(draw: random.Random, depth: int) -> polars.Expr:
    if depth and draw.random() < 0.6:
        left, right = random_predicate(draw, depth - 1), random_predicate(draw, depth - 1)
        return draw.choice([left & right, left | right, ~left])
    number = draw.choice(NUMBERS)
    name = draw.choice(["n", "x", "f", "f"])
    value, low, high = polars.col(name), min(number, 1), max(number, 1)
    return draw.choice(
        [
            value > number, value >= number, value < number, value <= number, value == number, value != number,
            number > value, value.is_between(low, high, closed=draw.choice(["both", "left", "right", "none"])),
            value > polars.lit(number, dtype=polars.Float64), value.is_null(), value.is_not_null(),
            polars.col("flag"), polars.col("text") == "it's", polars.col("text") < "b",
            polars.col("at") >= datetime.datetime(2026, 1, draw.randint(1, 9)),
            polars.col("x").is_nan(), polars.col("n").is_in([1, 2]), polars.col("n") < polars.col("x"),
        ]
    )  # fmt: skip


def test_random_predicates_give_what_polars_gives_in_memory(store: atoll.Store) -> None:
    seed = int(os.environ.get("ATOLL_SEED", random.randrange(2**32)))
    print(f"replay with ATOLL_SEED={seed} and -k test_random_predicates")
    draw = random.Random(seed)
    table = store.create_table("t", SCHEMA, id="id", index=("x", "f"))
    memory = frame(300, draw)
    table.append(memory)
    lazy = table.scan_polars()
    for _ in range(100):
        predicate = random_predicate(draw, 2)
        found = lazy.filter(predicate).select("id", "x").collect().sort("id")
        wanted = memory.filter(predicate).select("id", "x").sort("id")
        assert_frame_equal(found, wanted, check_exact=True), f"seed {seed}: {predicate}"


def test_predicates_are_pushed_down(table: atoll.Table) -> None:
    types = {name: kind for name, kind, _ in table.schema.fields()}

    def pushed(predicate: polars.Expr) -> str:
        import json

        found = translated(json.loads(predicate.meta.serialize(format="json")), types)
        return "" if found is None else str(found[0])

    x, step = polars.col("x"), polars.col("step")
    assert pushed((x < 0.25) & (step == 3)) == "x < 0.25 and step = 3"
    assert pushed(x.is_between(0.1, 0.2, closed="left")) == "(x >= 0.1 or x is nan) and x < 0.2"
    assert pushed((x < 0.25) & (x.sin() > 0)) == "x < 0.25", "what is known of a conjunction is enough"
    assert pushed((x < 0.25) | (x.sin() > 0)) == "", "of a disjunction it is not"
    assert pushed(~((x < 0.25) & (x.sin() > 0))) == "", "what is wider must not be turned round"


def test_columns_and_limits_are_pushed_down(table: atoll.Table) -> None:
    lazy = table.scan_polars()
    assert lazy.collect_schema().names() == table.columns
    head = lazy.select("x").head(7).collect()
    assert head["x"].to_list() == table.select("x").limit(7).numpy()["x"].tolist()
    assert lazy.filter(polars.col("x") < 0.5).head(3).collect().height == 3
    assert lazy.select(polars.len()).collect().item() == 5_000
    means = lazy.group_by("step").agg(polars.col("x").mean()).collect()
    made = particles(5_000, seed=1)
    for step, mean in means.iter_rows():
        assert mean == pytest.approx(made["x"][made["step"] == step].mean())


@pytest.mark.parametrize("has_condition", [False, True])
def test_a_predicate_that_is_more_than_a_condition_may_be_is_not_pushed_down(table: atoll.Table, has_condition: bool) -> None:
    query = table.where("x < 0.9") if has_condition else table.query()
    memory = polars.DataFrame(query.read())
    predicate = polars.col("x") < 0.25
    for depth in range(70):
        # As deep as a condition may be, and deeper: "and" within "or" within "and".
        predicate = (predicate & (polars.col("step") != depth)) | (polars.col("pid") == depth)
        if depth > 55:
            found = query.scan_polars().filter(predicate).select("pid", "step").collect()
            assert_frame_equal(found, memory.filter(predicate).select("pid", "step"), check_row_order=False)


@pytest.mark.parametrize("is_filtered", [False, True])
def test_a_column_that_is_added_after_a_scan_began_is_not_in_it(table: atoll.Table, is_filtered: bool) -> None:
    lazy = table.scan_polars()
    columns = table.columns
    table.store.table("run").add_column("charge", "float32")
    found = (lazy.filter(polars.col("x") < 2) if is_filtered else lazy).collect()
    assert found.columns == columns and found.height == 5_000
    assert table.scan_polars().collect().columns == [*columns, "charge"]


def test_a_sample_can_be_scanned(table: atoll.Table) -> None:
    sample = table.sample(0.2)
    found = sample.scan_polars().select(polars.col("x").mean()).collect().item()
    assert found == pytest.approx(numpy.mean(sample.numpy()["x"]))


def test_a_predicate_on_limited_rows_chooses_among_these_rows_only(table: atoll.Table) -> None:
    for limited in [table.limit(100), table.first(100)]:
        whole = polars.DataFrame(limited.read())
        expected = whole.filter(polars.col("x") < 0.5)
        found = limited.scan_polars().filter(polars.col("x") < 0.5).collect()
        assert 0 < found.height < whole.height
        assert_frame_equal(found, expected, check_row_order=False)
