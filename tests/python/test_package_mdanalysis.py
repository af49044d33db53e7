"""MDAnalysis: a table takes what its readers read, and a run of a table is a trajectory for it."""

import json
import pickle
from pathlib import Path

import MDAnalysis
import numpy
import pytest

import atoll
import atoll.mdanalysis

#: MDAnalysis warns of everything that a PDB file leaves out.
pytestmark = pytest.mark.filterwarnings("ignore")

ATOMS, FRAMES = 60, 7


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A topology and a trajectory, written by MDAnalysis."""
    folder = tmp_path_factory.mktemp("md")
    random = numpy.random.default_rng(1)
    made = MDAnalysis.Universe.empty(ATOMS, n_residues=1, trajectory=True, velocities=True)
    made.add_TopologyAttr("names", [f"A{place % 5}" for place in range(ATOMS)])
    made.add_TopologyAttr("types", ["C" if place % 2 else "O" for place in range(ATOMS)])
    made.add_TopologyAttr("masses", random.uniform(1, 16, size=ATOMS))
    made.add_TopologyAttr("resnames", ["MOL"])
    made.add_TopologyAttr("resids", [1])
    topology, trajectory = folder / "made.pdb", folder / "made.trr"
    made.dimensions = [20, 20, 20, 90, 90, 90]
    made.atoms.positions = random.uniform(0, 20, size=(ATOMS, 3))
    made.atoms.write(topology)
    with MDAnalysis.Writer(str(trajectory), ATOMS) as writer:
        for frame in range(FRAMES):
            made.atoms.positions = random.uniform(0, 20, size=(ATOMS, 3))
            made.atoms.velocities = random.normal(size=(ATOMS, 3))
            made.trajectory.ts.frame, made.trajectory.ts.time = frame, 2.0 * frame
            made.dimensions = [20 + (frame >= 3), 20, 20, 90, 90, 90]
            writer.write(made.atoms)
    return topology, trajectory


@pytest.fixture
def universe(written: tuple[Path, Path]) -> MDAnalysis.Universe:
    return MDAnalysis.Universe(*map(str, written))


@pytest.fixture
def loaded(store: atoll.Store, universe: MDAnalysis.Universe) -> atoll.Table:
    table = atoll.mdanalysis.create_table(store, "md", universe)
    assert atoll.mdanalysis.load(table, universe, "first") == FRAMES
    return table


def test_every_atom_of_every_frame_is_a_row(loaded: atoll.Table, universe: MDAnalysis.Universe) -> None:
    assert [(step.step, step.time, step.rows) for step in loaded.steps("first")] == [
        (ts.frame, ts.time, ATOMS) for ts in universe.trajectory
    ]
    for ts in universe.trajectory:
        rows = loaded.at(step=ts.frame).numpy()
        order = numpy.argsort(rows["pid"])
        numpy.testing.assert_array_equal(rows["y"][order], ts.positions[:, 1])
        numpy.testing.assert_array_equal(rows["vz"][order], ts.velocities[:, 2])
        assert rows["name"][order].tolist() == universe.atoms.names.tolist()


def test_a_run_is_a_trajectory(loaded: atoll.Table, universe: MDAnalysis.Universe) -> None:
    again = atoll.mdanalysis.universe(loaded)
    assert len(again.trajectory) == FRAMES and again.atoms.n_atoms == ATOMS
    assert again.atoms.names.tolist() == universe.atoms.names.tolist()
    for ts, expected in zip(again.trajectory, universe.trajectory, strict=True):
        numpy.testing.assert_array_equal(ts.positions, expected.positions)
        numpy.testing.assert_array_equal(ts.velocities, expected.velocities)
        numpy.testing.assert_allclose(ts.dimensions, expected.dimensions)
        assert ts.time == pytest.approx(expected.time)
    # In any order, from the end, and as slices.
    numpy.testing.assert_array_equal(again.trajectory[-1].positions, universe.trajectory[-1].positions)
    assert [ts.frame for ts in again.trajectory[1::2]] == [1, 3, 5]
    assert again.trajectory.ts.frame == 0
    with pytest.raises(IndexError):
        again.trajectory[FRAMES]


def test_it_is_opened_like_any_other_format(
    loaded: atoll.Table, store: atoll.Store, written: tuple[Path, Path], universe: MDAnalysis.Universe
) -> None:
    again = MDAnalysis.Universe(str(written[0]), store.url, format="ATOLL", table="md", run="first")
    some = again.select_atoms("name A1")
    assert len(some) == ATOMS // 5
    again.trajectory[4], universe.trajectory[4]
    numpy.testing.assert_allclose(some.center_of_geometry(), universe.select_atoms("name A1").center_of_geometry())
    copied = pickle.loads(pickle.dumps(again))
    numpy.testing.assert_array_equal(copied.trajectory[2].positions, universe.trajectory[2].positions)
    with pytest.raises(atoll.errors.NotFoundError, match="nope"):
        MDAnalysis.Universe(str(written[0]), store.url, format="ATOLL", table="md", run="nope")


def test_a_run_or_table_that_is_not_told_apart_says_which_there_are(
    store: atoll.Store, written: tuple[Path, Path], universe: MDAnalysis.Universe
) -> None:
    def refused(**named: str) -> tuple[str, str]:
        with pytest.raises(atoll.errors.NotFoundError) as raised:
            MDAnalysis.Universe(str(written[0]), store.url, format="ATOLL", **named)
        return str(raised.value), raised.value.hint

    problem, hint = refused()
    assert "no table yet" in problem and "create_table" in hint
    table = atoll.mdanalysis.create_table(store, "md", universe)
    problem, hint = refused()
    assert "no run yet" in problem and "atoll.mdanalysis.load" in hint
    for run in ("first", "second"):
        atoll.mdanalysis.load(table, universe, run)
    assert refused() == ("there are 2 runs, and none was named", "give run=, one of first, second")
    assert refused(run="nope") == ("there is no run 'nope'", "give run=, one of first, second")
    atoll.mdanalysis.create_table(store, "other", universe)
    assert refused() == ("there are 2 tables, and none was named", "give table=, one of md, other")


def test_a_load_that_was_broken_off_goes_on(store: atoll.Store, universe: MDAnalysis.Universe) -> None:
    table = atoll.mdanalysis.create_table(store, "md", universe)

    def stop(done: int, frames: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atoll.mdanalysis.load(table, universe, "first", progress=stop)
    assert table.count() == 3 * ATOMS
    assert atoll.mdanalysis.load(table, universe, "first") == FRAMES - 3
    assert table.count() == FRAMES * ATOMS and len(table.steps("first")) == FRAMES
    assert atoll.mdanalysis.load(table, universe, "first") == 0


def test_atoms_and_frames_can_be_chosen(store: atoll.Store, universe: MDAnalysis.Universe) -> None:
    table = atoll.mdanalysis.create_table(store, "md", universe)
    chosen = atoll.mdanalysis.load(table, universe, "some", select="name A1", frames=slice(None, None, 3))
    assert chosen == 3 and [step.step for step in table.steps("some")] == [0, 3, 6]
    assert table.count() == 3 * len(universe.select_atoms("name A1"))
    with pytest.raises(atoll.errors.InvalidInputError, match="selects no atom"):
        atoll.mdanalysis.load(table, universe, "none", select="name Z")


@pytest.mark.parametrize("columns", [{}, {"run": "utf8"}])
def test_runs_of_one_table_are_trajectories_of_their_own(
    store: atoll.Store, universe: MDAnalysis.Universe, columns: dict[str, str]
) -> None:
    schema = {"pid": "int64", "step": "int64", "x": "float32", "y": "float32", "z": "float32", **columns}
    table = store.create_table("md", schema, id=("pid", "step"), sample_key="pid", index=("x", "y", "z", "step"))
    chosen = {"all": "all", "some": "name A1"}
    for run, select in chosen.items():
        assert atoll.mdanalysis.load(table, universe, run, select=select) == FRAMES
    for run, select in chosen.items():
        again = atoll.mdanalysis.universe(table, run)
        for ts, _ in zip(again.trajectory, universe.trajectory, strict=True):
            numpy.testing.assert_array_equal(ts.positions, universe.select_atoms(select).positions)
        copied = again.copy().trajectory
        assert (copied.n_atoms, copied.n_frames) == (len(universe.select_atoms(select)), FRAMES)
    if columns:
        assert table.where(atoll.col("run") == "some").count() == table.of_runs("some").count() > 0


def test_a_box_that_changes_in_each_frame_is_noted_once_a_frame(
    loaded: atoll.Table, universe: MDAnalysis.Universe
) -> None:
    # One text with all boxes, rewritten for each, would take quadratic time.
    assert len(json.loads(loaded.run_attributes("first")[atoll.mdanalysis._BOXES])) == 1
    noted = [frame for frame in range(FRAMES) if loaded.attributes(run="first", step=frame)]
    assert noted == [3, 4, 5, 6]
    again = atoll.mdanalysis.universe(loaded)
    lengths = [round(float(ts.dimensions[0]), 3) for ts in again.trajectory]
    assert lengths == [20, 20, 20, 21, 21, 21, 21]


def test_frames_before_those_of_a_run_are_refused(store: atoll.Store, universe: MDAnalysis.Universe) -> None:
    table = atoll.mdanalysis.create_table(store, "md", universe)
    assert atoll.mdanalysis.load(table, universe, "late", frames=slice(4, None)) == FRAMES - 4
    with pytest.raises(atoll.errors.InvalidInputError, match="frame 0 lies before frame 6"):
        atoll.mdanalysis.load(table, universe, "late", frames=slice(0, 4))
    assert len(table.steps("late")) == FRAMES - 4


def test_atoms_come_back_with_their_residues(store: atoll.Store) -> None:
    made = MDAnalysis.Universe.empty(6, n_residues=3, atom_resindex=[0, 0, 1, 1, 1, 2], trajectory=True)
    made.add_TopologyAttr("resids", [7, 8, 7])
    made.add_TopologyAttr("resnames", ["ALA", "GLY", "ALA"])
    table = atoll.mdanalysis.create_table(store, "md", made)
    assert atoll.mdanalysis.load(table, made, "first") == 1
    again = atoll.mdanalysis.universe(table)
    assert again.residues.resids.tolist() == [7, 8, 7] and again.residues.resnames.tolist() == ["ALA", "GLY", "ALA"]
    assert again.atoms.resindices.tolist() == [0, 0, 1, 1, 1, 2]


def test_a_store_in_memory_is_refused_as_a_trajectory(universe: MDAnalysis.Universe) -> None:
    with atoll.open("mem:") as store:
        table = atoll.mdanalysis.create_table(store, "md", universe)
        atoll.mdanalysis.load(table, universe, "first")
        with pytest.raises(atoll.errors.UnsupportedError, match="in memory"):
            atoll.mdanalysis.universe(table)


def test_a_trajectory_changes_nothing_of_its_store(
    tmp_path: Path, universe: MDAnalysis.Universe
) -> None:
    folder = tmp_path / "archive"
    with atoll.open(folder) as store:
        table = atoll.mdanalysis.create_table(store, "md", universe)
        atoll.mdanalysis.load(table, universe, "first")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())
    with atoll.open(folder, read_only=True) as store:
        again = atoll.mdanalysis.universe(store.table("md"))
        assert len(again.trajectory) == FRAMES
        assert again.trajectory[4].dimensions[0] == pytest.approx(21)
        assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) == before


def test_the_box_of_a_frame_that_was_deleted_is_not_that_of_the_frame_in_its_place(
    loaded: atoll.Table, universe: MDAnalysis.Universe
) -> None:
    loaded.delete(run="first", steps=(3, None))
    for ts in universe.trajectory:
        # As in a file that was corrected: all frames have the box of the first.
        ts.dimensions = [20, 20, 20, 90, 90, 90]
        if ts.frame >= 3:
            atoll.mdanalysis._note_box(loaded, "first", atoll.mdanalysis._boxes(loaded, "first"), ts.frame, ts.dimensions)
    reader = atoll.mdanalysis.universe(loaded, "first").trajectory
    assert [reader._box(frame)[0] for frame in (2, 3, 6)] == [20, 20, 20]
