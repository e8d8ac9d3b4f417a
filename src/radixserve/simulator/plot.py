"""Curves of the hit rate over the pool's size, as a PNG (with matplotlib) or an HTML page that needs nothing."""

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path

from radixserve.errors import ConfigError
from radixserve.simulator.whatif import Prediction

Curves = dict[str, list[tuple[int, float]]]
"""(slots, percent) by name."""
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 960, 460, 60, 50, 20, 340


def plot(predictions: Sequence[Prediction], path: Path) -> None:
    """Writes the curves. Raises ConfigError for a file that can't be written, or a PNG without matplotlib."""
    try:
        if path.suffix == ".png":
            _png(_curves(predictions), path)
        else:
            path.write_text(_page(_curves(predictions)))
    except OSError as error:
        raise ConfigError(f"--plot {path} can't be written: {error.strerror}") from error


def _curves(predictions: Sequence[Prediction]) -> Curves:
    curves: Curves = defaultdict(list)
    names = ("policy", "order", "page_size", "replicas", "router")
    varies = [name for name in names if len({getattr(p.setting, name) for p in predictions}) > 1] or ["policy"]
    for p in predictions:
        label = ", ".join(f"{name.replace('_', ' ')} {getattr(p.setting, name)}" for name in varies)
        curves[label].append((p.setting.num_slots, 100 * p.hit_rate))
        curves["optimum"].append((p.setting.num_slots * p.setting.replicas, 100 * p.optimal_hit_rate))
        curves["infinite cache"].append((p.setting.num_slots, 100 * p.infinite_hit_rate))
    return {name: sorted(set(points)) for name, points in curves.items()}


def _png(curves: Curves, path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(f"--plot {path} needs matplotlib: pip install matplotlib, or name an .html file") from error
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    for colour, (name, points) in zip(_colours(curves), curves.items(), strict=True):
        axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=name)
    axes.set(xscale="log", xlabel="slots (tokens)", ylabel="hit rate (% of prompt tokens)", ylim=(0, None))
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def _colours(curves: Curves) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(len(curves))]


def _page(curves: Curves) -> str:
    """One SVG with titles on its points; light and dark."""
    slots = sorted({x for points in curves.values() for x, _ in points})
    top = max(y for points in curves.values() for _, y in points) * 1.1 or 1.0

    def place(x: int, y: float) -> tuple[float, float]:
        share = slots.index(x) / max(len(slots) - 1, 1)
        return LEFT + share * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - TOP)

    marks = []
    for x in slots:
        at, base = place(x, 0)
        marks.append(f'<text x="{at:.1f}" y="{base + 20:.1f}" text-anchor="middle">{x:,}</text>')
    for percent in range(0, int(top) + 1, max(int(top) // 5, 1)):
        at = place(slots[0], percent)[1]
        marks.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        marks.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{percent}%</text>')
    for index, (colour, (name, points)) in enumerate(zip(_colours(curves), curves.items(), strict=True)):
        places = [place(*point) for point in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        marks.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (across, down), (num_slots, rate) in zip(places, points, strict=True):
            title = f"<title>{escape(name)}: {num_slots:,} slots, {rate:.1f}%</title>"
            marks.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="{colour}">{title}</circle>')
        marks.append(f'<text x="{WIDTH - RIGHT + 20}" y="{TOP + 20 + 22 * index}" style="fill: {colour}">{escape(name)}</text>')
    return PAGE.format(width=WIDTH, height=HEIGHT, middle=(LEFT + WIDTH - RIGHT) // 2, base=HEIGHT - 8, marks="\n".join(marks))


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Hit rate over the pool's size</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 14px system-ui, sans-serif; margin: 2rem }}
text {{ fill: currentColor; font-size: 13px }}
.grid {{ stroke: currentColor; opacity: .15 }}
svg {{ max-width: 100%; height: auto }}
</style>
<h1>Hit rate over the pool's size</h1>
<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="Hit rate in percent of prompt tokens, by slots">
{marks}
<text x="{middle}" y="{base}" text-anchor="middle">slots (tokens)</text>
</svg>
</html>
"""
