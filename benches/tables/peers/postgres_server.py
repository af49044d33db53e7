"""A PostgreSQL of the bench's own: made, started and stopped here, reached through a socket that only this user sees.

PostgreSQL refuses to run as root; where this process is root, the server runs as another user.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from .base import Unavailable

INSTALL = "apt-get install --no-install-recommends postgresql-15 postgresql-15-postgis-3"
_SETTINGS = {
    "shared_buffers": "3GB",
    "work_mem": "512MB",
    "maintenance_work_mem": "1GB",
    "effective_cache_size": "8GB",
    "random_page_cost": "1.1",
    "effective_io_concurrency": "200",
    "max_parallel_workers_per_gather": "2",
    "jit": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "2GB",
    "listen_addresses": "",
}


class Server:
    """The server of one data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._socket: str | None = None

    def make(self) -> None:
        """Makes the data folder if it is not there."""
        programs = _programs()
        if (self.folder / "PG_VERSION").exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if (user := _user()) is not None:
            shutil.chown(self.folder, user)
        # The order of bytes is the fastest for text; nothing here is text anyway.
        words = ["-U", "bench", "--auth", "trust", "--locale", "C", "--encoding", "UTF8", "--no-sync"]
        _run([programs / "initdb", "-D", self.folder, *words])

    def start(self) -> str:
        """Starts it unless it runs; the words to connect with."""
        if self._socket is None:
            socket = tempfile.mkdtemp(prefix="atoll-bench-")
            if (user := _user()) is not None:
                shutil.chown(socket, user)
            settings = {**_SETTINGS, "unix_socket_directories": socket}
            options = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in settings.items())
            log = self.folder / "server.log"
            _run([_programs() / "pg_ctl", "-D", self.folder, "-w", "-l", log, "-o", options, "start"])
            self._socket = socket
        return f"host={self._socket} user=bench dbname=postgres"

    def stop(self) -> None:
        """Stops it; harmless when it does not run."""
        if self._socket is not None:
            _run([_programs() / "pg_ctl", "-D", self.folder, "-w", "-m", "fast", "stop"])
            shutil.rmtree(self._socket, ignore_errors=True)
            self._socket = None


def _programs() -> Path:
    """The folder of the server's programs: the newest that has PostGIS."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    found += [Path(program) for program in [shutil.which("initdb")] if program]
    if not found:
        raise Unavailable(f"PostgreSQL is not installed: {INSTALL}")
    for initdb in reversed(found):
        shared = _captured([initdb.parent / "pg_config", "--sharedir"]) or f"/usr/share/postgresql/{initdb.parts[4]}"
        if (Path(shared) / "extension/postgis.control").exists():
            return initdb.parent
    raise Unavailable(f"PostGIS is not installed: {INSTALL}")


def _user() -> str | None:
    """Who runs the server; none for this user."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _run(words: list) -> None:
    user = _user()
    prefix = [] if user is None else ["runuser", "-u", user, "--"]
    # The server inherits its starter's outputs, and would keep a pipe open for ever.
    with tempfile.TemporaryFile() as output:
        ended = subprocess.run(
            [*prefix, *map(str, words)], stdout=output, stderr=output, stdin=subprocess.DEVNULL, check=False, cwd="/"
        )
        output.seek(0)
        if ended.returncode:
            said = output.read().decode(errors="replace").strip()
            hint = "; ATOLL_BENCH_DIR may name a folder that its user can reach" if user else ""
            raise Unavailable(f"PostgreSQL's {Path(words[0]).name} failed{hint}: {said}")


def _captured(words: list) -> str | None:
    try:
        return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
