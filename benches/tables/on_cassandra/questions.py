"""Times of warm questions: Atoll on Cassandra beside PostgreSQL with PostGIS and its index over three dimensions."""

from ..bench import ROWS_TABLE, Bench
from ..peers.atoll_table import AtollTable
from ..peers.base import Peer, Unavailable, of_rival
from ..phases import timing
from ..report.measured import median

_CLASSES = ("first", "ten percent", "full")


def run(bench: Bench, *, with_peers: bool) -> None:
    """The classes of the bars; the ratio of each question, and their median."""
    programs: list[Peer] = [AtollTable(bench.dataset, bench.store(ROWS_TABLE), ROWS_TABLE)]
    if with_peers:
        from ..peers.postgis import Postgis3d

        programs.append(Postgis3d(bench.dataset, bench.folder))
    there = []
    for program in programs:
        try:
            with of_rival(program.name):
                program.build()
                program.open()
        except Unavailable as missing:
            bench.leave_out(program.name, missing)
        else:
            there.append(program)
    try:
        times = {
            name: {question.name: timing.asked(bench, there, question) for question in bench.plan.timed[name]}
            for name in _CLASSES
        }
    finally:
        for program in there:
            program.close()
    bench.measured.detail["warm, ms"] = times
    for name, each in times.items():
        both = [found for found in each.values() if "postgis 3-d" in found and timing.ATOLL in found]
        faster = [found["postgis 3-d"] / found[timing.ATOLL] for found in both]
        bench.measured.record(name, median(faster), timing.medians(each))
