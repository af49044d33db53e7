"""Plots take one call, say how many rows they show, and show a random sample of a table that is too large."""

import matplotlib

matplotlib.use("Agg")

import numpy  # noqa: E402
import pytest  # noqa: E402
from matplotlib import pyplot  # noqa: E402

import atoll  # noqa: E402


@pytest.fixture(autouse=True)
def no_figure_is_left() -> None:
    yield
    pyplot.close("all")


def test_a_scatter_has_a_point_for_each_row(table: atoll.Table) -> None:
    query = table.where("x < 0.5")
    axes = query.plot.scatter("x", "pos[2]", color="type")
    drawn, rows = axes.collections[0], query.numpy()
    points = numpy.column_stack([rows["x"], rows["pos"][:, 2]])
    numpy.testing.assert_array_equal(numpy.asarray(drawn.get_offsets()), points)
    numpy.testing.assert_array_equal(drawn.get_array(), rows["type"])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "pos[2]")
    assert axes.get_title() == f"{len(points):,} rows"


def test_what_is_too_much_is_drawn_by_its_lightest_rows(table: atoll.Table) -> None:
    axes = table.plot.scatter("x", "step", points=100)
    assert len(axes.collections[0].get_offsets()) == 100
    assert axes.get_title() == "the 100 lightest rows"
    assert table.limit(100).plot.scatter("x", "step", points=100).get_title() == "100 rows"


def test_densities_and_histograms_count_every_row(table: atoll.Table) -> None:
    mesh = table.plot.density("x", "pos[0]", bins=20).collections[0]
    assert mesh.get_array().sum() == 5_000
    _, given = pyplot.subplots()
    axes = table.plot.histogram("x", bins=10, ax=given)
    assert axes is given
    heights = [patch.get_height() for patch in axes.patches]
    assert sum(heights) * 0.1 == pytest.approx(1, rel=0.01)


def test_a_picture_can_be_saved(table: atoll.Table, tmp_path) -> None:
    place = tmp_path / "run.png"
    table.sample(0.2).plot.scatter("x", "pos[0]").figure.savefig(place)
    assert place.stat().st_size > 5_000


def test_means_of_groups_are_drawn_with_their_intervals(table: atoll.Table) -> None:
    query = table.sample(0.5)
    axes = query.plot.errorbar("type", "x")
    means = query.group_means("x", by="type")
    points, _, (bars,) = axes.containers[0]
    assert points.get_xdata().tolist() == list(means)
    numpy.testing.assert_allclose(points.get_ydata().astype(float), [mean.value for mean in means.values()])
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    numpy.testing.assert_allclose(ends, [[mean.low, mean.high] for mean in means.values()])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("type", "mean of x")
    assert "sample" in axes.get_title()


def test_a_histogram_of_a_sample_has_error_bars_and_one_of_everything_has_none(table: atoll.Table) -> None:
    assert len(table.sample(0.5).plot.histogram("x", bins=8).containers) == 2
    assert len(table.sample(0.5).plot.histogram("x", bins=8, errors=False).containers) == 1
    assert len(table.plot.histogram("x", bins=8).containers) == 1


@pytest.fixture
def gaps(store: atoll.Store) -> atoll.Table:
    """1,000 rows, of which a quarter have no `f`, ten have NaN, one has infinity, and some have no time."""
    random = numpy.random.default_rng(11)
    f = numpy.ma.masked_array(random.normal(5, 0.5, 1_000), mask=numpy.arange(1_000) % 4 == 0)
    f[1:41:4], f[2] = numpy.nan, numpy.inf
    at = numpy.datetime64("2026-01-01", "us") + numpy.arange(1_000) * numpy.timedelta64(1, "h")
    at[5::10] = numpy.datetime64("NaT")
    rows = {"id": numpy.arange(1_000), "x": random.uniform(size=1_000), "f": f, "at": at, "name": ["wall"] * 1_000}
    schema = {"id": "int64", "x": "float64", "f": "float64?", "at": "timestamp[us]?", "name": "utf8?"}
    table = store.create_table("gaps", schema, id="id", index="x")
    table.append(rows)
    return table


def test_a_density_leaves_out_what_has_no_value_and_says_how_much(gaps: atoll.Table) -> None:
    axes = gaps.plot.density("x", "f", bins=20)
    assert axes.collections[0].get_array().sum() == 1_000 - 250 - 10 - 1
    assert axes.get_ylim()[0] > 2
    assert axes.get_title() == "1,000 rows, 261 of them without a value"
    axes = gaps.plot.density("at", "x", bins=10)
    assert axes.collections[0].get_array().sum() == 900
    assert "2026" in pyplot.matplotlib.dates.num2date(axes.get_xlim()[0]).isoformat()
    assert gaps.where("x > 2").plot.density("x", "f").get_title() == "0 rows"
    assert gaps.where("f is null").plot.density("x", "f").get_title() == "250 rows, 250 of them without a value"
    with pytest.raises(atoll.errors.InvalidInputError, match="name has no numbers to bin"):
        gaps.plot.density("x", "name")


def test_a_scatter_shows_what_has_values_and_says_how_much_has_none(gaps: atoll.Table, tmp_path) -> None:
    for words, lacking in ((("x", "f"), 261), (("x", "id", "f"), 261), (("at", "x"), 100)):
        axes = gaps.plot.scatter(*words[:2], color=words[2] if len(words) > 2 else None)
        assert axes.get_title() == f"1,000 rows, {lacking} of them without a value"
        axes.figure.savefig(tmp_path / "gaps.png")
    masked = gaps.plot.scatter("x", "f").collections[0].get_offsets()
    assert (~masked.mask[:, 1] & numpy.isfinite(masked.data[:, 1])).sum() == 739
    # The array owns its mask, so that plots and other callers can change it.
    column = gaps.numpy()["f"]
    column[0] = numpy.ma.masked
    assert column.mask[0]


def test_a_histogram_of_no_rows_is_empty(table: atoll.Table) -> None:
    axes = table.where("x > 1e9").plot.histogram("x", bins=[0, 1])
    assert axes.get_title() == "0 rows"


def test_a_histogram_says_how_many_rows_lie_beyond_its_bins(store: atoll.Store, gaps: atoll.Table) -> None:
    table = store.create_table("blown", {"id": "int64", "x": "float64"}, id="id", index="x")
    x = numpy.random.default_rng(5).normal(size=20_000)
    x[:5] = 1000.0
    table.append({"id": numpy.arange(20_000), "x": x})
    for query, rows in ((table.query(), 20_000), (table.sample(0.9), len(table.sample(0.9).read()))):
        axes = query.plot.histogram("x")
        assert axes.patches[-1].get_x() + axes.patches[-1].get_width() >= 1000, "what blew up is in the picture"
        assert "beyond" not in axes.get_title()
        axes = query.plot.histogram("x", range=(-2, 2))
        ends = axes.patches[0].get_x(), axes.patches[-1].get_x() + axes.patches[-1].get_width()
        drawn = query.numpy()["x"]
        beyond = int(((drawn < ends[0]) | (drawn >= ends[1])).sum())
        assert beyond > 100
        assert axes.get_title().startswith(f"{rows:,} rows")
        assert axes.get_title().endswith(f", {beyond} of them beyond the bins")
    assert table.plot.histogram("x", range=(-10, 1001)).get_title() == "20,000 rows"
    title = gaps.plot.histogram("f", range=(0, 10)).get_title()
    assert title == "1,000 rows, 260 of them without a value, 1 of them beyond the bins"


def test_an_interval_without_an_end_is_not_drawn_as_the_surest_one(table: atoll.Table) -> None:
    query = table.where("pid < 20").sample(0.5)
    means = query.group_means("x", by="pid")
    unsure = [mean.value for mean in means.values() if not numpy.isfinite(mean.half_width)]
    assert len(unsure) == len(means) > 5
    axes = query.plot.errorbar("pid", "x")
    (hollow,) = axes.lines
    assert hollow.get_ydata().tolist() == unsure
    assert hollow.get_markerfacecolor() == "none"
    assert not axes.containers
    axes = table.sample(0.5).where("x < 0.9 or pid = 3").plot.errorbar("type", "x")
    assert axes.containers and not [line for line in axes.lines if line.get_markerfacecolor() == "none"]


def test_a_picture_of_means_tells_the_rows_of_all_groups(table: atoll.Table) -> None:
    query = table.sample(0.5)
    assert query.plot.errorbar("type", "x").get_title() == f"{query.count():,} rows of a sample"
    few = table.sample(0.01)
    doubtful = sum(not mean.is_valid for mean in few.group_means("x", by="step").values())
    assert few.plot.errorbar("step", "x").get_title().endswith(f"; {doubtful} intervals are doubtful")


@pytest.mark.parametrize("count", [1, 2])
def test_a_doubtful_interval_is_counted_as_one(store: atoll.Store, count: int) -> None:
    table = store.create_table("few", {"id": "int64", "g": "int64", "x": "float64"}, id="id", index="x")
    groups = numpy.repeat(numpy.arange(count), 40)
    table.append({"id": numpy.arange(40 * count), "g": groups, "x": numpy.ones(40 * count)})
    title = table.sample(0.5).plot.errorbar("g", "x").get_title()
    assert title.endswith("; 1 interval is doubtful" if count == 1 else "; 2 intervals are doubtful")


MISUSES = {
    'pos is a column of vectors of length 3': lambda t: t.plot.scatter("x", "pos"),
    'write "pos\\[0\\]"': lambda t: t.plot.density("pos", "x"),
    r"pos\[7\] is not an element: the column has vectors of 3": lambda t: t.plot.scatter("x", "pos[7]"),
    r"x\[0\] is not an element: the column has no vectors": lambda t: t.plot.scatter("x[0]", "x"),
    "name has no numbers to colour by": lambda t: t.plot.scatter("x", "x", color="name"),
}


@pytest.mark.parametrize("told", MISUSES)
def test_what_a_picture_cannot_show_is_refused_in_our_words(store: atoll.Store, told: str) -> None:
    columns = {"id": "int64", "x": "float64", "pos": "float32[3]", "name": "utf8"}
    table = store.create_table("t", columns, id="id", index="x")
    table.append({"id": [1, 2], "x": [0.1, 0.2], "pos": numpy.zeros((2, 3), "f4"), "name": ["a", "b"]})
    with pytest.raises(atoll.errors.InvalidInputError, match=told):
        MISUSES[told](table)
