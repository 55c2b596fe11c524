"""What is wrong with the contexts on one shell: a canary, a changed value, a verdict other than the table's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resile.languages.references import ValueRefused
from resile.languages.shell.hints import HINTS
from tests.languages.shell.fuzz.contexts import PRODUCT, Context
from tests.languages.shell.fuzz.contexts_evaluated import EVALUATED
from tests.languages.shell.fuzz.contexts_flow import FLOW
from tests.languages.shell.fuzz.contexts_programs import PROGRAMS
from tests.languages.shell.fuzz.contexts_second import SECOND
from tests.languages.shell.fuzz.contexts_streams import STREAMS
from tests.languages.shell.fuzz.contexts_words import WORDS
from tests.languages.shell.fuzz.payloads import PAYLOADS
from tests.languages.shell.fuzz.run import Case, Outcome, cases, holes, outcomes, render

CONTEXTS: tuple[Context, ...] = (*PRODUCT, *WORDS, *EVALUATED, *FLOW, *SECOND, *PROGRAMS, *STREAMS)


def offences(shell: str, values: Sequence[str] = PAYLOADS) -> tuple[int, list[str]]:
    """The number of commands that ran, and all that is wrong: one line for each context and kind of mistake."""
    contexts = [context for context in CONTEXTS if shell in context.shells]
    found = {line: 1 for context in contexts for line in _misjudged(context, shell)}
    wanted = [*cases(contexts, shell, values), *_good_cases(contexts, shell, found)]
    for outcome in outcomes(wanted):
        case = outcome.case
        expected = _expected(case)
        if outcome.has_canary:
            _count(found, f"{case.context.text!r} runs a value", outcome)
        elif expected is not None and outcome.output != expected.encode("utf-8", "surrogateescape"):
            _count(found, f"{case.context.text!r} prints something else", outcome)
    return len(wanted), list(found)


def _count(found: dict[str, int], what: str, outcome: Outcome) -> None:
    """Add a mistake, with the first value that shows it."""
    if not any(line.startswith(what) for line in found):
        found[f"{what}, such as {outcome.case.value!r}: {outcome.case.command!r} printed {outcome.output!r}"] = 1


def _expected(case: Case) -> str | None:
    """What a command must print; None if it may print anything."""
    if case.is_good:
        return case.context.good[1]
    before, after = case.context.around
    return f"<{before}{case.value}{after}>" if case.context.kind == "plain" else None


def _good_cases(contexts: list[Context], shell: str, found: dict[str, int]) -> Iterator[Case]:
    """Judged contexts with the value that each of them takes."""
    for context in contexts:
        if context.kind == "judged":
            good = context.good[0]
            try:
                yield Case(shell, context, good, render(context.text, good, shell), is_good=True)
            except ValueRefused as problem:
                found[f"{context.text!r} refuses {good!r}: {problem}"] = 1


def _misjudged(context: Context, shell: str) -> Iterator[str]:
    """Verdicts on a context that are not those of the table."""
    found = holes(context.text, shell)
    refused = [hole.reason for hole in found if hole.place == "refused"]
    second = [HINTS[hole.second] for hole in found if hole.second]
    if bool(refused) != (context.kind == "refused"):
        yield f"{context.text!r} is {'' if refused else 'not '}refused: {refused}"
    if bool(second) != (context.kind == "second"):
        yield f"{context.text!r} is {'' if second else 'not '}warned of: {second}"
    if context.names and not any(context.names in text.replace("${…}", "${v}") for text in (*refused, *second)):
        yield f"{context.text!r}: no message names {context.names!r}: {refused} {second}"
    if context.safe:
        bad = [hole for hole in holes(context.safe, shell) if hole.place == "refused" or hole.second]
        if bad:
            yield f"{context.safe!r} is no safe form: {bad}"
