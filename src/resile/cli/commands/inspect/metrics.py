"""`metrics`: statistics of the rules and the maps of a run."""

from __future__ import annotations

from collections.abc import Iterator

from resile.cli.display.maps import outcome, patterns
from resile.cli.display.output import Page, answer, duration, escape, plural, short_rule
from resile.cli.parse import Call
from resile.commands.documents.answers import RuleMetrics, RunMetrics
from resile.commands.documents.runs import MapMetrics
from resile.model.nested import step_name


def metrics(call: Call) -> int:
    """Show the rules of a run, its maps, and its attempts by outcome."""
    return answer(call, call.client.metrics(call.run), _lines)


def _lines(document: RunMetrics, page: Page) -> Iterator[str]:
    """The attempts, the failures by kind, the maps, and the table of rules."""
    attempts = document.attempts
    counts = {"succeeded": attempts.succeeded, "failed": attempts.failed, "lost": attempts.lost}
    parts = [plural(attempts.started, "attempt"), *(f"{number} {word}" for word, number in counts.items() if number)]
    yield from page.wrap(f"run {document.run} {escape(document.workflow)}: {', '.join(parts)}", "  ")
    if document.failures:
        kinds = [f"{count} {kind}" for kind, count in sorted(document.failures.items())]
        # A map or a child workflow fails because a step inside failed; only that failure has a kind.
        inside = document.attempts.failed + document.attempts.lost - sum(document.failures.values())
        kinds += [f"{inside} because of steps inside"] if inside > 0 else []
        yield from page.wrap(f"failures: {', '.join(kinds)}", "  ")
    for name, numbers in document.maps.items():
        yield from ("", *page.wrap(outcome(name, numbers), "  "))
        yield from (line for kinds in _kinds(numbers) for line in page.wrap(kinds, "    "))
        yield from patterns(numbers, page)
    yield from ("", *(_rule_table(document.rules, page) if document.rules else ["no rule has fired"]))


def _kinds(numbers: MapMetrics) -> list[str]:
    """The share of failed items, and the kinds of their failures."""
    kinds = sorted(numbers.error_types.items(), key=lambda found: (-found[1], found[0]))
    if not kinds:
        return []
    text = ", ".join(f"{count} {kind.replace('exit:', 'exit code ')}" for kind, count in kinds)
    return [f"  failure rate {numbers.failure_rate:.1%}: {text}"]


def _rule_table(rules: list[RuleMetrics], page: Page) -> list[str]:
    """The rules that fired, as a table."""
    rows = [
        [
            escape(step_name(rule.scope, rule.step)),
            escape(short_rule(rule.rule)),
            str(rule.fired),
            str(rule.repairs) if rule.repairs else "",
            str(rule.repairs_failed) if rule.repairs_failed else "",
            duration(rule.repair_seconds) if rule.repairs else "",
            str(rule.recovered),
        ]
        for rule in rules
    ]
    heads = ["STEP", "RULE", "FIRED", "REPAIRS", "FAILED", "TIME", "RECOVERED"]
    return page.table(rows, heads, spare=(5, 4, 3, 6), status=None)
