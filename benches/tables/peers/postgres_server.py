"""A PostgreSQL of the bench's own: created, started and stopped here, reached through a socket that only this user
sees.

PostgreSQL refuses to run as root; if this process is root, the server runs as another user. The server is a child of
this process and ends with it, however that ends: with its gigabytes it would disturb later measurements, and the next
bench could not start its own server. A server that an older bench left behind is stopped.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .. import machine
from ..bench import told
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
_START_SECONDS = 120.0
"""The time limit of a start: a server that was killed before reads its log first."""
_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_STATUS_LINE = 7
"""The status line of the file that names the process that owns a folder."""


class Server:
    """The server of one data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._users: set[str] = set()
        self._socket: str | None = None
        self._process: subprocess.Popen | None = None

    def make(self) -> None:
        """Creates the data folder if it does not exist."""
        programs = _programs()
        if (self.folder / "PG_VERSION").exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if (user := _user()) is not None:
            shutil.chown(self.folder, user)
        # Byte order is the fastest collation for text; the table has no text anyway.
        words = ["-U", "bench", "--auth", "trust", "--locale", "C", "--encoding", "UTF8", "--no-sync"]
        _run([programs / "initdb", "-D", self.folder, *words])

    def start(self, who: str) -> str:
        """Starts the server unless it runs; returns the connection string. It runs until every user who started it has
        stopped it.
        """
        self._users.add(who)
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._end_left_behind()
            self._start()
        return f"host={self._socket} user=bench dbname=postgres"

    def stop(self, who: str) -> None:
        """Stops the server unless others use it; harmless if it is not running."""
        self._users.discard(who)
        if not self._users:
            self._end()

    def _start(self) -> None:
        self._socket = tempfile.mkdtemp(prefix="atoll-bench-")
        log = self.folder / "server.log"
        log.touch()
        whose = {}
        if (user := _user()) is not None:
            shutil.chown(self._socket, user)
            shutil.chown(log, user)
            entry = pwd.getpwnam(user)
            whose = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        settings = {**_SETTINGS, "unix_socket_directories": self._socket}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with log.open("ab") as said:
            # Otherwise it would inherit this process's outputs and keep a pipe open. It gets a session of its own, so
            # that a key typed here to end the bench does not reach it.
            self._process = subprocess.Popen(
                [_programs() / "postgres", "-D", self.folder, *options],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd="/",
                start_new_session=True,
                preexec_fn=machine.ending_with_parent(signal.SIGINT),
                **whose,
            )
        self._wait(log)

    def _wait(self, log: Path) -> None:
        """Waits until the server is ready."""
        until = time.monotonic() + _START_SECONDS
        while not _is_ready(self.folder, self._process.pid):
            ended = self._process.poll()
            if ended is not None or time.monotonic() > until:
                said = log.read_text(errors="replace").strip().splitlines()[-5:]
                self._end()
                how = f"is not ready after {_START_SECONDS:.0f} s" if ended is None else f"ended with {ended}"
                raise Unavailable(f"PostgreSQL {how}{_hint()}: {' '.join(said)}")
            time.sleep(_LOOK_SECONDS)

    def _end(self) -> None:
        """Stops the server in order; kills it if that takes too long."""
        process, self._process = self._process, None
        if process is not None:
            for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                process.send_signal(sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_SECONDS)
                    break
        if self._socket is not None:
            shutil.rmtree(self._socket, ignore_errors=True)
            self._socket = None

    def _end_left_behind(self) -> None:
        if (process := _left_behind(self.folder)) is not None:
            told(f"  stopping a PostgreSQL that an earlier run left in {self.folder}, process {process}")
            _run([_programs() / "pg_ctl", "-D", self.folder, "-w", "-m", "fast", "stop"])


def _is_ready(folder: Path, process: int) -> bool:
    """Whether this very process owns the folder and reports that it is ready."""
    lines = _told_by(folder)
    return len(lines) > _STATUS_LINE and lines[0] == str(process) and lines[_STATUS_LINE].strip() == "ready"


def _left_behind(folder: Path) -> int | None:
    """The process that owns this very folder. A process number that another program has reused does not count."""
    try:
        process = int(_told_by(folder)[0])
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, IndexError):
        return None
    return process if os.fsencode(folder) in words else None


def _told_by(folder: Path) -> list[str]:
    try:
        return (folder / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []


def _programs() -> Path:
    """The folder of the server's programs, in the newest version that has PostGIS."""
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
    """The user who runs the server; none for the present user."""
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
            raise Unavailable(f"PostgreSQL's {Path(words[0]).name} failed{_hint()}: {said}")


def _hint() -> str:
    return "; ATOLL_BENCH_DIR may name a folder that its user can reach" if _user() is not None else ""


def _captured(words: list) -> str | None:
    try:
        return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
