"""PostgreSQL in the tables bench: it ends with the bench, and one that an older bench left is no obstacle."""

import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))

from tables.peers import postgres_server
from tables.peers.base import Unavailable
from tables.peers.postgres_server import Server

_SECONDS = 60

_POSTGRES = """#!{python}
import os, pathlib, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})
words = sys.argv[sys.argv.index("-D") + 1 :]
told = pathlib.Path(words[0], "postmaster.pid")
assert any(word.startswith("unix_socket_directories=") for word in words), words
if pathlib.Path(words[0], "broken").exists():
    sys.exit("no room for shared memory")
told.with_suffix(".part").write_text("\\n".join([str(os.getpid()), *["-"] * 6, "ready   "]))
told.with_suffix(".part").rename(told)
signal.sigwait({{signal.SIGINT}})
told.unlink()
"""
_PG_CTL = """#!{python}
import os, pathlib, select, signal, sys
assert sys.argv[-1] == "stop", sys.argv
number = int(pathlib.Path(sys.argv[sys.argv.index("-D") + 1], "postmaster.pid").read_text().split()[0])
watched = os.pidfd_open(number)
os.kill(number, signal.SIGINT)
sys.exit(not select.select([watched], [], [], 60)[0])
"""
_BENCH = """
import sys
sys.path.insert(0, {benches!r})
from pathlib import Path
from tables import machine
from tables.peers import postgres_server as server
server._SETTINGS["shared_buffers"] = "16MB"
folder, programs, user, kind = sys.argv[1:]
server._programs, server._user = lambda: Path(programs), lambda: user or None
if kind == "older":
    machine.ending_with_parent = lambda sign: None
started = server.Server(Path(folder))
started.start("somebody")
print(started._process.pid, flush=True)
sys.stdin.read()
"""


class _Place(NamedTuple):
    """A folder for a server, the folder of its programs, and its user if that is another than this one."""

    folder: Path
    programs: Path
    user: str | None


_INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
"""Some PostgreSQL, with PostGIS or without: nothing is asked of it here."""


@pytest.fixture(params=[None, *_INSTALLED[-1:]], ids=lambda found: "PostgreSQL" if found else "stand-in")
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Place]:
    """A place for a stand-in that does what the tests look at, and for a real server if one is installed."""
    # Another user may run the server, and must be able to reach the folder.
    folder = Path(tempfile.mkdtemp(prefix="atoll-test-"))
    folder.chmod(0o755)
    programs, user = (request.param.parent, postgres_server._user()) if request.param else (tmp_path, None)
    monkeypatch.setattr(postgres_server, "_programs", lambda: programs)
    monkeypatch.setattr(postgres_server, "_user", lambda: user)
    monkeypatch.setitem(postgres_server._SETTINGS, "shared_buffers", "16MB")
    if request.param:
        Server(folder / "data").make()
    else:
        (folder / "data").mkdir()
        for name, text in {"postgres": _POSTGRES, "pg_ctl": _PG_CTL}.items():
            (tmp_path / name).write_text(text.format(python=sys.executable))
            (tmp_path / name).chmod(0o755)
    yield _Place(folder / "data", programs, user)
    shutil.rmtree(folder)


def _has_ended(watched: int) -> bool:
    return bool(select.select([watched], [], [], _SECONDS)[0])


def _killed_bench(place: _Place, kind: str) -> int:
    """Kill a bench; return its server as a file descriptor that becomes readable when the server ends."""
    text = _BENCH.format(benches=str(Path(__file__).parents[2] / "benches"))
    words = [sys.executable, "-c", text, place.folder, place.programs, place.user or "", kind]
    # Files that the bench has no time to remove go with the folder.
    environment = {**os.environ, "TMPDIR": str(place.folder.parent)}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as bench:
        watched = os.pidfd_open(int(bench.stdout.readline()))
        bench.kill()
    return watched


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a process that its parent has ended")
def test_a_server_ends_with_a_bench_that_is_killed(place: _Place):
    watched = _killed_bench(place, "this")
    assert _has_ended(watched)
    os.close(watched)
    assert not (place.folder / "postmaster.pid").exists(), "it ended in order"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="as above")
def test_a_server_that_an_older_bench_left_is_stopped_before_the_own_one_starts(
    place: _Place, capsys: pytest.CaptureFixture[str]
):
    watched = _killed_bench(place, "older")
    assert not select.select([watched], [], [], 0)[0], "nobody has told it to end"
    server = Server(place.folder)
    server.start("somebody")
    try:
        assert _has_ended(watched) and server._process.poll() is None
        assert "that an earlier run left" in capsys.readouterr().err
    finally:
        os.close(watched)
        server.stop("somebody")


def test_a_server_runs_until_all_who_started_it_have_stopped_it(place: _Place):
    server = Server(place.folder)
    words = server.start("one")
    assert server.start("other") == words and "host=" in words
    process = server._process
    server.stop("one")
    server.stop("one")
    assert process.poll() is None, "the other one asks it still"
    server.stop("other")
    assert process.poll() is not None and not (place.folder / "postmaster.pid").exists()
    server.stop("other")
    server.start("other")
    server.stop("other")


def test_a_server_that_does_not_start_says_why_and_leaves_nothing(place: _Place, monkeypatch: pytest.MonkeyPatch):
    (place.folder / "broken").touch()
    monkeypatch.setitem(postgres_server._SETTINGS, "shared_buffers", "no number")
    server = Server(place.folder)
    with pytest.raises(Unavailable, match="ended with 1.*(no room for shared memory|shared_buffers)"):
        server.start("somebody")
    assert server._process is None and server._socket is None
    server.stop("somebody")


def test_another_program_that_got_the_number_of_a_server_is_left_alone(tmp_path: Path):
    (tmp_path / "postmaster.pid").write_text(f"{os.getpid()}\n")
    assert postgres_server._left_behind(tmp_path) is None
    (tmp_path / "postmaster.pid").write_text("")
    assert postgres_server._left_behind(tmp_path) is None
    assert postgres_server._left_behind(tmp_path / "nothing") is None
