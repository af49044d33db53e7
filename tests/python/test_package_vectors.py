"""Vectors as index columns: what a box on their elements finds is what NumPy finds, packed and not."""

import numpy
import pyarrow
import pytest

import atoll

ROWS = 4_000


def positions(dtype: str) -> numpy.ndarray:
    """Random positions, of which some elements have no value that compares."""
    random = numpy.random.default_rng(5)
    made = random.uniform(-2, 2, size=(ROWS, 3)).astype(dtype)
    made[::97, 0] = numpy.nan
    made[::89, 1] = numpy.inf
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_boxes_on_elements_of_vectors_equal_numpy(store: atoll.Store, dtype: str) -> None:
    index = ("pos[0]", "pos[1]", "pos[2]", "step")
    table = store.create_table("run", {"pid": "i8", "step": "i8", "pos": f"{dtype}[3]"}, id=("pid", "step"), index=index)
    assert table.index == list(index)
    pos, step = positions(dtype), numpy.arange(ROWS) % 4
    table.append({"pid": numpy.arange(ROWS), "step": step, "pos": pos})
    x, y = pos[:, 0], pos[:, 1]
    asked = [
        (table.box(**{"pos[0]": (0, 1)}), (x >= 0) & (x < 1)),
        (table.box({"pos[0]": (0, 1), "pos[2]": (None, 0.5)}, step=(1, 3)),
         (x >= 0) & (x < 1) & (pos[:, 2] < 0.5) & (step >= 1) & (step < 3)),
        (table.box("pos[1]=-1:0"), (y >= -1) & (y < 0)),
        (table.where("pos[0] < -1.5"), x < -1.5),
        (table.where(atoll.col("pos")[0] > 1.5), x > 1.5),
        (table.where("pos[0] is nan"), numpy.isnan(x)),
        (table.where("pos[1] > 1"), y > 1),
    ]  # fmt: skip
    for _ in range(2):
        for query, expected in asked:
            found = query.numpy()
            order = numpy.argsort(found["pid"])
            numpy.testing.assert_array_equal(found["pid"][order], numpy.flatnonzero(expected))
            numpy.testing.assert_array_equal(found["pos"][order], pos[expected])
            assert found["pos"].dtype == pos.dtype
            assert query.count() == expected.sum()
        table.pack(whole=True)
    read = table.box({"pos[0]": (0, 0.1), "pos[1]": (0, 0.1)}).read()
    assert read.work.rows_touched < ROWS * 0.7, "the index leaves rows out"


def test_what_is_no_element_of_a_vector_is_refused(store: atoll.Store) -> None:
    for index, told in [("pos[3]", "0 to 2"), ("pos", r"pos\[0\]"), ("poss[0]", "did you mean")]:
        with pytest.raises(atoll.errors.InvalidInputError, match=told):
            store.create_table("run", {"id": "i8", "pos": "f4[3]"}, id="id", index=index)


def test_vectors_that_are_missing_are_taken_from_arrow(store: atoll.Store) -> None:
    table = store.create_table("run", {"id": "i8", "v": "float32[2]?"}, id="id", index="id")
    kind = pyarrow.list_(pyarrow.float32(), 2)
    table.append({"id": [0, 1, 2], "v": pyarrow.array([[1, 2], None, [3, 4]], kind)})
    # A part of a larger array, too.
    table.append({"id": [3, 4], "v": pyarrow.array([None, [5, 6], None, [7, 8]], kind)[1:3]})
    with pytest.raises(atoll.errors.InvalidInputError, match="elements of vectors may not be null"):
        table.append({"id": [5, 6], "v": pyarrow.array([None, [5, None]], kind)})
    for _ in range(2):
        found = pyarrow.table(table.read())
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == {
            0: [1, 2], 1: None, 2: [3, 4], 3: [5, 6], 4: None,
        }  # fmt: skip
        table.pack(whole=True)
