"""The wording of explanations: why a rule did not match, and the consequence of a failure."""

from __future__ import annotations

from collections.abc import Sequence

from resile.core.recovery.matching import matches
from resile.explain.report import AttemptReport, Result, RuleReport
from resile.model.failure import Failure
from resile.model.limits import size
from resile.model.rules import Match
from resile.model.workflow import Condition, Step

SOURCE_CHARACTERS_MAX = 200
NAMES_SHOWN_MAX = 3

_STANDS = "so the failure stands"
_OUTCOMES = {
    "NoHandler": f"the step has no rule, {_STANDS}",
    "NoMatchingRule": f"no rule answers, {_STANDS}",
    "MaxRetriesExceeded": f"no rule is left, {_STANDS}",
}
_PLAIN = {
    "recovered": "the repair stands for success",
    "fallback": "the output of the repair is the step's",
    "tolerated": "the failure is tolerated: what needs the step runs",
    "parked": "parked: it waits for judgement",
    "dropped": "its result is dropped: a jump back runs it again",
    "again": "it costs nothing, and the step runs again",
}


def mismatch_of(match: Match, failure: Failure) -> str:
    """Why a rule's match does not hold for a failure; empty where it does."""
    if matches(match, failure):
        return ""
    if match.kinds and failure.kind not in match.kinds:
        return f"its kind is {failure.kind}, not {_either(match.kinds)}"
    if match.codes and failure.exit_code not in match.codes:
        return f"{_exit_code_of(failure)}, not {_either(match.codes)}"
    if failure.exit_code in match.codes_excluded:
        return f"{_exit_code_of(failure)}, which is left to other rules"
    if match.signals and failure.signal not in match.signals:
        got = "no signal" if failure.signal is None else f"signal {failure.signal}"
        return f"{got}, not {_either(match.signals)}"
    if match.types and not matches(Match(types=match.types), failure):
        got = failure.types[0] if failure.types else "no exception"
        return f"{got}, not {_either(match.types)}"
    return "nothing that it printed matches"


def _exit_code_of(failure: Failure) -> str:
    return "no exit code" if failure.exit_code is None else f"exit code {failure.exit_code}"


def _either(choices: Sequence[object]) -> str:
    *most, last = (str(choice) for choice in choices)
    return f"{', '.join(most)} or {last}" if most else last


def set_result(entry: AttemptReport, result: Result, message: str = "", outcome: str = "", stopper: str = "") -> None:
    """Set the consequence of a failure, as a word and as a sentence.

    `message` and `outcome` belong to a final failure, `stopper` to a stopped step.
    """
    entry.result = result
    entry.then = _consequence_of(entry, message, outcome, stopper)


def _consequence_of(entry: AttemptReport, message: str, outcome: str, stopper: str) -> str:
    """The consequence of a failure in words."""
    rule = entry.rules[-1] if entry.rules and entry.rules[-1].decision == "applied" else None
    match entry.result:
        case "retry" if rule is not None:
            wait = f" after {format_seconds(rule.wait_seconds)}" if rule.wait_seconds else ""
            return f"attempt {rule.next_attempt}{wait}{_grants_of(rule)}{_loops_of(rule)}"
        case "goto" if rule is not None:
            return f"back to {rule.target}{_loops_of(rule)}"
        case "failed" if outcome in _OUTCOMES:
            return _OUTCOMES[outcome]
        case "failed" if message and message != entry.message:
            return f"{message}, {_STANDS}"
        case "failed":
            return "the failure stands"
        case "no budget":
            return f"{message}, {_STANDS}"
        case "stopped":
            return f"no rule is asked: {stopper}"
        case result:
            return _PLAIN.get(result, "")


def format_seconds(value: float) -> str:
    """A duration as a rule writes it."""
    return f"{round(value, 3):g} s"


def _grants_of(rule: RuleReport) -> str:
    """The extra memory and time of the next attempt."""
    more = []
    if rule.memory_bytes:
        more.append(f"{size(rule.memory_bytes)} of memory")
    if rule.runtime_seconds:
        more.append(f"{format_seconds(rule.runtime_seconds)} of time")
    return f" with {' and '.join(more)}" if more else ""


def _loops_of(rule: RuleReport) -> str:
    return f", loop {rule.loops} of {rule.loops_max}" if rule.loops_max else ""


def list_names(names: Sequence[str], count: int = 0) -> str:
    """`a`, `a and b`, `a, b, c and 4 more`."""
    count = count or len(names)
    shown = list(names[:NAMES_SHOWN_MAX])
    if count > len(shown):
        return f"{', '.join(shown)} and {count - len(shown)} more"
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


def condition_text(step: Step, asked: Condition) -> str:
    """A condition of a step as written in its file, with the conditions that must hold besides."""
    besides = [condition_text(step, other) for other in asked.besides]
    if asked.language == "none":
        return f"none of {', '.join(besides)}"
    own = step.cases[int(asked.source)].when if asked.language == "case" else asked.source
    return " and ".join((own, *besides))


def shorten(text: str) -> str:
    """An expression on one line, cut at SOURCE_CHARACTERS_MAX."""
    line = " ".join(text.split())
    return line if len(line) <= SOURCE_CHARACTERS_MAX else f"{line[:SOURCE_CHARACTERS_MAX]}…"
