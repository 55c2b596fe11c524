"""Draws memory and CPU over time, one panel for each step, with the request as a line.

An SVG is written here; a PNG needs matplotlib, the extra `resile[plot]`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape

from resile.commands.documents.resources import RunResources, StepResources
from resile.errors import ResileError
from resile.model.limits import size

WIDTH, PANEL = 720, 240
LEFT, RIGHT, TOP = 86, 24, 30
RSS_HEIGHT, CPU_HEIGHT, GAP = 110, 50, 12
SERIES_DRAWN_MAX = 50
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#17becf")
MEBIBYTE = 1 << 20


def draw(found: RunResources, path: str) -> None:
    """Draw the series of a run's steps to a file, whose ending says which format it has."""
    steps = [step for step in found.steps if any(series.samples for series in step.series)]
    if not steps:
        raise ResileError(
            "no-series",
            f"run {found.run} has no series of samples, so there is nothing to draw",
            hint="put `resource_monitor: {interval: 5s}` into the file; steps shorter than the interval leave none",
        )
    title = f"run {found.run} {found.workflow}"
    if path.endswith(".png"):
        _draw_png(steps, title, path)
        return
    text = "\n".join(svg_lines(steps, title)) + "\n"
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


def svg_lines(steps: list[StepResources], title: str) -> Iterator[str]:
    """The picture as SVG."""
    height = TOP + PANEL * len(steps)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="12" fill="#333">'
    )
    yield f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    yield f'<text x="12" y="20" font-size="14" font-weight="bold">{escape(title)}</text>'
    for number, step in enumerate(steps):
        yield from _panel(step, TOP + PANEL * number)
    yield "</svg>"


def _panel(step: StepResources, top: int) -> Iterator[str]:
    """One step: its memory with the request above, its CPU below."""
    drawn = [series for series in step.series if series.samples][:SERIES_DRAWN_MAX]
    samples = [sample for series in drawn for sample in series.samples]
    last = max(sample[0] for sample in samples) or 1.0
    asked = step.requested.memory_bytes or 0
    rss_max = max([asked, step.peak_bytes, *(sample[1] for sample in samples)]) * 1.08 or 1.0
    cpu_max = max(100.0, *(sample[2] for sample in samples)) * 1.05
    rss_top = top + 24
    cpu_top = rss_top + RSS_HEIGHT + GAP
    more = len(step.series) - len(drawn)
    name = f"{step.step}: peak {size(step.peak_bytes)}" + (f", {more} more attempts" if more > 0 else "")
    yield f'<text x="{LEFT}" y="{top + 16}" font-weight="bold">{escape(name)}</text>'
    yield from _axis(rss_top, RSS_HEIGHT, size(round(rss_max)), "memory")
    yield from _axis(cpu_top, CPU_HEIGHT, f"{cpu_max:.0f} %", "CPU")
    for number, series in enumerate(drawn):
        color = COLORS[number % len(COLORS)]
        rss = [(seconds, rss_bytes) for seconds, rss_bytes, _ in series.samples]
        cpu = [(seconds, percent) for seconds, _, percent in series.samples]
        yield _line(rss, last, rss_max, rss_top, RSS_HEIGHT, color)
        yield _line(cpu, last, cpu_max, cpu_top, CPU_HEIGHT, color)
    if asked:
        y = rss_top + RSS_HEIGHT * (1 - asked / rss_max)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#d62728" stroke-dasharray="6 4" fill="none"/>'
        text = f"asks for {size(asked)}"
        yield f'<text x="{WIDTH - RIGHT}" y="{y - 4:.1f}" fill="#d62728" text-anchor="end">{text}</text>'
    bottom = cpu_top + CPU_HEIGHT + 15
    yield f'<text x="{LEFT}" y="{bottom}">0 s</text>'
    yield f'<text x="{WIDTH - RIGHT}" y="{bottom}" text-anchor="end">{last:g} s</text>'


def _axis(top: int, height: int, most: str, name: str) -> Iterator[str]:
    """The frame of a diagram, with its name and its largest value."""
    width = WIDTH - LEFT - RIGHT
    yield f'<rect x="{LEFT}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>'
    yield f'<text x="{LEFT - 6}" y="{top + 11}" text-anchor="end">{most}</text>'
    yield f'<text x="{LEFT - 6}" y="{top + height}" text-anchor="end" fill="#777">{name}</text>'


def _line(points: Sequence[tuple[float, float]], last: float, most: float, top: int, height: int, color: str) -> str:
    """One series; a single sample is a dot."""
    width = WIDTH - LEFT - RIGHT
    places = [(LEFT + width * x / last, top + height * (1 - y / most)) for x, y in points]
    if len(places) == 1:
        return f'<circle cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="2.5" fill="{color}"/>'
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return f'<path d="M{path}" stroke="{color}" stroke-width="1.5" fill="none"/>'


def _draw_png(steps: list[StepResources], title: str, path: str) -> None:
    """The same with matplotlib, which is imported here because it is large."""
    # Without a display, and without a window toolkit.
    os.environ.setdefault("MPLBACKEND", "Agg")
    try:
        from matplotlib import pyplot
    except ImportError as error:
        hint = "pip install 'resile[plot]', or --plot out.svg, which needs nothing"
        raise ResileError("no-plot", "a PNG needs the package matplotlib", hint=hint) from error
    figure, axes = pyplot.subplots(2 * len(steps), 1, figsize=(9, 4 * len(steps)), squeeze=False)
    figure.suptitle(title)
    for number, step in enumerate(steps):
        memory, cpu = axes[2 * number][0], axes[2 * number + 1][0]
        for series in step.series[:SERIES_DRAWN_MAX]:
            seconds = [sample[0] for sample in series.samples]
            # A single sample is a dot.
            marker = "." if len(seconds) == 1 else ""
            memory.plot(seconds, [sample[1] / MEBIBYTE for sample in series.samples], marker=marker)
            cpu.plot(seconds, [sample[2] for sample in series.samples], marker=marker)
        if asked := step.requested.memory_bytes:
            memory.axhline(asked / MEBIBYTE, color="red", linestyle="--", label=f"asks for {size(asked)}")
            memory.legend()
        memory.set_title(step.step)
        memory.set_ylabel("MiB")
        cpu.set_ylabel("CPU %")
        cpu.set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(path, format="png")
    pyplot.close(figure)
