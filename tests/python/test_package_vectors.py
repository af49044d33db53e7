"""Vectors as index columns: a box on their elements finds what NumPy finds, packed or not."""

import numpy
import pyarrow
import pytest

import atoll

ROWS = 4_000


def positions(dtype: str) -> numpy.ndarray:
    """Make random positions, some of whose elements have no value that compares."""
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
    # Also as a slice of a larger array.
    table.append({"id": [3, 4], "v": pyarrow.array([None, [5, 6], None, [7, 8]], kind)[1:3]})
    with pytest.raises(atoll.errors.InvalidInputError, match="elements of vectors must not be null"):
        table.append({"id": [5, 6], "v": pyarrow.array([None, [5, None]], kind)})
    for _ in range(2):
        found = pyarrow.table(table.read())
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == {
            0: [1, 2], 1: None, 2: [3, 4], 3: [5, 6], 4: None,
        }  # fmt: skip
        table.pack(whole=True)


def test_an_element_that_is_missing_is_refused_also_where_the_schema_is_the_same(store: atoll.Store) -> None:
    table = store.create_table("run", {"id": "i8", "v": "float32[2]"}, id="id", index="id")
    kind = pyarrow.schema(table.schema).field("v").type
    assert not kind.value_field.nullable
    # PyArrow does not check what it is given.
    given = [pyarrow.Array.from_buffers(kind, 2, [None], children=[pyarrow.array(values, pyarrow.float32())])
             for values in ([1, 2, None, 4], [1, 2, 3, 4])]  # fmt: skip
    ids = pyarrow.array([0, 1])
    lacking, whole = (pyarrow.table([ids, column], schema=pyarrow.schema(table.schema)) for column in given)
    for odd in ({"id": ids, "v": given[0]}, lacking, pyarrow.concat_tables([whole, lacking])):
        with pytest.raises(atoll.errors.InvalidInputError, match='column "v": elements of vectors must not be null'):
            table.append(odd)
    with atoll.Writer(table, "written") as writer:
        with pytest.raises(atoll.errors.InvalidInputError, match='column "v": elements of vectors must not be null'):
            writer.step(0, None, lacking)
        writer.step(0, None, whole)
    table.append(whole)
    table.append({"id": ids, "v": given[1]})
    assert table.count() == 6
    assert table.numpy()["v"].sum() == 30


def test_a_row_that_must_not_be_null_is_refused_also_in_a_batch_of_the_same_schema(store: atoll.Store) -> None:
    table = store.create_table("run", {"id": "i8", "x": "f8"}, id="id", index="id")

    class OnlyArray:
        """A batch that is no stream."""

        batch = pyarrow.record_batch([pyarrow.array([0, 1]), pyarrow.array([0.5, None])], schema=pyarrow.schema(table.schema))

        def __arrow_c_array__(self, requested_schema: object = None) -> tuple:
            return self.batch.__arrow_c_array__(requested_schema)

    with pytest.raises(atoll.errors.InvalidInputError, match='column "x" must not be null, but row 1 is'):
        table.append(OnlyArray())
    assert table.count() == 0


@pytest.mark.parametrize(("kind", "hidden"), [("float32", 0.1), ("int8", 300)])
def test_what_lies_below_a_missing_vector_is_no_value(store: atoll.Store, kind: str, hidden: float) -> None:
    table = store.create_table("run", {"id": "i8", "v": f"{kind}[2]?"}, id="id", index="id")
    wide = pyarrow.float64() if kind == "float32" else pyarrow.int64()
    elements = pyarrow.array([1, 2, hidden, hidden, 3, 4], wide)
    # Of three vectors, the second is missing: its bit is 0.
    bits = pyarrow.py_buffer(b"\x05")
    given = pyarrow.Array.from_buffers(pyarrow.list_(wide, 2), 3, [bits], children=[elements])
    table.append({"id": [0, 1, 2], "v": given})
    table.append({"id": [3, 4], "v": given[1:]})
    with atoll.Writer(table, "written") as writer:
        writer.step(0, None, {"id": [5, 6], "v": given[1:]})
    for _ in range(2):
        assert as_lists(table) == {0: [1, 2], 1: None, 2: [3, 4], 3: None, 4: [3, 4], 5: None, 6: [3, 4]}
        table.pack(whole=True)
    there = pyarrow.Array.from_buffers(pyarrow.list_(wide, 2), 3, [None], children=[elements])
    with pytest.raises(atoll.errors.InvalidInputError, match='"v", row 1'):
        table.append({"id": [7, 8, 9], "v": there})


def missing_second(dtype: str = "f4") -> numpy.ndarray:
    """Make two vectors, the second masked in all of its elements, with values under the mask that fit no float32."""
    return numpy.ma.masked_array([[1, 2], [0.1, 0.1]], [[0, 0], [1, 1]], dtype=dtype)


def as_lists(asked: atoll.Table | atoll.Query) -> dict[int, list | None]:
    """Return the vectors by id, None for one that is missing."""
    found = pyarrow.table(asked.read())
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_vectors_that_are_missing_are_taken_from_masks_and_lists_and_as_they_come_out(store: atoll.Store) -> None:
    table = store.create_table("run", {"id": "i8", "v": "float32[2]?"}, id="id", index=("id", "v[0]"))
    table.append({"id": [0, 1], "v": missing_second()})
    table.append({"id": [2, 3], "v": missing_second("f8")})
    table.append({"id": [4, 5, 6], "v": [None, [1.0, 2.0], None]})
    table.append({"id": [7, 8], "v": [numpy.array([1, 2]), None]})
    with atoll.Writer(table, "written") as writer:
        writer.step(0, None, {"id": [9, 10], "v": missing_second()})
    for odd in [numpy.ma.masked_array([[1, 2], [3, 4]], [[1, 1], [0, 1]], dtype="f4"), [[1.0], None], [[[1.0]], None]]:
        with pytest.raises(atoll.errors.InvalidInputError, match='column "v"'):
            table.append({"id": [11, 12], "v": odd})
    there = [0, 2, 5, 7, 9]
    expected = {row: [1, 2] if row in there else None for row in range(11)}
    again = store.create_table("again", table.schema, id="id", index="id")
    again.append(table.numpy())
    for _ in range(2):
        for each in (table, again):
            assert as_lists(each) == expected
            assert sorted(each.where("v is not null").numpy()["id"].tolist()) == there
            assert sorted(each.where("v[0] is not null").numpy()["id"].tolist()) == there
            assert sorted(each.box({"v[0]": (0, 3)}).numpy()["id"].tolist()) == there
            each.pack(whole=True)
    strict = store.create_table("strict", {"id": "i8", "v": "float32[2]"}, id="id", index="id")
    for given in (missing_second(), [[1.0, 2.0], None]):
        with pytest.raises(atoll.errors.InvalidInputError, match='"v" must not be null, but row 1 is'):
            strict.append({"id": [0, 1], "v": given})


def test_where_elements_alone_may_be_missing_a_mask_means_them_and_none_does_not(store: atoll.Store) -> None:
    given = numpy.ma.masked_array([[1, 2], [3, 4], [5, 6]], [[0, 1], [1, 1], [0, 0]], dtype="f4")
    for name, kind, second in [("elements", "float32?[2]", [None, None]), ("both", "float32?[2]?", None)]:
        table = store.create_table(name, {"id": "i8", "v": kind}, id="id", index="id")
        table.append({"id": [0, 1, 2], "v": given})
        again = store.create_table(f"{name}-again", table.schema, id="id", index="id")
        again.append(table.numpy())
        for each in (table, again):
            assert as_lists(each) == {0: [1, None], 1: second, 2: [5, 6]}
    strict = store.table("elements")
    for given in ([[1.0, 2.0], None], pyarrow.array([[1, 2], None], pyarrow.list_(pyarrow.float32(), 2))):
        with pytest.raises(atoll.errors.InvalidInputError, match='"v" must not be null, but row 1 is'):
            strict.append({"id": [3, 4], "v": given})


def test_a_table_like_a_masked_array_may_lack_what_the_mask_hides(store: atoll.Store) -> None:
    table = store.create_table("like", {"id": [0, 1], "v": missing_second()}, id="id", index="id")
    assert str(table.schema).endswith("v: float32[2]?")


def test_what_a_mask_hides_in_an_item_of_a_list_is_no_value(store: atoll.Store) -> None:
    table = store.create_table("run", {"id": "i8", "v": "float32[2]?", "x": "float64?"}, id="id", index="id")
    scalars = list(numpy.ma.masked_array([0.5, 9.0], [False, True]))
    table.append({"id": [0, 1], "v": list(missing_second()), "x": scalars})
    table.append({"id": [2, 3, 4], "v": [*missing_second(), None], "x": [numpy.ma.masked, None, 1.5]})
    with atoll.Writer(table, "written") as writer:
        writer.step(0, None, {"id": [5, 6], "v": list(missing_second()), "x": scalars})
    assert as_lists(table) == {0: [1, 2], 1: None, 2: [1, 2], 3: None, 4: None, 5: [1, 2], 6: None}
    found = pyarrow.table(table.read())
    numbers = dict(zip(found["id"].to_pylist(), found["x"].to_pylist(), strict=True))
    assert numbers == {0: 0.5, 1: None, 2: None, 3: None, 4: 1.5, 5: 0.5, 6: None}
