"""The origin of figures: the commit, and the exact programs that made them."""

import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

_BENCH = Path(__file__).parent
_PIECE = 1 << 20


def commit() -> str:
    """The commit of this checkout, and whether files were changed since; unknown if there is no Git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return f"{head}, changed since" if _git("status", "--porcelain", "--untracked-files=no") else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def programs(counter: Path, *more: Path) -> str:
    """A digest of everything that is measured or measures: the Rust half, the Python package, and the bench itself."""
    import atoll

    package = Path(atoll.__file__).parent
    return digest([counter, *more, *_files(package), *_files(_BENCH)])


def digest(files: Iterable[Path]) -> str:
    """A digest of the contents of these files, in this order."""
    found = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            while piece := opened.read(_PIECE):
                found.update(piece)
    return found.hexdigest()[:16]


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix in {".py", ".so", ".dylib"})


def _git(*words: str) -> str:
    command = ["git", "-C", os.fspath(_BENCH), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
