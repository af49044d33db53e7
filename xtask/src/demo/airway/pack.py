"""Pack the run, so that a box or a sample reads little more than it returns: python pack.py STORE"""

import sys
import time

import atoll


def main() -> None:
    """Packs everything and says what that did; no answer changes by it."""
    with atoll.open(sys.argv[1], create=False) as store:
        table = store.table("airway")
        before = table.sample(0.001).mean("vz")
        started = time.perf_counter()
        packed = table.pack(whole=True)
        seconds = time.perf_counter() - started
        after = table.sample(0.001).mean("vz")
    if (before.value, before.low, before.high) != (after.value, after.low, after.high):
        sys.exit(f"an answer changed: {before} became {after}")
    print(
        f"{packed.rows:,} rows in {packed.cubes:,} cubes, {packed.objects_before:,} objects became "
        f"{packed.objects_after:,}, {packed.rows / seconds / 1000:,.0f} thousand rows a second"
    )


main()
