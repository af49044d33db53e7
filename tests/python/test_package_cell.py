"""Periodic cells: rows near a point, and boxes that wrap, compared with all images computed by NumPy."""

import itertools
import math

import numpy
import pytest

import atoll

ROWS = 3_000
LENGTHS = (10.0, 8.0, 6.0)
TILTS = (2.0, -1.0, 1.5)


def positions(tilts: tuple[float, ...] = ()) -> numpy.ndarray:
    """Make positions all over a cell."""
    parts = numpy.random.default_rng(3).uniform(size=(ROWS, 3))
    made = parts * LENGTHS
    if tilts:
        made[:, 0] += parts[:, 1] * tilts[0] + parts[:, 2] * tilts[1]
        made[:, 1] += parts[:, 2] * tilts[2]
    return made


def images(away: numpy.ndarray, tilts: tuple[float, ...] = ()) -> numpy.ndarray:
    """Return every image of positions, up to two cells in each direction."""
    xy, xz, yz = tilts or (0.0, 0.0, 0.0)
    edges = numpy.array([[LENGTHS[0], 0, 0], [xy, LENGTHS[1], 0], [xz, yz, LENGTHS[2]]])
    shifts = numpy.array(list(itertools.product(range(-2, 3), repeat=3))) @ edges
    return away[:, None, :] - shifts[None, :, :]


@pytest.mark.parametrize("tilts", [(), TILTS])
def test_near_is_the_distance_to_the_nearest_image_packed_and_not(store: atoll.Store, tilts: tuple) -> None:
    pos = positions(tilts)
    table = store.create_table("run", {"pid": "i8", "pos": "float64[3]"}, id="pid", index=("pos[0]", "pos[1]", "pos[2]"))
    table.append({"pid": numpy.arange(ROWS), "pos": pos})
    table.set_cell(atoll.Cell(LENGTHS, tilts, axes=("pos",)))
    for _ in range(2):
        for point in [(0.1, 0.1, 0.1), (9.9, 0.0, 5.9), (5.0, 4.0, 3.0)]:
            distances = numpy.linalg.norm(images(pos - point, tilts), axis=2).min(axis=1)
            near = numpy.sort(table.near(point, 1.2).numpy()["pid"])
            numpy.testing.assert_array_equal(near, numpy.flatnonzero(distances <= 1.2))
            plain = numpy.linalg.norm(pos - point, axis=1) <= 1.2
            assert table.near(point, 1.2, cell=False).count() == plain.sum()
        ends = {"pos[0]": (9, 11), "pos[1]": (7.5, 8.5), "pos[2]": (-0.5, 0.5)}
        low, high = numpy.array(list(ends.values())).T
        inside = ((images(pos, tilts) >= low) & (images(pos, tilts) < high)).all(axis=2).any(axis=1)
        boxed = table.box(ends, wrap=True)
        numpy.testing.assert_array_equal(numpy.sort(boxed.numpy()["pid"]), numpy.flatnonzero(inside))
        table.pack(whole=True)
    assert table.near((0.1, 0.1, 0.1), 0.8).read().work.rows_touched < ROWS * 0.7


def test_a_box_that_crosses_the_boundary_holds_its_low_end_and_not_its_high_one(store: atoll.Store) -> None:
    table = store.create_table("run", {"id": "i8", "x": "f8"}, id="id", index="x")
    x = [8.9, 9.0, 9.999, 0.0, 0.999, 1.0]
    table.append({"id": range(6), "x": x})
    found = table.box(x=(9, 11), wrap=atoll.Cell((10,))).numpy()["id"]
    assert sorted(found.tolist()) == [1, 2, 3, 4]
    assert table.box(x=(9, 11)).count() == 2
    with pytest.raises(atoll.errors.InvalidInputError, match="no cell"):
        table.box(x=(9, 11), wrap=True)


def test_one_grammar_says_what_is_near(store: atoll.Store) -> None:
    table = store.create_table("run", {"id": "i8", "x": "f8", "y": "f8"}, id="id", index=("x", "y"))
    table.append({"id": range(3), "x": [0.5, 9.5, 5.0], "y": [0.0, 0.0, 0.0]})
    near = table.near((0, 0), 0.5, cell=atoll.Cell((10, 10)))
    assert near.condition == "near((x, y), (0.0, 0.0), 0.5, cell(10.0, 10.0))"
    assert near.count() == table.where(near.condition).count() == table.where("near((x, y), (0, 0), 0.5, cell(10, 10))").count() == 2
    assert table.near((0, 0), 0.5).count() == 1
    assert table.near((0,), 0.5, axes="y").count() == 3
    with pytest.raises(atoll.errors.InvalidInputError, match="as many"):
        table.near((0, 0), 0.5, cell=atoll.Cell((10,)))


def test_a_step_has_its_own_cell_and_attributes_have_types(store: atoll.Store) -> None:
    table = store.create_table("run", {"id": "i8", "x": "f8"}, id="id", index="x")
    assert table.cell() is None and table.attributes() == {}
    table.set_cell(atoll.Cell((10,)))
    table.set_cell(atoll.Cell((math.inf,)), run="a")
    table.set_cell(atoll.Cell((12.5,)), run="a", step=7)
    assert table.cell() == atoll.Cell((10,), low=(0,))
    assert table.cell(run="a").lengths == (math.inf,)
    assert table.cell(run="a", step=7).lengths == (12.5,)
    assert table.cell(run="a", step=8).lengths == (math.inf,)
    table.set_attributes({**table.attributes(run="a"), "temperature": 300.5, "tags": ["wet", 2], "done": True}, run="a")
    assert table.attributes(run="a")["temperature"] == 300.5
    assert table.attributes(run="a")["tags"] == ["wet", 2]
    table.set_cell(None, run="a")
    assert table.cell(run="a", step=8).lengths == (10,)
    for cell in ("cube", [10, 10, 10], 5, {"lengths": [10]}, {"axes": ["x"], "lengths": 10}):
        with pytest.raises(atoll.errors.InvalidInputError, match='^the attribute "cell" must be a periodic cell, such as {"axes"'):
            table.set_attributes({"cell": cell})


def test_cells_of_lammps_and_of_angles_are_the_same() -> None:
    lammps = atoll.Cell.lammps([(-5, 5), (0, 8), (1, 7)], (2, 0, 0), periodic=(True, True, False))
    assert (lammps.lengths, lammps.low, lammps.tilts) == ((10, 8, math.inf), (-5, 0, 1), (2, 0, 0))
    upright = atoll.Cell.dimensions([10, 8, 6, 90, 90, 90])
    assert (upright.lengths, upright.tilts) == ((10, 8, 6), (0, 0, 0))
    leaning = atoll.Cell.dimensions([10, 10, 10, 90, 90, 60])
    numpy.testing.assert_allclose(leaning.lengths, (10, math.sqrt(75), 10))
    numpy.testing.assert_allclose(leaning.tilts, (5, 0, 0), atol=1e-12)


def test_axes_are_columns_of_whatever_name(store: atoll.Store) -> None:
    names = ("x (nm)", "in", "x-1")
    table = store.create_table("odd", {"id": "i8", **dict.fromkeys(names, "f8")}, id="id", index=names)
    table.append({"id": [1, 2], "x (nm)": [0.5, 9.5], "in": [0.0, 0.0], "x-1": [0.0, 0.0]})
    assert table.near((0.5,), 0.1).numpy()["id"].tolist() == [1]
    assert table.near((0.5, 0, 0), 0.1).numpy()["id"].tolist() == [1]
    assert table.near((0.5,), 0.1, axes="in").count() == 0
    assert table.near((0.0,), 0.6, cell=atoll.Cell((10,), axes=("x (nm)",))).count() == 2
    table.set_cell(atoll.Cell((10,), axes=("x (nm)",)))
    assert table.near((0.0,), 0.6).count() == 2
    assert table.box({"x (nm)": (9, 10.2)}, wrap=True).numpy()["id"].tolist() == [2]
    assert table.box({"x (nm)": (9, 10.6)}, wrap=True).count() == 2
    with pytest.raises(atoll.errors.AtollError, match="none such"):
        table.near((0.5,), 0.1, axes="none such").count()
