"""Draw the run from one row in a hundred, beside all of it: python picture.py STORE OUT.png"""

import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

import atoll

GROUND, TEXT = "#0c0f14", "#c9d1d9"
#: Dots of one panel cover about as much as those of the other, so that both show the same tube.
DOTS = {0.01: (1.6, 0.9), 1.0: (0.16, 0.35)}
#: Even to the eye from end to end; its darkest part is left out, for it would drown in the ground.
COLOURS = ListedColormap(matplotlib.colormaps["viridis"](numpy.linspace(0.2, 1.0, 256)))


def main() -> None:
    """Reads twice, draws once, and says what the reading took."""
    store, out = sys.argv[1], Path(sys.argv[2])
    figure, panels = plt.subplots(1, 2, figsize=(13, 7.2), facecolor=GROUND, sharex=True, sharey=True)
    told = []
    with atoll.open(store, create=False) as opened:
        table = opened.table("airway")
        for panel, share in zip(panels, DOTS, strict=True):
            started = time.perf_counter()
            answer = table.sample(share).select("x", "z", "step").read()
            ms = 1000 * (time.perf_counter() - started)
            draw(panel, answer.numpy(), *DOTS[share])
            title = "one row in a hundred" if share < 1 else "every row"
            caption = f"{len(answer):,} rows in {ms:,.0f} ms" if ms >= 10 else f"{len(answer):,} rows in {ms:.1f} ms"
            panel.set_title(title, color=TEXT, fontsize=15, pad=14)
            panel.text(0.5, 1.0, caption, color=TEXT, alpha=0.7, ha="center", fontsize=11, transform=panel.transAxes)
            told.append(caption)
    key(figure)
    figure.subplots_adjust(left=0.02, right=0.98, top=0.87, bottom=0.09, wspace=0.02)
    figure.savefig(out, dpi=140, facecolor=GROUND)
    print(f"{told[0]} beside {told[1]}")


def draw(panel: Axes, rows: dict[str, numpy.ndarray], size: float, alpha: float) -> None:
    """Particles from the front, coloured by when they were there."""
    # In any other order late particles would hide early ones, or the other way round, wherever they meet.
    order = numpy.random.default_rng(1).permutation(len(rows["x"]))
    panel.scatter(
        rows["x"][order], rows["z"][order], c=rows["step"][order], s=size, alpha=alpha,
        cmap=COLOURS, linewidths=0, rasterized=True,
    )  # fmt: skip
    panel.set_aspect("equal")
    panel.set_xlim(-28, 28)
    panel.set_ylim(-30, 21)
    panel.set_axis_off()


def key(figure: plt.Figure) -> None:
    """What the colours mean."""
    bar = figure.add_axes((0.4, 0.055, 0.2, 0.014))
    bar.imshow(numpy.linspace(0, 1, 256)[None, :], aspect="auto", cmap=COLOURS)
    bar.set_axis_off()
    for place, word, side in ((-0.03, "first step", "right"), (1.03, "last step", "left")):
        bar.text(place, 0.4, word, color=TEXT, fontsize=11, ha=side, va="center", transform=bar.transAxes)


main()
