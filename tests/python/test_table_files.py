"""Files of rows as Python's own libraries write them, passed to `atoll table`."""

import csv
import io
import json
import random
import struct
import zipfile

import numpy
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as papq
import pytest

import atoll as package

ROWS = 1000


def npy(descr: str | list, shape: tuple, content: bytes) -> bytes:
    """Format an array as NumPy writes it: with the header padded to 64 bytes."""
    head = str({"descr": descr, "fortran_order": False, "shape": shape})
    head += " " * (-(10 + len(head) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + content


def archive(path, method: int) -> None:
    """Write an archive as numpy.savez does: every member allows for more than 4 GiB."""
    arrays = {
        "pid": npy("<i8", (ROWS,), struct.pack(f"<{ROWS}q", *range(ROWS))),
        "x": npy("<f4", (ROWS,), struct.pack(f"<{ROWS}f", *(pid / 8 for pid in range(ROWS)))),
        "pos": npy("<f8", (ROWS, 2), struct.pack(f"<{2 * ROWS}d", *(value / 4 for value in range(2 * ROWS)))),
    }
    with zipfile.ZipFile(path, "w", method) as zipped:
        for name, array in arrays.items():
            with zipped.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(array)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_of_arrays_are_read_stored_or_deflated(atoll, read_lines, tmp_path, method):
    archive(tmp_path / "run.npz", method)
    atoll("table", "create", "t", "--like", "run.npz", "--id", "pid", "--index", "x")
    atoll("table", "import", "t", "run.npz")
    rows = read_lines(atoll("table", "query", "t", "--json").stdout)
    assert len(rows) == ROWS
    for row in rows:
        pid = row["pid"]
        assert row == {"pid": pid, "x": pid / 8, "pos": [pid / 2, pid / 2 + 0.25]}


def test_an_archive_with_a_flipped_bit_is_refused(atoll, tmp_path):
    archive(tmp_path / "run.npz", zipfile.ZIP_STORED)
    atoll("table", "create", "t", "--like", "run.npz", "--id", "pid", "--index", "x")
    damaged = bytearray((tmp_path / "run.npz").read_bytes())
    damaged[5000] ^= 1
    (tmp_path / "run.npz").write_bytes(damaged)
    ended = atoll("table", "import", "t", "run.npz", expect=18)
    assert b"checksum" in ended.stderr


def test_exported_arrays_are_those_of_numpy(atoll, tmp_path):
    archive(tmp_path / "run.npz", zipfile.ZIP_STORED)
    atoll("table", "create", "t", "--like", "run.npz", "--id", "pid", "--index", "x")
    atoll("table", "import", "t", "run.npz")
    atoll("table", "export", "t", "out.npz")
    atoll("table", "export", "t", "out.npy")
    with zipfile.ZipFile(tmp_path / "out.npz") as zipped:
        assert zipped.testzip() is None
    arrays, structures = numpy.load(tmp_path / "out.npz"), numpy.load(tmp_path / "out.npy")
    assert arrays.files == list(structures.dtype.names) == ["pid", "x", "pos"]
    assert structures.dtype["pos"] == numpy.dtype(("<f8", (2,)))
    for name in arrays.files:
        assert arrays[name].dtype == structures[name].dtype
        assert numpy.array_equal(arrays[name], structures[name])
    assert sorted(arrays["pid"]) == list(range(ROWS))
    assert numpy.array_equal(arrays["x"], arrays["pid"].astype("f4") / 8)
    assert numpy.array_equal(arrays["pos"][:, 1], arrays["pid"] / 2 + 0.25)


def test_csv_with_odd_texts_goes_in_and_out_as_python_writes_and_reads_it(atoll, tmp_path):
    odd = ["plain", 'a "quoted" word', "comma, and\nnew line", "Åé 環礁 🌊", " spaces ", "\\back\tslash"]
    with open(tmp_path / "odd.csv", "w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        writer.writerow(["number", "text"])
        writer.writerows(enumerate(odd))
    atoll("table", "create", "t", "--like", "odd.csv", "--id", "number", "--index", "number")
    atoll("table", "import", "t", "odd.csv")
    exported = atoll("table", "export", "t", "-", "--format", "csv").stdout.decode()
    rows = sorted((int(row["number"]), row["text"]) for row in csv.DictReader(io.StringIO(exported, newline="")))
    assert rows == list(enumerate(odd))


def test_the_work_of_a_sample_is_small_and_told(atoll, tmp_path):
    with open(tmp_path / "many.csv", "w", encoding="utf-8") as lines:
        lines.write("pid,x\n")
        lines.writelines(f"{pid},{pid % 97}\n" for pid in range(200_000))
    atoll("table", "create", "t", "--like", "many.csv", "--id", "pid", "--index", "x")
    atoll("table", "import", "t", "many.csv")
    ended = atoll("table", "sample", "t", "0.01", "--work", "--json")
    work = json.loads(ended.stderr)["work"]
    assert work["rows_returned"] == len(ended.stdout.splitlines())
    assert 1700 < work["rows_returned"] < 2300
    assert work["rows_touched"] <= 5 * work["rows_returned"]


def test_json_lines_keep_every_bit_of_a_double(atoll, read_lines, tmp_path):
    draw = random.Random(1)
    doubles = [94.52706955539223, *(draw.uniform(0, 100) for _ in range(ROWS - 1))]
    lines = "".join(json.dumps({"pid": pid, "x": x}) + "\n" for pid, x in enumerate(doubles))
    (tmp_path / "in.jsonl").write_text(lines)
    atoll("table", "create", "t", "--like", "in.jsonl", "--id", "pid", "--index", "x")
    atoll("table", "import", "t", "in.jsonl")
    rows = read_lines(atoll("table", "query", "t", "--json").stdout)
    assert {row["pid"]: row["x"] for row in rows} == dict(enumerate(doubles))


def test_structures_with_gaps_are_read_without_them(atoll, read_lines, tmp_path):
    packed = b"".join(struct.pack("<B7xd", pid, pid / 4) for pid in range(100))
    (tmp_path / "gaps.npy").write_bytes(npy([("pid", "|u1"), ("", "|V7"), ("x", "<f8")], (100,), packed))
    atoll("table", "create", "t", "--like", "gaps.npy", "--id", "pid", "--index", "x")
    atoll("table", "import", "t", "gaps.npy")
    rows = read_lines(atoll("table", "query", "t", "--json").stdout)
    assert sorted((row["pid"], row["x"]) for row in rows) == [(pid, pid / 4) for pid in range(100)]


def test_a_table_that_is_made_like_a_file_of_periods_takes_its_own_schema_and_answers(atoll, tmp_path):
    months = pa.array(pd.Series(pd.period_range("2026-01", periods=2, freq="M")))
    fields = pa.schema([pa.field("pid", pa.int64(), nullable=False), pa.field("when", months.type)])
    papq.write_table(pa.table([pa.array([1, 2]), months], schema=fields), tmp_path / "a.parquet")
    atoll("table", "create", "t", "--like", "a.parquet", "--id", "pid", "--index", "pid")
    atoll("table", "import", "t", "a.parquet")
    with package.open(tmp_path / "store") as store:
        made = store.table("t")
        like = store.create_table("like", made.schema, id="pid", index="pid")
        like.append(pa.table(made.query().read()))
        assert like.count() == 2
