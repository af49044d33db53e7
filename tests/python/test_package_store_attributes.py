"""Attributes of a store as a whole."""

from pathlib import Path

import numpy
import pytest

import atoll
from atoll.errors import InvalidInputError, ReadOnlyError, UnsupportedError


def test_a_store_keeps_attributes_with_their_types_apart_from_those_of_its_tables(store: atoll.Store) -> None:
    assert store.attributes() == {}
    store.set_attributes({"project": "<tubes>", "seed": numpy.int64(42), "cutoffs": (2.5, True), "nan": float("nan")})
    table = store.create_table("run", {"id": int, "x": float}, id="id", index="x")
    table.set_attributes({"seed": 1})
    kept = {"project": "<tubes>", "seed": 42, "cutoffs": [2.5, True], "nan": "nan"}
    assert store.attributes() == kept
    store.set_attributes({"nan": None, "project": "pipes"})
    assert store.attributes() == {"project": "pipes", "seed": 42, "cutoffs": [2.5, True]}
    store.set_attributes({"project": "<tubes>"}, replace=True)
    assert store.attributes() == {"project": "<tubes>"} and table.attributes() == {"seed": 1}
    assert "project = &lt;tubes&gt;" in store._repr_html_()
    with pytest.raises(InvalidInputError, match='attribute "odd" is of type object'):
        store.set_attributes({"odd": object()})


def test_attributes_of_a_store_stay_and_are_not_set_in_one_that_is_only_read(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "one") as store:
        store.set_attributes({"project": "tubes"})
    with atoll.open(tmp_path / "one", read_only=True) as store:
        assert store.attributes() == {"project": "tubes"}
        with pytest.raises(ReadOnlyError):
            store.set_attributes({"project": "pipes"})


def test_several_stores_have_the_attributes_on_which_they_agree(tmp_path: Path) -> None:
    for name, noted in [("a", {"seed": 1}), ("b", {}), ("c", {"seed": 1})]:
        with atoll.open(tmp_path / name) as store:
            store.set_attributes(noted)
    places = [tmp_path / name for name in "abc"]
    with atoll.open(places) as stores:
        assert stores.attributes() == {"seed": 1}
    with atoll.open(tmp_path / "c") as store:
        store.set_attributes({"seed": 2})
    with atoll.open(places) as stores, pytest.raises(UnsupportedError, match="what is noted of them differs"):
        stores.attributes()
