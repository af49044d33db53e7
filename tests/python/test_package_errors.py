"""Errors reach Python as the class of their kind, with the hint, and name the column or the position."""

import re

import pytest

import atoll
from atoll import _atoll, errors


def test_every_kind_has_its_class() -> None:
    for code, name, retry_can_help in _atoll.error_kinds():
        error = getattr(errors, name)
        assert issubclass(error, atoll.AtollError)
        assert (error.kind, error.retry_can_help) == (code, retry_can_help), name
    kinds = {error.kind for error in errors.AtollError.__subclasses__()}
    assert kinds == {code for code, _, _ in _atoll.error_kinds()}


def test_a_table_that_is_not_there_is_not_found(store: atoll.Store) -> None:
    with pytest.raises(errors.NotFoundError, match='no table "nothing"') as raised:
        store.table("nothing")
    assert isinstance(raised.value, LookupError)
    assert raised.value.kind == "not-found"
    assert raised.value.hint == "store.tables() lists the names of the tables"


def test_a_schema_that_is_refused_says_what_to_do(store: atoll.Store) -> None:
    with pytest.raises(errors.InvalidInputError, match='index names "y"') as raised:
        store.create_table("t", {"id": "int64"}, id="id", index="y")
    assert raised.value.hint == "id=, sample_key= and index= name columns of the schema"


def test_a_store_that_is_not_there_is_not_found(tmp_path) -> None:
    with pytest.raises(errors.NotFoundError):
        atoll.open(tmp_path / "nowhere", create=False)
    assert not (tmp_path / "nowhere").exists()


def test_another_schema_is_a_conflict(store: atoll.Store) -> None:
    store.create_table("t", {"id": "int64"}, id="id", index="id")
    store.create_table("t", {"id": "int64"}, id="id", index="id")
    with pytest.raises(errors.ConflictError):
        store.create_table("t", {"id": "int32"}, id="id", index="id")


def test_a_table_that_is_there_is_opened_where_nothing_may_be_written(tmp_path) -> None:
    schema = {"id": "int64"}
    with atoll.open(tmp_path / "s") as store:
        store.create_table("t", schema, id="id", index="id").append({"id": [1]})
    with atoll.open(tmp_path / "s", read_only=True) as store:
        assert store.create_table("t", schema, id="id", index="id", pack="background").count() == 1
        with pytest.raises(errors.ConflictError, match="its ids need not be unique"):
            store.create_table("t", schema, id="id", index="id", unique=True)
        with pytest.raises(errors.ReadOnlyError):
            store.create_table("u", schema, id="id", index="id")
        assert store.tables() == ["t"]


def test_what_a_type_is_called_elsewhere_is_answered_with_its_name_here(store: atoll.Store) -> None:
    for name, meant in {"float": "float64", "double": "float64", "int": "int64", "(3)f4": "float32[3]", "real[2]?": "float64[2]"}.items():
        refused = rf'column "x": "{re.escape(name.rstrip("?"))}" is not a column type; did you mean {re.escape(meant)}\?;'
        with pytest.raises(errors.InvalidInputError, match=refused):
            store.create_table("t", {"id": "int64", "x": name}, id="id", index="id")
    for name in ("float64[0]", "utf8[3]", "matrix"):
        with pytest.raises(errors.InvalidInputError, match=f'"{re.escape(name)}" is not a column type; there are bool'):
            store.create_table("t", {"id": "int64", "x": name}, id="id", index="id")
    table = store.create_table("t", {"id": "int64", "x": "f4[3]?"}, id="id", index="id")
    with pytest.raises(errors.InvalidInputError, match="did you mean float64"):
        table.add_column("y", "double")
    assert repr(table.schema).endswith("x: float32[3]?")


def test_a_column_that_is_mistyped_is_answered_with_the_nearest(store: atoll.Store) -> None:
    with pytest.raises(errors.InvalidInputError, match='did you mean "pid"'):
        store.create_table("t", {"pid": "int64"}, id="pdi", index="pid")


def test_a_condition_that_is_none_shows_the_place(table: atoll.Table) -> None:
    with pytest.raises(errors.InvalidInputError) as raised:
        table.where("x > > 1")
    assert "^" in str(raised.value)
    with pytest.raises(errors.InvalidInputError, match="not a range"):
        table.box(x=1)
    with pytest.raises(errors.InvalidInputError):
        table.box(x=(1, 0))
    with pytest.raises(errors.InvalidInputError):
        table.sample(1.5)
    with pytest.raises(errors.InvalidInputError, match="not True"):
        table.where(1 == 1)


def test_a_closed_store_says_so(tmp_path) -> None:
    store = atoll.open(tmp_path / "s")
    store.close()
    with pytest.raises(errors.UnavailableError, match="closed") as raised:
        store.table("t")
    assert "atoll.open" in raised.value.hint
    assert any("hint:" in note for note in raised.value.__notes__)


def test_the_stub_names_what_the_native_half_has() -> None:
    import ast
    import pathlib

    stub = ast.parse(pathlib.Path(_atoll.__file__).with_name("_atoll.pyi").read_text())
    for node in stub.body:
        if isinstance(node, ast.FunctionDef):
            assert callable(getattr(_atoll, node.name)), node.name
        if isinstance(node, ast.ClassDef):
            native = getattr(_atoll, node.name)
            names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            names |= {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
            missing = {name for name in names if not hasattr(native, name)}
            unnamed = {name for name in vars(native) if not name.startswith("__")} - names
            assert not missing and not unnamed, f"{node.name}: {missing} {unnamed}"


def test_syncing_a_store_that_was_closed_says_so(tmp_path) -> None:
    store = atoll.open(tmp_path / "store")
    store.create_table("t", {"id": "int64"}, id="id", index="id").append({"id": [1]})
    store.sync()
    store.close()
    with pytest.raises(errors.UnavailableError, match="closed"):
        store.sync()


def test_whole_numbers_are_refused_by_their_names(store: atoll.Store) -> None:
    table = store.create_table("t", {"id": "int64"}, id="id", index="id")
    one = {"id": [1]}
    asked = {
        "salt": lambda: store.create_table("u", {"id": "int64"}, id="id", index="id", salt=-1),
        "step": lambda: table.append(one, run="a", step=-3),
        "rank": lambda: table.append(one, run="a", step=0, rank=2**32),
        "attempt": lambda: table.append(one, run="a", attempt=2**64),
        "ranks": lambda: table.begin("a", -2),
        "the first step": lambda: table.delete(run="a", steps=(-3, None)),
        "the end of steps": lambda: table.delete(run="a", steps=(0, 1.5)),  # type: ignore[arg-type]
        "version": lambda: table.as_of(-1),
    }
    for name, ask in asked.items():
        with pytest.raises(errors.InvalidInputError, match=f"^{name} is a whole number"):
            ask()
    assert table.count() == 0
