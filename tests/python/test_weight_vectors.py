"""The weights in the documentation are those that Python computes from the same values, byte for byte.

The program's own test reads the same table, so the page, Rust and Python can only change together.
"""

import re
import struct
from pathlib import Path

import pytest
import xxhash

PAGE = Path(__file__).parents[2] / "docs/internals/tables-weights.md"
ROW = re.compile(
    r"^\| `(?P<columns>[^|]+)` \| (?P<salt>\d+) \| `(?P<key>[^|]+)` \| `0x(?P<weight>[0-9a-f]{16})` \|$"
)
COLUMN = re.compile(r'(?P<type>\w+)(\[(?P<unit>\w+)\])?:(?P<value>"[^"]*"( x \d+)?|[^,]+)')
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "date32": 86_400 * 10**9, "date64": 10**6}
LONGEST_SHOWN = 40


def canonical(kind: str, unit: str | None, value: str) -> bytes | None:
    """Return the canonical bytes of one value; none for null."""
    if value == "null":
        return None
    if kind == "utf8":
        text, _, times = value.partition('" x ')
        return text.strip('"').encode() * int(times or 1)
    if kind == "binary":
        return bytes.fromhex(value)
    if kind.startswith("float"):
        # Python's own packing rounds to the width of the column; widening again is exact.
        narrow = {"16": "<e", "32": "<f", "64": "<d"}[kind.removeprefix("float")]
        (wide,) = struct.unpack(narrow, struct.pack(narrow, float(value)))
        return struct.pack("<Q", 0x7FF8 << 48) if wide != wide else struct.pack("<d", wide + 0.0)
    if kind == "bool":
        return struct.pack("<Q", value == "true")
    if kind.startswith("int"):
        return struct.pack("<q", int(value))
    if kind.startswith("uint"):
        return struct.pack("<Q", int(value))
    return (int(value) * NANOSECONDS[unit or kind]).to_bytes(16, "little", signed=True)


def key_of(columns: str) -> bytes:
    """Return the canonical key of a row such as `int64:7, utf8:"a"`."""
    values = [canonical(column["type"], column["unit"], column["value"]) for column in COLUMN.finditer(columns)]
    if len(values) == 1:
        return b"\xff" if values[0] is None else values[0]
    return b"".join(
        struct.pack("<Q", 2**64 - 1) if value is None else struct.pack("<Q", len(value)) + value for value in values
    )


def weight_of(key: bytes, salt: int) -> int:
    """Return the weight of a canonical key."""
    return xxhash.xxh3_64_intdigest(key, seed=salt) or 1


def shown(key: bytes) -> str:
    """Format a key as the page shows it."""
    if len(key) > LONGEST_SHOWN:
        return f"{key[:8].hex()}... of {len(key)} bytes"
    return key.hex() or "empty"


VECTORS = [row for line in PAGE.read_text(encoding="utf-8").splitlines() if (row := ROW.match(line))]


def test_the_page_has_its_vectors():
    table = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "| `0x" in line]
    assert len(VECTORS) == len(table) >= 20, "every line of the table is a vector"


def name(vector: re.Match) -> str:
    """Return the name of a vector's test, without spaces, at which the list of results would be split."""
    return f"{vector['columns']}-{vector['salt']}".replace(" ", "")


@pytest.mark.parametrize("vector", VECTORS, ids=name)
def test_python_computes_the_same_weight(vector):
    key = key_of(vector["columns"])
    assert shown(key) == vector["key"]
    assert weight_of(key, int(vector["salt"])) == int(vector["weight"], 16)
