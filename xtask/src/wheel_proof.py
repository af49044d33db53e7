"""What a fresh wheel must do without any other package: make a table in a folder, append, ask, find it again."""

import array
import pathlib
import tempfile

import atoll

with tempfile.TemporaryDirectory() as folder:
    place = pathlib.Path(folder) / "store"
    ids, xs = array.array("q", range(1000)), array.array("d", (n / 1000 for n in range(1000)))
    with atoll.open(place) as store:
        table = store.create_table("points", {"id": "int64", "x": "float64"}, id="id", index="x")
        table.append({"id": memoryview(ids), "x": memoryview(xs)})
    with atoll.open(place, read_only=True) as store:
        answer = store.table("points").box(x=(0.25, 0.5)).read()
        assert len(answer) == 250, len(answer)
        sample = store.table("points").sample(0.1).read()
        assert 50 < len(sample) < 150, len(sample)
print("atoll", atoll.__version__)
