"""Progress as plain lines on stderr, for pipes and log files: one line for each event that matters.

Runs with many steps show only failures, and their progress every few seconds. So do maps with many items: not the steps
of each item, but the number of finished items, the first dead letters, the circuit, and the reports that the map's
policy asks for. With `--debug` every event is a line, whatever the size of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from resile.cli.display.output import clock, delay, duration, encode, escape, plural, say, short_rule
from resile.cli.display.watch import Display, Tally
from resile.core.actions import Note
from resile.model.nested import in_item, step_name
from resile.model.status import status_clause
from resile.model.workflow import Noop

if TYPE_CHECKING:
    from resile.cli.display.maps import Progress
    from resile.core.state import Job, State

EVERY_STEP_MAX = 200
EVERY_ITEM_MAX = 50
LETTERS_SHOWN_MAX = 10
# Of a run with many steps so many lines tell of failures, retries and repairs.
TROUBLE_SHOWN_MAX = 100
PROGRESS_SECONDS = 5.0

# Runs with many steps do not show these events.
_ROUTINE = ("step_started", "step_completed", "step_cached", "step_skipped", "step_canceled", "attempt_adopted")
_FAN_OUT = (
    *("items_listed", "redrive_started", "item_dead_lettered", "threshold_reached", "errors_reported", "map_progress"),
    *("circuit_opened", "circuit_half_opened", "circuit_closed"),
)


class Lines(Display):
    """Shows progress as plain lines; `say` prints them."""

    def __init__(self, *, every_event: bool, say: Callable[[str], None] = say) -> None:
        self._say = say
        self._every_event = every_event
        self._crowds: tuple[str, ...] = ()
        self._letters: dict[int, int] = {}
        self._purposes: dict[int, str] = {}
        self._next_progress: dict[str, float] = {}
        self._trouble = 0

    @cached_property
    def _maps(self) -> Progress:
        """The progress of maps; most workflows have none."""
        from resile.cli.display.maps import Progress

        return Progress()

    def begin(self, run: int, state: State, tally: Tally) -> None:
        """Print the run's id, its workflow and its number of steps."""
        self.look_at(state, tally)
        self._say(f"run {run}: {escape(state.workflow.name)}, {plural(tally.total, 'step')}")

    def look_at(self, state: State, tally: Tally) -> None:
        """Decide how much to show: small runs in full, without an implicit `end`."""
        self._tally, self._state = tally, state
        self._small = tally.total <= EVERY_STEP_MAX
        self._silent = state.workflow.end.name if isinstance(state.workflow.end.action, Noop) else ""
        self._note_crowds()

    def _note_crowds(self) -> None:
        """Note the running maps that have too many items to show them one by one."""
        state = self._state
        redrive = state.redrive if state.redrive is not None and state.redrive.total > EVERY_ITEM_MAX else None
        of_many = redrive.open if redrive is not None else []
        hosts = [
            state.jobs[number] for number, fan in state.fans.items() if fan.goal > EVERY_ITEM_MAX or number in of_many
        ]
        self._crowds = tuple(f"{_place(state, job)}[" for job in hosts if job.hosting)

    def show(self, notes: list[Note]) -> None:
        """Write the lines of one batch in one call."""
        if self._every_event:
            lines = [
                event_line(note.seq, note.at, note.type, step_name(note.scope, note.step), note.attempt, note.data)
                for note in notes
            ]
        else:
            lines = [line for note in notes if (line := self._line(note))]
            if self._crowds and notes:
                lines += self._progress("maps", notes[-1].at, self._map_lines)
        if not self._small and notes:
            lines += self._progress("steps", notes[-1].at, self._total_lines)
        if lines:
            self._say("\n".join(lines))

    def _line(self, note: Note) -> str:
        """The line of one event; empty for most."""
        kind = note.type
        if self._crowds and note.scope.startswith(self._crowds):
            return ""
        if kind in _FAN_OUT or (kind == "retry_scheduled" and "item" in note.data):
            text = self._fan_out(note, kind)
        elif kind in _ROUTINE and (not self._small or note.step == self._silent):
            return ""
        else:
            text = self._within_limit(self._text(note, kind), note.scope)
        return f"{clock(note.at)} {text}" if text else ""

    def _within_limit(self, text: str, scope: str) -> str:
        """The text; in a run with many steps, only the first of them."""
        if not text or self._small or not scope:
            return text
        self._trouble += 1
        if self._trouble <= TROUBLE_SHOWN_MAX:
            return text
        return "more failures are only counted" if self._trouble == TROUBLE_SHOWN_MAX + 1 else ""

    def _text(self, note: Note, kind: str) -> str:
        """One event in words."""
        step, data = escape(step_name(note.scope, note.step)), note.data
        match kind:
            case "step_started":
                return f"{step} started"
            case "step_completed":
                return f"{step} completed{self._time(note)}"
            case "step_cached":
                return f"{step} has not changed since run {data['run']}"
            case "step_recovered":
                return f"{step} recovered"
            case "step_failed" if data.get("tolerated"):
                return f"{step} failed, tolerated"
            case "step_failed":
                return f"{step} failed after {plural(note.attempt, 'attempt')}"
            case "step_skipped":
                return f"{step} skipped{_because(note)}"
            case "step_canceled":
                return f"{step} canceled{_because(note)}"
            case "step_parked":
                return f"{step} parked: {escape(data.get('message', ''))}"
            case "attempt_succeeded" if data.get("output_lost"):
                return f"{step} attempt {note.attempt}: its output is lost"
            case "attempt_failed" | "attempt_lost":
                why = data.get("reason")
                message = escape(data.get("message", f"interrupted: {why}" if why else "interrupted"))
                return f"{step} attempt {note.attempt} {kind.removeprefix('attempt_')}: {message}"
            case "step_judged":
                reason = escape(data["reason"])
                return f"{step} judged {data['verdict']} by {data['by']}" + (f": {reason}" if reason else "")
            case _:
                return self._answer(note, kind, step)

    def _fan_out(self, note: Note, kind: str) -> str:
        """One event of a map in words; for a large map only the totals of its items."""
        from resile.cli.display.maps import event_words, report

        step, data = escape(step_name(note.scope, note.step)), note.data
        fan = self._state.fans.get(note.job)
        is_large = fan is not None and fan.goal > EVERY_ITEM_MAX
        match kind:
            case "items_listed":
                self._note_crowds()
                self._maps.begin(note.job, note.at)
            case "redrive_started":
                self._note_crowds()
            case "map_progress":
                if fan is None or not is_large or data["done"] != data["of"]:
                    return ""
                return self._maps.line(note.job, step, fan, note.at)
            case "errors_reported":
                return report(step, data)
            case "retry_scheduled" if is_large:
                return ""
            case "item_dead_lettered":
                count = self._letters[note.job] = self._letters.get(note.job, 0) + 1
                if count > LETTERS_SHOWN_MAX:
                    return f"{step}: more dead letters are only counted" if count == LETTERS_SHOWN_MAX + 1 else ""
        return event_words(kind, step, data)

    def _answer(self, note: Note, kind: str, step: str) -> str:
        """One event of the rules, or of the run as a whole, in words."""
        data = note.data
        match kind:
            case "retry_scheduled":
                when = f" in {delay(data['delay_seconds'])}" if data["delay_seconds"] else ""
                return f"{step} attempt {data['next_attempt']} follows{when}: {escape(short_rule(data['rule']))}"
            case "repair_started" if data.get("rule"):
                return f"{step} repair started: {escape(short_rule(data['rule']))}"
            case "repair_started":
                self._purposes[note.job] = data["for"]
                return f"{step} {data['for']} started"
            case "repair_finished":
                purpose = self._purposes.pop(note.job, "repair")
                return f"{step} {purpose} done" if data["ok"] else f"{step} {purpose} failed: {escape(data['problem'])}"
            case "route_taken":
                return f"{step} {data['trigger']} {data['action']} {escape(data['target'] or '')}".rstrip()
            case "expression_rejected":
                return f"{step} expression rejected: {escape(data['problem'])}"
            case "loop_budget_exceeded":
                return escape(data["message"])
            case "cancel_requested":
                reason = escape(data.get("reason", ""))
                return f"cancel requested by {data.get('by')}" + (f": {reason}" if reason else "")
            case "run_resumed":
                self._note_crowds()
                return self._resume_line(data)
            case "attempt_adopted":
                return f"{step} attempt adopted"
            case "nodes_scheduled":
                count = plural(len(data["blocks"]), "allocation")
                return f"{data['trigger']}: {count} of {escape(data['scheduler'])} scheduled"
            case "allocation_refused":
                return f"allocation {data['block']} refused: {escape(data['reason'])}"
            case "allocation_ended":
                return f"allocation {data['block']} ended: {escape(data['reason'])}"
            case _:
                return ""

    def _time(self, note: Note) -> str:
        """The duration of a step, even if another engine started it; empty for items: the state drops them too soon."""
        job = self._state.jobs.get(note.job)
        if job is None or in_item(note.scope):
            return ""
        began, _ = self._state.times(job)
        return "" if began is None else f" in {duration(max(0.0, note.at - began))}"

    def _resume_line(self, data: dict[str, Any]) -> str:
        """The line of a resume or a new epoch: how much of the run is already done."""
        before, total = self._tally.done_before, plural(self._tally.total, "step")
        if "redrive" in data:
            return f"{plural(data['redrive'], 'dead letter')} tried again"
        return (
            f"epoch {data['epoch']}: {before} of {total} kept"
            if "epoch" in data
            else f"run resumed: {before} of {total} done"
        )

    def _progress(self, subject: str, now: float, lines_at: Callable[[float], list[str]]) -> list[str]:
        """The progress of one subject, every few seconds; the first time it is only measured."""
        due = self._next_progress.get(subject, 0.0)
        if now < due:
            return []
        self._next_progress[subject] = now + PROGRESS_SECONDS
        lines = [f"{clock(now)} {line}" for line in lines_at(now)]
        return lines if due else []

    def _map_lines(self, now: float) -> list[str]:
        return self._maps.running(self._state, now, EVERY_ITEM_MAX + 1)

    def _total_lines(self, _now: float) -> list[str]:
        return [self._tally.words]


def _place(state: State, job: Job) -> str:
    """The prefix of the scope names of a map's items."""
    from resile.core.fanout.naming import fan_name

    return fan_name(state, job)


def _because(note: Note) -> str:
    """The step that caused this one's end, or the reason; empty if there is neither."""
    cause = note.data.get("cause")
    if cause:
        return f" because {escape(cause['step'])} {status_clause(cause['status'])}"
    reason = note.data.get("reason")
    return f": {reason}" if reason else ""


def event_line(seq: int, at: float, kind: str, step: str, attempt: int, data: object, *, in_words: bool = False) -> str:
    """One canonical event as a line, for `events` and `--debug`; types are spelled one way, with underscores.

    Its data is JSON, or with `in_words` `name=value` with spaces between, where a line can be broken.
    """
    who = f" {escape(step)}" if step else ""
    number = f" attempt {attempt}" if attempt else ""
    evidence = (_words_of(data) if in_words else encode(data).decode()) if data else ""
    return f"{seq:>6} {clock(at)} {kind.replace('.', '_')}{who}{number} {evidence}".rstrip()


def _words_of(data: object) -> str:
    """The data of an event as `name=value name=value`; a text of one word has no quotes."""
    if not isinstance(data, dict):
        return encode(data).decode()
    return " ".join(f"{name}={value if _is_word(value) else encode(value).decode()}" for name, value in data.items())


def _is_word(value: object) -> bool:
    """Is this a text that reads the same without quotes?"""
    return isinstance(value, str) and value.isprintable() and bool(value) and not set(value) & set(" =\"'[]{},")
