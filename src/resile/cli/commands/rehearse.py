"""`rehearse`: how one step handles a supposed failure; progress on stderr, the result on stdout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from resile.cli.display import output
from resile.cli.display.lines import Lines
from resile.cli.display.steps import route_lines
from resile.cli.display.watch import Display, JsonDisplay, ProgressWatcher, Tally
from resile.cli.parse import Call, refusal
from resile.commands import rehearse as command
from resile.commands.documents.answers import Rehearsal, RepairAttempt
from resile.model.nested import step_name

if TYPE_CHECKING:
    from resile.core.state import State

_MEANINGS = {
    "recovered": "its repair stands for success, and what needs the step runs",
    "fallback": "the output of its repair is the step's, and what needs the step runs",
    "tolerate": "the step stays failed, but what needs it runs and the run does not fail for it",
    "park": "the failure would wait for judgement (exit code 4)",
    "fail": "the failure stands, and what needs the step is canceled",
    "interrupted": "nothing was decided",
}


class _Course(Lines):
    """Plain lines without those about the run, because a rehearsal has none."""

    def __init__(self, headline: str, *, every_event: bool) -> None:
        super().__init__(every_event=every_event)
        self._headline = headline

    def begin(self, _run: int, state: State, tally: Tally) -> None:
        """Print the supposed failure."""
        output.say(self._headline)
        self.look_at(state, tally)


class _Silence(JsonDisplay):
    """Prints nothing: for programs, the document has everything."""

    def begin(self, _run: int, _state: State, _tally: Tally) -> None:
        """Print nothing: a rehearsal has no run."""


def rehearse(call: Call) -> int:
    """Rehearse a step's rules."""
    path, step = call.word("FILE"), call.word("STEP")
    given = call.text("fail")
    if given is None:
        raise refusal("`resile rehearse` needs --fail", f"resile rehearse {path} {step} --fail exit:1")
    failure = command.parse_failure(given, call.word("message"))
    headline = f"{output.escape(step)} of {output.escape(path)}, supposed to fail: {output.escape(failure.message)}"
    display: Display = _Silence() if call.json else _Course(headline, every_event=call.flag("debug"))
    with output.stdout_reserved_for_json(call.json), ProgressWatcher(display) as watch:
        document = command.rehearse(path, step, failure, call.texts("input"), watch)
    output.answer(call, document, _lines)
    return document.exit_code


def _lines(document: Rehearsal, page: output.Page) -> Iterator[str]:
    """The routes, the output of repairs, and the verdict."""
    if document.routes:
        yield from (page.paint("bold", "What would be done"), *route_lines(document.routes, page), "")
    if document.repairs:
        yield page.paint("bold", "Repairs")
        for repair in document.repairs:
            yield from _repair(repair, page)
        yield ""
    verdict = document.verdict
    yield page.paint("bold", verdict) + output.fit(f": {_meaning(document)}", page.columns - len(verdict))


def _repair(repair: RepairAttempt, page: output.Page) -> Iterator[str]:
    """One attempt that the rehearsal really ran."""
    name = output.escape(step_name(repair.scope, repair.step))
    number = f", attempt {repair.attempt}" if repair.attempt > 1 else ""
    how = output.escape(repair.message) or "completed"
    yield page.fit(f"  {name}{number}: {how} in {output.duration(repair.seconds)}")
    yield from page.tail(repair.stdout, "stdout", indent="  ")
    yield from page.tail(repair.stderr, "stderr", indent="  ")


def _meaning(document: Rehearsal) -> str:
    """The consequence of a verdict for the step."""
    match document.verdict:
        case "retry":
            wait = document.delay_seconds
            return f"the step would be run again {f'in {output.delay(wait)}' if wait else 'at once'}"
        case "goto":
            targets = [route.target for route in document.routes if route.action == "goto"]
            return f"the run would go on from {output.escape(targets[-1] or '')}"
        case known:
            return _MEANINGS[known]
