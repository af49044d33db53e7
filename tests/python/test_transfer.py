"""Import and export agree with Python's own CSV and JSON, including odd characters."""

import csv
import io
import json

# Quotes, separators, line ends, and letters of several lengths in UTF-8.
ODD = ['plain', 'a "quoted" word', "comma, and\nnew line", "tab\tand \\ backslash", "Åé 環礁 🌊", " spaces "]


def test_csv_written_by_python_is_read_as_python_reads_it(atoll, read_lines, tmp_path):
    table = tmp_path / "odd.csv"
    with open(table, "w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        writer.writerow(["name", "number", "text"])
        writer.writerows(["row", number, text] for number, text in enumerate(ODD))
    atoll("kv", "import", str(table), "--partition-columns", "name", "--sort-columns", "number")
    cells = read_lines(atoll("kv", "export", "-", "--format", "jsonl").stdout)
    with open(table, newline="", encoding="utf-8") as lines:
        expected = {row["number"]: row for row in csv.DictReader(lines)}
    assert {cell["sort"]: json.loads(cell["value"]) for cell in cells} == expected


def test_json_lines_written_by_python_come_back_equal(atoll, read_lines):
    cells = [{"partition": "p", "sort": f"{number:02}", "value": text} for number, text in enumerate(ODD)]
    lines = "".join(json.dumps(cell) + "\n" for cell in cells)
    atoll("kv", "import", "-", "--format", "jsonl", stdin=lines.encode())
    exported = read_lines(atoll("kv", "export", "-", "--format", "jsonl").stdout)
    assert [{name: cell[name] for name in ("partition", "sort", "value")} for cell in exported] == cells


def test_csv_that_is_exported_is_valid_csv(atoll):
    atoll("kv", "put", "p", "s", 'a "b", c')
    exported = atoll("kv", "export", "-", "--format", "csv").stdout.decode()
    rows = list(csv.reader(io.StringIO(exported)))
    assert len(rows) == 2
    assert rows[1] == ["p", "s", 'a "b", c']


def test_every_byte_survives_a_value(atoll):
    every_byte = bytes(range(256))
    atoll("kv", "put", "p", "bytes", "-", stdin=every_byte)
    assert atoll("kv", "get", "p", "bytes").stdout == every_byte
