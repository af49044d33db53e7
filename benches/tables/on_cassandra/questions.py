"""Times of warm questions: Atoll on Cassandra beside PostgreSQL with PostGIS and its index over three dimensions."""

from ..bench import ROWS_TABLE, Bench
from ..peers.atoll_table import AtollTable
from ..peers.base import Peer
from ..peers.together import built, opened
from ..phases import timing
from ..report.measured import median

_CLASSES = ("first", "ten percent", "full")


def run(bench: Bench, *, with_peers: bool) -> None:
    """Asks the classes of the bars; records the median of the ratios of their questions."""
    programs: list[Peer] = [AtollTable(bench.dataset, bench.store(ROWS_TABLE), ROWS_TABLE)]
    if with_peers:
        from ..peers.postgis import Postgis3d

        programs.append(Postgis3d(bench.dataset, bench.folder))
    with opened(bench, "questions", built(bench, "questions", programs)) as together:
        answered = {
            name: {question.name: timing.asked(bench, together, question) for question in bench.plan.timed[name]}
            for name in _CLASSES
        }
    times = {name: timing.kept(together, each) for name, each in answered.items()}
    bench.measured.detail["warm, ms"] = times
    for name, each in times.items():
        both = [found for found in each.values() if "postgis 3-d" in found and timing.ATOLL in found]
        faster = [found["postgis 3-d"] / found[timing.ATOLL] for found in both]
        bench.measured.record(name, median(faster), timing.medians(each))
