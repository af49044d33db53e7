"""Estimates: exact where everything was read, near the truth elsewhere, and explicit about every doubt."""

import dataclasses
import html
import math
import pickle

import numpy
import pytest

import atoll
from conftest import particles

MADE = particles(50_000, seed=5)


@pytest.fixture(scope="module")
def large() -> atoll.Table:
    table = atoll.open("mem:").create_table("run", MADE, id=("pid", "step"), sample_key="pid", index=("x", "step"))
    table.append(MADE)
    return table


def test_what_was_read_whole_is_exact(large: atoll.Table) -> None:
    half = MADE["x"] < 0.5
    query = large.where("x < 0.5")
    for found, truth in [
        (query.mean("pos[2]"), MADE["pos"][half, 2].astype("f8").mean()),
        (query.sum("x"), MADE["x"][half].sum()),
        (query.share(atoll.col("type") == 2), (MADE["type"][half] == 2).mean()),
    ]:
        assert found.is_exact and found.is_valid
        assert found.value == pytest.approx(truth)
        assert found.low == found.high == found.value
        assert "exact" in repr(found)


def test_a_sample_gives_an_interval_that_holds_the_truth(large: atoll.Table) -> None:
    # One sample in twenty misses at 95 %. This one is always the same, and very wide intervals hold in any case.
    query = large.sample(0.2)
    for found, truth in [
        (query.mean("x", confidence=0.9999), MADE["x"].mean()),
        (query.sum("x", confidence=0.9999), MADE["x"].sum()),
        (query.quantile("x", 0.25, confidence=0.9999), numpy.quantile(MADE["x"], 0.25)),
        (query.share("type = 2", confidence=0.9999), (MADE["type"] == 2).mean()),
    ]:
        assert found.is_valid, found
        assert not found.is_exact
        assert found.low < truth < found.high
        assert 0 < found.half_width < abs(truth) / 4
        assert found.rows < 15_000


def test_a_tolerance_is_met_with_as_few_rows_as_that_takes(large: atoll.Table) -> None:
    coarse = large.within(relative=0.05).mean("x")
    fine = large.within(absolute=0.005, max_rows=40_000).mean("x")
    assert coarse.is_valid and coarse.half_width <= 0.05 * coarse.value
    assert fine.is_valid and fine.half_width <= 0.005
    assert coarse.rows_read < fine.rows_read < 50_000
    assert coarse.work.rows_touched < 50_000
    spread = large.within(of_sd=0.1).mean("x")
    assert spread.half_width <= 0.1 * spread.deviation


def test_a_tolerance_has_a_confidence_of_its_own_and_numbers_of_rows(large: atoll.Table) -> None:
    usual, sure = large.within(relative=0.02), large.within(relative=0.02, confidence=0.999)
    for ask in (
        lambda query, **how: query.mean("x", **how),
        lambda query, **how: query.sum("x", **how),
        lambda query, **how: query.quantile("x", 0.5, **how),
        lambda query, **how: query.share("type = 2", **how),
    ):
        assert [ask(usual).confidence, ask(sure).confidence, ask(sure, confidence=0.9).confidence] == [0.95, 0.999, 0.9]
        assert ask(usual).rows_read < ask(sure).rows_read
    in_half, held = large.box(x=(0, 0.5)), int((MADE["x"] < 0.5).sum())
    found = in_half.within(relative=0.1, confidence=0.9999).count()
    assert (found.confidence, found.value_unit, found.is_exact) == (0.9999, None, False)
    assert found.low < held < found.high and found.half_width <= 0.1 * found.value
    assert found.rows_read < held == in_half.count()
    known = large.within(absolute=1).count()
    assert (known.value, known.is_exact, known.rows_read) == (50_000, True, 0)


def test_a_tolerance_and_a_size_of_the_sample_are_not_both_taken(large: atoll.Table) -> None:
    for query in (large.sample(0.1), large.window(0.1, 0.2), large.first(100), large.limit(100)):
        with pytest.raises(atoll.errors.InvalidInputError, match="decides how much is read") as refused:
            query.within(relative=0.1)
        assert "max_rows" in refused.value.hint
    # Where reading begins is no size.
    first, other = (query.within(relative=0.05).mean("x") for query in (large.sample(1), large.window(0.5, 1)))
    assert first.is_valid and other.is_valid and first.value != other.value


def test_what_cannot_be_trusted_says_so(large: atoll.Table) -> None:
    few = large.first(5).mean("x")
    assert not few.is_valid
    assert "30 are needed" in " ".join(few.doubts)
    assert "not valid" in repr(few)
    ended = large.within(relative=1e-6, max_rows=2_000).mean("x")
    assert not ended.is_valid
    assert any("tolerance" in doubt for doubt in ended.doubts)


def test_a_question_without_an_answer_is_refused(large: atoll.Table) -> None:
    with pytest.raises(atoll.errors.InvalidInputError, match="one tolerance"):
        large.within()
    with pytest.raises(atoll.errors.InvalidInputError, match="one tolerance"):
        large.within(relative=0.1, absolute=1)
    with pytest.raises(atoll.errors.InvalidInputError):
        large.within(relative=-1).mean("x")
    with pytest.raises(atoll.errors.InvalidInputError):
        large.mean("x", confidence=1.5)
    with pytest.raises(atoll.AtollError, match="nope"):
        large.mean("nope")
    with pytest.raises(atoll.errors.NotFoundError):
        large.mean("x + 1")
    nothing = large.where("x > 2").sample(0.5).mean("x")
    assert math.isnan(nothing.value) and not nothing.is_valid


def test_a_refinement_gives_an_estimate_at_each_step_and_narrows_to_the_truth(large: atoll.Table) -> None:
    truth, seen, widths = MADE["x"].mean(), 0, []
    for batch, cut, estimate in large.select("pid").refine(mean="x", confidence=0.9999):
        assert batch.columns == ["pid"]
        seen += len(batch)
        assert estimate.rows == estimate.rows_read == seen == len(large.sample(cut).read())
        assert estimate.is_exact or estimate.low < truth < estimate.high
        widths.append(estimate.half_width)
    assert seen == 50_000 and estimate.is_exact and estimate.value == pytest.approx(truth)
    assert len(widths) > 4 and widths == sorted(widths, reverse=True)
    # An interval that may be looked at any time is wider than one for a single look at the same rows.
    first = next(iter(large.refine(mean="x")))
    assert first.estimate.half_width > 1.2 * large.sample(first.cut).mean("x").half_width
    assert next(iter(large.refine())).estimate is None


@pytest.mark.parametrize(
    "asked",
    [
        {"mean": "x", "sum": "x"},
        {"mean": "nope"},
        {"mean": 3},
        {"share": "type ="},
        {"share": True},
        {"quantile": "x"},
        {"quantile": ("x", 1.5)},
        {"mean": "x", "confidence": "most"},
        {"mean": "x", "confidence": 1.5},
    ],
)
def test_what_a_refinement_cannot_answer_is_refused_by_the_call_and_not_by_its_first_step(
    large: atoll.Table, asked: dict
) -> None:
    with pytest.raises((atoll.errors.InvalidInputError, atoll.errors.NotFoundError)):
        large.refine(**asked)


def test_a_refinement_estimates_sums_shares_and_quantiles(large: atoll.Table) -> None:
    query = large.where("x < 0.5")
    half = MADE["x"] < 0.5
    for asked, truth in [
        ({"sum": "x"}, MADE["x"][half].sum()),
        ({"share": atoll.col("type") == 2}, (MADE["type"][half] == 2).mean()),
        ({"quantile": ("x", 0.9)}, numpy.quantile(MADE["x"][half], 0.9)),
    ]:
        *_, last = query.refine(**asked)
        assert last.is_last and last.estimate.is_exact
        assert last.estimate.value == pytest.approx(truth, rel=1e-3)
    with pytest.raises(atoll.errors.InvalidInputError, match="one number"):
        next(large.refine(mean="x", sum="x"))
    with pytest.raises(atoll.errors.NotFoundError):
        next(large.refine(mean="nope"))


def test_groups_have_each_its_mean_in_the_order_of_the_groups(large: atoll.Table) -> None:
    exact = large.group_means("x", by="type")
    assert list(exact) == [1, 2, 3]
    for group, mean in exact.items():
        assert mean.is_exact and mean.value == pytest.approx(MADE["x"][MADE["type"] == group].mean())
    sample = large.sample(0.1).group_means("x", by="type", confidence=0.9999)
    together = large.sample(0.1).group_means("x", by="type", confidence=0.9999, simultaneous=True)
    for group, mean in sample.items():
        assert mean.low < exact[group].value < mean.high
        assert together[group].half_width > mean.half_width
    assert "by type" in repr(sample)


def test_bins_of_a_histogram_hold_all_rows_and_their_intervals_the_truth(large: atoll.Table) -> None:
    exact = large.histogram("pos[1]", [-10, -1, 0, 1, 10])
    truth = numpy.histogram(MADE["pos"][:, 1], [-10, -1, 0, 1, 10])[0] / 50_000
    assert [each.share.value for each in exact] == pytest.approx(truth.tolist())
    sample = large.sample(0.1).histogram("pos[1]", [-10, -1, 0, 1, 10], confidence=0.9999)
    assert all(each.share.low < part < each.share.high for each, part in zip(sample, truth, strict=True))
    even = large.histogram("x", 4, range=(0, 1))
    assert [each.low for each in even] == [0, 0.25, 0.5, 0.75] and even[-1].high > 1
    assert sum(each.share.value for each in large.limit(1000).histogram("x", 7)) == pytest.approx(1)
    with pytest.raises(atoll.errors.InvalidInputError):
        large.histogram("x", [1, 0])
    with pytest.raises(atoll.errors.InvalidInputError):
        large.histogram("x", 0)


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_groups_of_instants_are_instants_whatever_their_unit(store: atoll.Store, unit: str) -> None:
    table = store.create_table("t", {"x": "float64", "at": f"timestamp[{unit}]?"}, id=("x",), index=("x",))
    at = numpy.array(["2026-01-01", "2026-01-02", "NaT"], dtype=f"datetime64[{unit}]")
    table.append({"x": [1.0, 2.0, 3.0], "at": at})
    means = table.group_means("x", by="at")
    days = [None if key is None else numpy.datetime64(key, "D").astype(str) for key in means]
    assert days == ["2026-01-01", "2026-01-02", None]


def test_groups_of_instants_beyond_the_years_of_python_are_in_the_order_of_time(store: atoll.Store) -> None:
    table = store.create_table("t", {"x": "float64", "at": "timestamp[us]?"}, id=("x",), index=("x",))
    at = numpy.array(["20000-01-01", "2026-01-02", "NaT", "-5000-01-01", "2026-01-01"], dtype="datetime64[us]")
    table.append({"x": [5.0, 3.0, 6.0, 1.0, 2.0], "at": at})
    assert [mean.value for mean in table.group_means("x", by="at").values()] == [1.0, 2.0, 3.0, 5.0, 6.0]


def test_bins_may_be_counted_by_numpy_and_need_numbers(store: atoll.Store) -> None:
    table = store.create_table("t", {"x": "float64", "at": "timestamp[us]"}, id=("x",), index=("x",))
    table.append({"x": [1.0, 2.0], "at": numpy.array(["2026-01-01", "2026-01-02"], dtype="datetime64[us]")})
    assert len(table.histogram("x", numpy.int64(5))) == 5
    assert len(table.histogram("x", 1, range=(1e300, 1e300))) == 1
    with pytest.raises(atoll.errors.InvalidInputError, match="at has no numbers"):
        table.histogram("at", 5)


def test_bins_are_over_what_is_said_and_of_numbers_that_lie_close_together(store: atoll.Store) -> None:
    table = store.create_table("t", {"x": "float64", "y": "float64"}, id=("x",), index=("x",))
    now = 1.7e15
    table.append({"x": [now, numpy.nextafter(now, 2 * now)], "y": [3.0, numpy.nan]})
    table.append({"x": [-now], "y": [1.0]})
    with pytest.raises(atoll.errors.InvalidInputError, match="not 10 and 0"):
        table.histogram("x", 4, range=(10, 0))
    close = table.where(f"x >= {now!r}").histogram("x", 20)
    assert len(close) == 20 and sum(each.share.value for each in close) == pytest.approx(1)
    assert all(each.low < each.high for each in close)
    # NaN is a group as well, after the others.
    assert str(list(table.group_means("x", by="y"))) == "[1.0, 3.0, nan]"


def test_a_number_of_times_has_their_unit_and_another_one_what_was_noted(store: atoll.Store) -> None:
    schema = {"id": "int64", "at": "timestamp[ms]", "d": "date32", "took": "duration[s]", "x": "float64"}
    table = store.create_table("units", schema, id="id", index="x")
    table.add_column("charge", "float32[2]", unit="e")
    days = numpy.array(["2026-01-01", "2026-01-03"], "M8[D]")
    took = numpy.array([1, 3], "m8[s]")
    table.append({"id": [1, 2], "at": days, "d": days, "took": took, "x": [0.0, 1.0], "charge": numpy.ones((2, 2), "f4")})
    told = {column: table.mean(column) for column in ("at", "d", "took", "x", "charge[1]")}
    assert [mean.value_unit for mean in told.values()] == [
        "ms since 1970-01-01", "days since 1970-01-01", "s", None, "e"
    ]  # fmt: skip
    assert (repr(told["d"]), repr(told["x"])) == ("20455 days since 1970-01-01 (exact)", "0.5 (exact)")
    assert table.quantile("took", 0.5).value_unit == table.group_means("took", "id")[1].value_unit == "s"
    assert table.share("x > 0").value_unit is table.histogram("x", 2)[0].share.value_unit is None
    assert [step.estimate.value_unit for step in table.refine(mean=atoll.col("d"))] == ["days since 1970-01-01"]
    assert table.within(relative=0.5).mean("charge[0]").value_unit == "e"
    assert pickle.loads(pickle.dumps(told["at"])) == told["at"]


def test_bins_hold_the_farthest_rows_where_nothing_else_is_said(store: atoll.Store) -> None:
    schema = {"id": "int64", "x": "float64", "n": "int32?", "pos": "float32[2]"}
    table = store.create_table("far", schema, id="id", index="x")
    x = numpy.random.default_rng(3).normal(size=200_000)
    n = numpy.ma.masked_array(numpy.arange(200_000, dtype="int32"), mask=x < 0)
    x[70_000], x[190_000], x[5], x[6] = -5000.0, 1000.0, numpy.nan, numpy.inf
    table.append({"id": numpy.arange(200_000), "x": x, "n": n, "pos": numpy.column_stack([x, -x]).astype("float32")})
    for query in (table.query(), table.sample(0.5), table.box(x=(-10, 2000)), table.first(150_000), table.limit(100)):
        rows = query.numpy()
        for column, held in {"x": rows["x"], "n": rows["n"], "pos[1]": rows["pos"][:, 1]}.items():
            finite = numpy.ma.compressed(held)[numpy.isfinite(numpy.ma.compressed(held))]
            bins = query.histogram(column, 7)
            assert (bins[0].low, bins[-1].high) == (finite.min(), numpy.nextafter(float(finite.max()), numpy.inf))
            in_bins = sum(round(each.share.value * each.share.rows) for each in bins)
            assert in_bins == pytest.approx(len(finite), abs=7), (query, column)
    with pytest.raises(atoll.errors.InvalidInputError, match="x has no values to bin"):
        table.where("x is nan").histogram("x", 5)


@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_bins_are_of_the_rows_whose_range_they_have(
    store: atoll.Store, monkeypatch: pytest.MonkeyPatch, is_vacuumed: bool
) -> None:
    table = store.create_table("grows", {"x": "float64"}, id="x", index="x")
    table.append({"x": numpy.linspace(0, 1, 1000)})
    before, found = table.version(), atoll._query.even_edges

    def and_others_append(*asked: object) -> object:
        edges = found(*asked)
        table.append({"x": numpy.linspace(10, 11, 1000)})
        if is_vacuumed:
            table.pack(whole=True)
            table.vacuum()
        return edges

    monkeypatch.setattr(atoll._query, "even_edges", and_others_append)
    bins = table.histogram("x", 4)
    assert [round(bins[0].low), round(bins[-1].high)] == [0, 1]
    seen, shares = {each.share.version for each in bins}, sum(each.share.value for each in bins)
    if before in seen:
        assert seen == {before} and shares == pytest.approx(1)
    else:
        # Only if that version is gone.
        assert is_vacuumed and shares == pytest.approx(0.5)


def test_groups_that_are_named_are_not_seen_rather_than_left_out(large: atoll.Table) -> None:
    for query in (large.query(), large.sample(0.2)):
        plain = query.group_means("x", by="type")
        assert plain.not_seen == ()
        # Any order, and any type whose values fit the column.
        for groups in ([9, 2, 1, -4, 9], (9.0, -4), {-4, 9}, numpy.array([9, -4], "i8"), range(-4, 10, 13)):
            named = query.group_means("x", by="type", groups=groups)
            assert named.not_seen == (-4, 9), groups
            assert list(named) == [1, 2, 3], groups
            assert [mean.half_width for mean in named.values()] == pytest.approx([mean.half_width for mean in plain.values()])
            assert repr(named).splitlines()[-2:] == ["  -4: not seen", "  9: not seen"]
            assert pickle.loads(pickle.dumps(named)).not_seen == (-4, 9)
        assert query.group_means("x", by="type", groups=[None]).not_seen == (None,)
        assert query.group_means("x", by="type", groups=[]).not_seen == ()
        for wrong, told in [([2.5], "2.5 does not fit"), ("12", "groups are values"), (3, "groups are values")]:
            with pytest.raises(atoll.errors.InvalidInputError, match=told):
                query.group_means("x", by="type", groups=wrong)
        with pytest.raises(atoll.errors.NotFoundError, match="nothing"):
            query.group_means("x", by="nothing", groups=[1])
    # Intervals that hold together are wider where there are more of them, whether or not a group was seen.
    alone, among = (
        large.sample(0.2).group_means("x", by="type", groups=groups, simultaneous=True) for groups in ([], range(100))
    )
    assert among[1].half_width > 1.1 * alone[1].half_width


def test_a_notebook_shows_estimates_with_their_doubts_and_escapes_them(store: atoll.Store, large: atoll.Table) -> None:
    schema = {"id": "int64", "<i>x": "float64", "kind": "utf8"}
    table = store.create_table("t", schema, id="id", index="<i>x", units={"<i>x": "<u>"})
    table.append({"id": [1, 2, 3], "<i>x": [0.5, 1.5, numpy.nan], "kind": ["<td>", "<td>", "b"]})
    shown = table.mean("<i>x")._repr_html_()
    assert "<td>1 &lt;u&gt;</td><td>exact</td>" in shown and "<td>3, 1 without a value</td>" in shown
    means = table.group_means("<i>x", by="kind", groups=["<p>"])
    shown = means._repr_html_()
    assert "<td>&lt;td&gt;</td><td>1 &lt;u&gt;</td>" in shown and "<td>&lt;p&gt;</td><td>not seen</td>" in shown
    assert "mean of &lt;i&gt;x" in shown
    assert not any(raw in shown for raw in ("<i>", "<u>", "<p>", "<td><td>"))
    doubtful = large.first(5).mean("x")
    assert not doubtful.is_valid
    shown = doubtful._repr_html_()
    assert doubtful.doubts[0] in html.unescape(shown) and "(95 %)" in shown and f"{doubtful.low:.6g} to " in shown
    # A notebook of a table by step does not show each of thousands of steps.
    shown = large.group_means("x", by="pid", groups=range(4_000, 6_000))._repr_html_()
    assert shown.count("<tr>") == 101 and "and 5,900 more groups" in shown


@pytest.mark.parametrize(
    ("value", "half", "told"),
    [
        (12345678.3, 0.49, "12345678.3 ± 0.49 ("),
        (1.00309, 0.016, "1.00309 ± 0.016 ("),
        (1.6021766e-19, 1.6e-21, "1.60218e-19 ± 1.6e-21 ("),
        (1234.5678901, 2e-5, "1234.56789 ± 2e-05 ("),
        (0.0, 0.5, "0 ± 0.5 ("),
        (2.5, math.inf, "2.5 ± inf ("),
        (math.nan, math.inf, "nan ± nan ("),
        (123456789.0, 0.0, "123456789 (exact"),
        (0.1, 0.0, "0.1 (exact"),
        (2.0**70, 0.0, "1.1805916207174113e+21 (exact"),
    ],
)
def test_a_value_is_shown_as_precisely_as_its_interval_is_narrow(
    large: atoll.Table, value: float, half: float, told: str
) -> None:
    low, high = (value - half, value + half) if half < math.inf else (-math.inf, math.inf)
    found = dataclasses.replace(
        large.sample(0.2).mean("x"), value=value, low=low, high=high, is_exact=half == 0.0, value_unit=None
    )
    assert repr(found).startswith(told)
    assert f"<td>{told.split(' ')[0]}</td>" in found._repr_html_()
    if value == 12345678.3:
        assert "<td>12345677.81 to 12345678.79 (95 %)</td>" in found._repr_html_()


def test_a_confidence_is_shown_with_all_of_its_digits(large: atoll.Table) -> None:
    for confidence, told in {0.95: "95", 0.683: "68.3", 0.999: "99.9", 0.9999999: "99.99999"}.items():
        mean = large.sample(0.2).mean("x", confidence=confidence)
        assert f"({told}%, " in repr(mean) and f"({told} %)" in mean._repr_html_()


def test_groups_of_texts_and_of_instants_that_are_named_are_not_seen(store: atoll.Store) -> None:
    table = store.create_table("named", {"id": "int64", "at": "timestamp[ns]", "kind": "utf8?"}, id="id", index="id")
    days = numpy.array(["2026-01-01", "2026-01-03"], "M8[D]")
    table.append({"id": [1, 2], "at": days, "kind": ["heavy", None]})
    means = table.group_means("id", by="kind", groups=["light", "heavy"])
    assert list(means) == ["heavy", None] and means.not_seen == ("light",)
    means = table.group_means("id", by="at", groups=numpy.array(["2026-01-02", "2026-01-03"], "M8[D]"))
    assert means.not_seen == (numpy.datetime64("2026-01-02", "ns"),) and len(means) == 2


def test_groups_of_vectors_are_refused_by_their_column(table: atoll.Table) -> None:
    for query in (table.query(), table.sample(0.5)):
        with pytest.raises(atoll.errors.UnsupportedError, match='grouped by column "pos"') as error:
            query.group_means("x", by="pos")
        assert "numbers, texts" in error.value.hint
        with pytest.raises(atoll.errors.NotFoundError, match="nothing"):
            query.group_means("x", by="nothing")


@pytest.mark.parametrize("column", ["pos[5]", "x[0]", "pos"])
def test_a_histogram_of_what_is_no_number_of_a_row_is_refused(table: atoll.Table, column: str) -> None:
    with pytest.raises(atoll.errors.InvalidInputError, match="is not an element|is a column of vectors"):
        table.histogram(column, 10)
