"""`atoll.lammps` with an object that answers like LAMMPS; the real LAMMPS is in test_writer_mpi.py."""

from types import SimpleNamespace

import numpy
import pytest

import atoll
import atoll.lammps

OWNED, GHOSTS = 5, 3


@pytest.fixture
def lmp() -> SimpleNamespace:
    """Five atoms that the rank owns, and three ghosts behind them."""
    atoms = OWNED + GHOSTS
    arrays = {
        "id": numpy.arange(atoms, dtype="int32"),
        "x": numpy.arange(3.0 * atoms).reshape(atoms, 3),
        "v": -numpy.arange(3.0 * atoms).reshape(atoms, 3),
        "quat": numpy.zeros((atoms, 4)),
        "torque": numpy.arange(3.0 * atoms).reshape(atoms, 3) + 0.25,
        "omega": numpy.arange(3.0 * atoms).reshape(atoms, 3) + 0.5,
        "angmom": numpy.arange(3.0 * atoms).reshape(atoms, 3) + 0.75,
        "type": numpy.array([2, 1, 3, 2, 2, 1, 1, 3], dtype="int32"),
        # One for each type; type 0 does not exist, and its place is never set.
        "mass": numpy.array([-7.0, 1.0, 2.5, 16.0]),
    }
    settings = {"nlocal": OWNED, "nghost": GHOSTS}
    return SimpleNamespace(extract_setting=settings.get, numpy=SimpleNamespace(extract_atom=arrays.get), arrays=arrays)


def test_ghosts_are_left_out_and_vectors_have_lammps_names(lmp):
    columns = atoll.lammps.owned(lmp, "id", "x", "v", "quat")
    assert list(columns) == ["id", "x", "y", "z", "vx", "vy", "vz", "quat"]
    assert {len(values) for values in columns.values()} == {OWNED}
    assert columns["vy"].tolist() == [-1, -4, -7, -10, -13]
    assert columns["quat"].shape == (OWNED, 4)


def test_each_atom_has_the_mass_of_its_type(lmp):
    columns = atoll.lammps.owned(lmp, "id", "mass")
    assert columns["mass"].tolist() == [2.5, 1.0, 16.0, 2.5, 2.5]
    assert atoll.lammps.owned(lmp, "mass", floats=numpy.float32)["mass"].dtype == numpy.float32
    lmp.arrays["mass"] = None
    with pytest.raises(atoll.errors.NotFoundError, match="'mass'"):
        atoll.lammps.owned(lmp, "mass")


@pytest.mark.parametrize(("name", "short"), [("torque", "tq"), ("omega", "omega"), ("angmom", "angmom")])
def test_what_turns_an_atom_is_a_column_for_each_component_too(lmp, name: str, short: str):
    columns = atoll.lammps.owned(lmp, name)
    assert list(columns) == [f"{short}{axis}" for axis in "xyz"]
    assert numpy.stack(list(columns.values()), axis=1).tolist() == lmp.arrays[name][:OWNED].tolist()
    assert list(atoll.lammps.owned(lmp, name, split=False)) == [name]


def test_vectors_can_stay_whole(lmp):
    columns = atoll.lammps.owned(lmp, "id", "x", split=False)
    assert columns["x"].shape == (OWNED, 3)


def test_rounded_columns_are_copies_that_may_be_given_away(lmp):
    rounded = atoll.lammps.owned(lmp, "id", "x", floats=numpy.float32)
    assert (rounded["x"].dtype, rounded["id"].dtype) == (numpy.float32, numpy.int32)
    assert not any(numpy.shares_memory(values, lmp.arrays["x"]) for values in rounded.values())
    assert not numpy.shares_memory(rounded["id"], lmp.arrays["id"])


def test_what_lammps_does_not_have_is_named(lmp):
    with pytest.raises(atoll.errors.NotFoundError, match="'charge'"):
        atoll.lammps.owned(lmp, "charge")
