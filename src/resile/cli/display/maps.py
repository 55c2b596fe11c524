"""Fan-outs in words: the progress of a running one, its reports, and its outcome.

    process: 120 of 300 items done, 2 failed, 45/s, 4 s left
    process: 294 of 300 items succeeded, 6 failed, 0 skipped, 0 held; 6 dead letters

The first line is for the live view and for plain lines, made from the engine's own state; the second is made from the
document of a run, so that `run`, `status` and `metrics` print the same.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from resile.cli.display.output import Page, delay, duration, escape, plural

if TYPE_CHECKING:
    from resile.commands.documents.runs import MapMetrics
    from resile.core.fanout.progress import Fan, Redrive
    from resile.core.state import State

PACE_SECONDS = 30.0
PACE_SAMPLES_MAX = 60
REPORTED_LINES_MAX = 50
# The key of a redrive among fan-outs, whose keys are their jobs.
REDRIVE = 0


class Pace:
    """The speed of one fan-out, from the items finished in the last half minute."""

    def __init__(self, now: float, done: int) -> None:
        self._samples: deque[tuple[float, int]] = deque([(now, done)], maxlen=PACE_SAMPLES_MAX)

    def rate(self, now: float, done: int) -> float:
        """Items per second; 0 if that is not known yet."""
        samples = self._samples
        if now - samples[-1][0] >= PACE_SECONDS / PACE_SAMPLES_MAX:
            samples.append((now, done))
        while len(samples) > 2 and now - samples[1][0] >= PACE_SECONDS:
            samples.popleft()
        before, count = samples[0]
        return (done - count) / (now - before) if now > before and done > count else 0.0


class Progress:
    """Describes the progress of the fan-outs of a run."""

    def __init__(self) -> None:
        self._paces: dict[int, Pace] = {}

    def begin(self, job: int, now: float) -> None:
        """Start measuring: the items of a fan-out begin now."""
        self._paces[job] = Pace(now, 0)

    def running(self, state: State, now: float, items_min: int = 0) -> list[str]:
        """A line for each running fan-out with at least this many items; the letters of a redrive count as one."""
        found: dict[int, tuple[str, Fan]] = {}
        redrive = state.redrive
        if redrive is not None:
            fans = [fan for number in list(redrive.open) if (fan := state.fans.get(number)) is not None]
            found[REDRIVE] = redrive.map, _sum_fans(redrive, fans)
        for number, fan in list(state.fans.items()):
            job = state.jobs.get(number)
            if job is None or not job.hosting or (redrive is not None and number in redrive.open):
                continue
            scope = state.scopes.get(job.scope)
            around = f"{scope.name}/" if scope is not None and scope.owner else ""
            found[number] = f"{around}{state.step_of(job).name}", fan
        for gone in self._paces.keys() - found.keys():
            del self._paces[gone]
        return [self.line(number, name, fan, now) for number, (name, fan) in found.items() if fan.goal >= items_min]

    def line(self, job: int, name: str, fan: Fan, now: float) -> str:
        """Items done, failed and held, the speed, the remaining time, and the circuit unless it is closed."""
        pace = self._paces.get(job)
        if pace is None:
            pace = self._paces[job] = Pace(now, fan.done)
        rate = pace.rate(now, fan.done)
        left = max(0, fan.goal - fan.done - fan.held)
        held = fan.held_now
        parts = [f"{fan.done} of {plural(fan.goal, 'item')} done"]
        parts += [f"{fan.bad} failed"] if fan.bad else []
        parts += [f"{held} held"] if held else []
        parts += [f"{len(fan.waiting)} to be tried again"] if fan.waiting else []
        parts += [_speed(rate)] if rate else []
        parts += [f"{duration(left / rate)} left"] if rate and left and fan.circuit == "closed" else []
        parts += [_circuit(fan, now)] if fan.circuit != "closed" else []
        return f"{escape(name)}: {', '.join(parts)}"


def _sum_fans(redrive: Redrive, fans: list[Fan]) -> Fan:
    """All letters of a redrive, as the counts of one fan-out."""
    from resile.core.fanout.progress import Fan

    total = Fan(redrive.total, redrive.label, goal=redrive.total, done=redrive.done, bad=redrive.bad)
    for fan in fans:
        total.done += fan.done
        total.bad += fan.bad
        total.active |= fan.active
        total.gated += fan.gated
        total.waiting |= fan.waiting
        if fan.circuit != "closed":
            total.circuit, total.due = fan.circuit, fan.due
    return total


def _speed(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"


def _circuit(fan: Fan, now: float) -> str:
    """The state of a circuit, and how long it stays open."""
    wait = fan.due - now
    return (
        f"circuit open for {duration(wait)}" if fan.circuit == "open" and wait > 0 else f"circuit {words(fan.circuit)}"
    )


def words(circuit: str) -> str:
    """The circuit's state as people write it: `half-open`."""
    return circuit.replace("_", "-")


def event_words(kind: str, name: str, data: dict[str, Any]) -> str:
    """One event of a fan-out in words; empty for those that need none."""
    match kind:
        case "items_listed":
            kept = f", {data['kept']} done before" if data.get("kept") else ""
            remarks = "".join(f"; {escape(remark)}" for remark in data.get("remarks", ()))
            return f"{name}: {plural(data['total'], 'item')}{kept}{remarks}"
        case "item_dead_lettered":
            what = f": {escape(data['message'])}" if data.get("message") else ""
            return f"{escape(data['item'])} is kept as a dead letter, {data['reason'].replace('_', ' ')}{what}"
        case "retry_scheduled":
            when = f" in {delay(data['delay_seconds'])}" if data["delay_seconds"] else ""
            return f"{escape(data['item'])} runs again{when}: {escape(data['message'])}"
        case "circuit_opened":
            return f"{name}: circuit opened after {plural(data['failures'], 'failure')} in a row, items are held"
        case "circuit_half_opened":
            return f"{name}: circuit half-open, some items test it"
        case "circuit_closed":
            return f"{name}: circuit closed, {plural(data['successes'], 'test')} passed"
        case "threshold_reached":
            return f"{name}: no more items start: {escape(data['message'])}"
        case _:
            return ""


def report(name: str, data: dict[str, Any]) -> str:
    """A fan-out's report of failed items; the event and the dead letters have all of a long report."""
    items = data["items"]
    count = len(items) + data.get("more", 0)
    lines = [f"{escape(name)}: {plural(count, 'item')} failed"]
    lines += [f"  {escape(item['item'])}: {escape(item['message'])}" for item in items[:REPORTED_LINES_MAX]]
    hidden = count - min(len(items), REPORTED_LINES_MAX)
    if hidden:
        lines.append(f"  and {hidden} more")
    return "\n".join(lines)


def outcome(name: str, numbers: MapMetrics) -> str:
    """The outcome of a fan-out."""
    done = f"{numbers.successful} of {plural(numbers.total_items, 'item')} succeeded"
    rest = f"{numbers.failed} failed, {numbers.skipped} skipped, {numbers.held} held"
    circuit = "" if numbers.circuit == "closed" else f"; circuit {words(numbers.circuit)}"
    return f"{escape(name)}: {done}, {rest}; {plural(numbers.dead_letters, 'dead letter')}{circuit}"


def patterns(numbers: MapMetrics, page: Page) -> list[str]:
    """The failures that many items had in common, each with a suggestion."""
    lines: list[str] = []
    for pattern in sorted(numbers.failure_patterns, key=lambda found: -found.frequency):
        lines.append(page.fit(f"  {pattern.frequency} x {escape(pattern.message)}"))
        lines.append(page.fit(f"    {pattern.pattern_type}: {escape(pattern.suggested_action)}"))
    return lines
