"""The single way to run a phase: a phase that fails fails its own bars, and leaves the figures of the others; times
that were taken while others kept the machine busy are not judged.
"""

import traceback
from collections.abc import Callable, Collection

from . import machine
from .bench import Bench, told
from .peers.base import RivalFailed, Unavailable


def guarded(bench: Bench, name: str, keys: Collection[str], phase: Callable[[], None]) -> bool:
    """Runs a phase; returns whether it completed. If Atoll failed, none of the phase's bars holds, whatever was
    recorded before.
    """
    bench.begin(name)
    try:
        phase()
    except Unavailable as missing:
        bench.leave_out(name, missing)
    except RivalFailed as failed:
        bench.fail(name, str(failed), ())
    except Exception:  # noqa: BLE001: the others go on
        bench.fail(name, f"it failed: {traceback.format_exc()}", keys)
    else:
        return True
    return False


def watched(
    bench: Bench, name: str, keys: Collection[str], phase: Callable[[], None], beside: machine.Beside
) -> bool:
    """Runs a phase in the same way, and records it if others used too much of the machine meanwhile."""
    is_over = guarded(bench, name, keys, phase)
    if (share := beside.share()) > machine.BUSY:
        told(f"others used {share:.0%} of the machine: times of {name} are not judged")
        bench.measured.disturb(name, share)
    return is_over
