"""`resources`: what the steps of a run asked for, used, and should ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from resile.cli.display.output import Page, answer, duration, escape, plural, say
from resile.cli.parse import Call, refusal
from resile.commands.documents.resources import RunResources, StepResources
from resile.commands.resources.usage import resources_of
from resile.commands.store_handle import StoreHandle
from resile.model.limits import size

GIBIBYTE = 1 << 30
# What a GiB of memory costs in an hour, at the large clouds, about.
GIB_HOUR_DOLLARS = 0.005
CENT = 0.01
# A request that is less than this share above the suggestion is fine as it is.
FINE_SHARE = 1.1


def resources(call: Call) -> int:
    """Show what steps used; with --plot draw it."""
    plot = call.text("plot")
    if plot is not None and not plot.endswith((".svg", ".png")):
        raise refusal(f"--plot {plot!r} is neither .svg nor .png", "resile resources RUN --plot memory.svg")
    with closing(StoreHandle(call.database)) as stores:
        found = resources_of(stores.read(), call.run, call.word("STEP"))
    if plot is not None:
        from resile.commands.resources.plot import draw

        draw(found, plot)
        say(f"the plot is in {plot}")
    return answer(call, found, _lines)


def _lines(document: RunResources, page: Page) -> Iterator[str]:
    """A table of the steps, then what to change, in words."""
    yield f"run {document.run} {escape(document.workflow)}: {plural(len(document.steps), 'step')} measured"
    if not document.steps:
        return
    rows = [
        [
            escape(step.step),
            str(step.attempts),
            _size(step.requested.memory_bytes),
            _size(step.granted.memory_bytes),
            size(step.peak_bytes),
            size(step.p95_bytes),
            duration(step.cpu_seconds),
            duration(step.wall_seconds),
            size(step.io_bytes) if step.io_bytes else "",
            _size(step.suggested.memory_bytes),
        ]
        for step in document.steps
    ]
    heads = ["STEP", "ATTEMPTS", "ASKS", "HAD", "PEAK", "P95", "CPU", "TIME", "IO", "SHOULD ASK"]
    yield from page.table(rows, heads, spare=(8, 6, 1, 3, 5), status=None)
    advice = [line for step in document.steps if (line := advice_for(step))]
    if advice:
        yield ""
    for line in advice:
        yield from page.wrap(line, "  ")


def _size(count: int | None) -> str:
    return "" if count is None else size(count)


def advice_for(step: StepResources) -> str:
    """What to change about the request of a step, and what that saves; empty where it is fine."""
    asked, should = step.requested.memory_bytes, step.suggested.memory_bytes
    if asked is None or should is None:
        return ""
    name = escape(step.step)
    if asked < step.p95_bytes:
        needs = f"{name} asks for {size(asked)} and needs {size(step.p95_bytes)}"
        return f"{needs}: ask for {size(should)}, or it may be ended"
    if asked <= should * FINE_SHARE:
        return ""
    spared = (asked - should) / GIBIBYTE
    hours = step.wall_seconds / 3600
    money = spared * hours * GIB_HOUR_DOLLARS
    price = f"about ${money:.2f}" if money >= CENT else "less than a cent"
    amount = f"{spared * hours:.2f}" if spared * hours >= CENT else "less than 0.01"
    return (
        f"{name} asks for {size(asked)} and needs {size(step.p95_bytes)}: ask for {size(should)}. That frees"
        f" {size(asked - should)} for {duration(step.wall_seconds)}: {amount} GiB-hours in a run like this,"
        f" {price} where a GiB-hour costs ${GIB_HOUR_DOLLARS}"
    )
