"""Compare the first rows of a CSV file with a store's export on standard input.

Called with the file, the number of rows, the column of the partition key, and the columns of the sort key.
Reads the file and the export with Python's own readers; shares no code with what it judges.
"""

import csv
import itertools
import json
import sys


def rows_of(path: str, count: int, partition: str, sort: list[str]) -> dict[tuple[str, str], dict[str, str]]:
    """What the first rows must have become, by key."""
    with open(path, newline="", encoding="utf-8") as lines:
        rows = itertools.islice(csv.DictReader(lines), count)
        return {(row[partition], "/".join(row[column] for column in sort)): row for row in rows}


def main() -> int:
    """Compare, and say the result in one line."""
    path, count, partition, sort = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4].split(",")
    missing = rows_of(path, count, partition, sort)
    expected = len(missing)
    if expected != count:
        print(f"the file has {expected} different keys in its first {count} rows")
        return 1
    wrong, met = 0, set()
    for line in sys.stdin:
        cell = json.loads(line)
        key = (cell["partition"], cell["sort"])
        row = missing.pop(key, None)
        # A key that comes twice is as wrong as a row that changed.
        wrong += key in met or (row is not None and json.loads(cell["value"]) != row)
        met.add(key)
    for key in itertools.islice(missing, 5):
        print(f"missing: {key}")
    print(f"{expected - len(missing) - wrong} of {expected} rows are as they were, {len(missing)} missing, {wrong} wrong")
    return int(bool(missing or wrong))


sys.exit(main())
