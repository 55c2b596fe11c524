"""The ladder of a step: all its rules in the order in which a failure meets them, and whether one matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resile.model.failure import FAILURE_KINDS, Failure, Kind
from resile.model.rules import Match
from resile.model.workflow import Rule, Step

if TYPE_CHECKING:
    import re

    from resile.model.patterns import Pattern

_LOST = Match(kinds=(Kind.LOST,))
_POISON = Rule(then="park", text="lost attempts park the step", match=_LOST)
# Every step's implicit first rules: a lost attempt is the machine's fault, so retry it, but not for ever.
_RETRY = Rule(then="retry", text="retry after a lost attempt", match=_LOST, limit=FAILURE_KINDS[Kind.LOST].retries)
_LOSS_RULES: dict[str, tuple[Rule, ...]] = {
    "retry": (_RETRY, _POISON),
    "park": (_POISON,),
}


def ladder_of(step: Step) -> tuple[Rule, ...]:
    """All rules of a step, in the order in which a failure meets them."""
    return _LOSS_RULES[step.on_loss] + step.rules


def matches(match: Match, failure: Failure) -> bool:
    """Do all matchers of a rule hold for this failure?"""
    return (
        (not match.kinds or failure.kind in match.kinds)
        and (not match.codes or _has_code(failure, match.codes))
        and not (match.codes_excluded and _has_code(failure, match.codes_excluded))
        and (not match.signals or failure.signal in match.signals)
        and (not match.pattern or _occurs(match.pattern, failure))
        and (not match.types or any(_is_type(name, failure.types) for name in match.types))
    )


def _has_code(failure: Failure, codes: tuple[int, ...]) -> bool:
    """Is the exit code among these? After a signal N, -N and -1 name it too, beside 128+N."""
    return failure.exit_code in codes or (failure.signal is not None and (-failure.signal in codes or -1 in codes))


def _is_type(name: str, types: tuple[str, ...]) -> bool:
    """Is this the name, with or without module, of the exception's class or one of its bases?"""
    return any(found == name or found.endswith(f".{name}") for found in types)


def _occurs(pattern: str, failure: Failure) -> bool:
    """Does a pattern occur in the message or in one of the output tails?"""
    search = _compile(pattern).search
    return any(search(text) for text in (failure.stderr, failure.stdout, failure.message))


def _compile(pattern: str) -> Pattern | re.Pattern[str]:
    """Compile a pattern; one that only an older version accepted is matched as that version did."""
    from resile.model.patterns import PatternRefused, compile_pattern

    try:
        return compile_pattern(pattern)
    except PatternRefused:
        import re

        return re.compile(pattern, re.MULTILINE)
