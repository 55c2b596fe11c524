"""Why, in words: why a rule did not match, what a failure led to, and why a run stands as it does."""

from __future__ import annotations

from collections.abc import Sequence

from resile.core.recovery.matching import matches
from resile.explain.report import RuleTold, Told
from resile.model.failure import Failure
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


def mismatch(match: Match, failure: Failure) -> str:
    """Why a rule's match does not hold for a failure; nothing where it does."""
    if matches(match, failure):
        return ""
    if match.kinds and failure.kind not in match.kinds:
        return f"its kind is {failure.kind}, not {_either(match.kinds)}"
    if match.codes and failure.exit_code not in match.codes:
        return f"{_code(failure)}, not {_either(match.codes)}"
    if failure.exit_code in match.codes_excluded:
        return f"{_code(failure)}, which is left to other rules"
    if match.signals and failure.signal not in match.signals:
        got = "no signal" if failure.signal is None else f"signal {failure.signal}"
        return f"{got}, not {_either(match.signals)}"
    if match.types and not matches(Match(types=match.types), failure):
        got = failure.types[0] if failure.types else "no exception"
        return f"{got}, not {_either(match.types)}"
    return "nothing that it printed matches"


def _code(failure: Failure) -> str:
    """The exit code of a failure."""
    return "no exit code" if failure.exit_code is None else f"exit code {failure.exit_code}"


def _either(choices: Sequence[object]) -> str:
    """`1`, `1 or 2`, `1, 2 or 3`."""
    *most, last = (str(choice) for choice in choices)
    return f"{', '.join(most)} or {last}" if most else last


def consequence(told: Told, message: str = "", outcome: str = "", stopper: str = "") -> str:
    """What a failure led to; `message` and `outcome` are those of a step that stays failed, `stopper` ended it else."""
    rule = told.rules[-1] if told.rules and told.rules[-1].answer == "answers" else None
    match told.result:
        case "retry" if rule is not None:
            wait = f" after {seconds(rule.wait_seconds)}" if rule.wait_seconds else ""
            return f"attempt {rule.next_attempt}{wait}{_granted(rule)}{_loops(rule)}"
        case "goto" if rule is not None:
            return f"back to {rule.target}{_loops(rule)}"
        case "failed" if outcome in _OUTCOMES:
            return _OUTCOMES[outcome]
        case "failed" if message and message != told.message:
            return f"{message}, {_STANDS}"
        case "failed":
            return "the failure stands"
        case "no budget":
            return f"{message}, {_STANDS}"
        case "stopped":
            return f"no rule is asked: {stopper}"
        case result:
            return _PLAIN.get(result, "")


def seconds(value: float) -> str:
    """A wait as a rule says it."""
    return f"{round(value, 3):g} s"


def _granted(rule: RuleTold) -> str:
    """What more the next attempt gets."""
    more = []
    if rule.memory_bytes:
        more.append(f"{rule.memory_bytes / 1_000_000:g} MB of memory")
    if rule.runtime_seconds:
        more.append(f"{seconds(rule.runtime_seconds)} of time")
    return f" with {' and '.join(more)}" if more else ""


def _loops(rule: RuleTold) -> str:
    """How much of the loop budget is spent."""
    return f", loop {rule.loops} of {rule.loops_max}" if rule.loops_max else ""


def some(names: Sequence[str], count: int = 0) -> str:
    """`a`, `a and b`, `a, b, c and 4 more`."""
    count = count or len(names)
    shown = list(names[:NAMES_SHOWN_MAX])
    if count > len(shown):
        return f"{', '.join(shown)} and {count - len(shown)} more"
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


def question(step: Step, asked: Condition) -> str:
    """A condition of a step as its file says it, with those besides."""
    besides = [question(step, other) for other in asked.besides]
    if asked.language == "none":
        return f"none of {', '.join(besides)}"
    own = step.cases[int(asked.source)].when if asked.language == "case" else asked.source
    return " and ".join((own, *besides))


def source(text: str) -> str:
    """An expression on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= SOURCE_CHARACTERS_MAX else f"{line[:SOURCE_CHARACTERS_MAX]}…"
