"""`metrics`: statistics of the rules and the maps of a run."""

from __future__ import annotations

import sys

from resile.cli.display.maps import outcome, patterns
from resile.cli.display.output import (
    Paint,
    columns,
    duration,
    plural,
    print_document,
    scoped_name,
    short_rule,
    table,
    write_text,
)
from resile.cli.display.output import (
    escape_control_characters as escape,
)
from resile.cli.parse import Call
from resile.commands.documents.answers import RuleMetrics
from resile.commands.documents.runs import MapMetrics


def metrics(call: Call) -> int:
    """Show the rules of a run, its maps, and its attempts by outcome."""
    document = call.client.metrics(call.run)
    if call.json:
        print_document(document)
        return 0
    attempts, kinds = document.attempts, document.failures
    counted = {"succeeded": attempts.succeeded, "failed": attempts.failed, "lost": attempts.lost}
    parts = [f"{number} {word}" for word, number in counted.items() if number]
    lines = [
        f"run {call.run} {escape(document.workflow)}: {plural(attempts.started, 'attempt')}"
        + (f", {', '.join(parts)}" if parts else "")
    ]
    if kinds:
        lines.append("failures: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    for name, numbers in document.maps.items():
        lines += ["", outcome(name, numbers), *_kinds(numbers), *patterns(numbers, columns(sys.stdout))]
    rules = document.rules
    paint = Paint(call.color, sys.stdout)
    lines += ["", *(_rules(rules, paint) if rules else ["no rule has fired"])]
    write_text("\n".join(lines) + "\n")
    return 0


def _kinds(numbers: MapMetrics) -> list[str]:
    """The share of failed items, and the kinds of their failures."""
    kinds = sorted(numbers.error_types.items(), key=lambda found: (-found[1], found[0]))
    if not kinds:
        return []
    text = ", ".join(f"{count} {kind.replace('exit:', 'exit code ')}" for kind, count in kinds)
    return [f"  failure rate {numbers.failure_rate:.1%}: {text}"]


def _rules(rules: list[RuleMetrics], paint: Paint) -> list[str]:
    """The rules that fired, as a table."""
    rows = [
        [
            escape(scoped_name(rule.scope, rule.step)),
            escape(short_rule(rule.rule)),
            str(rule.fired),
            str(rule.repairs) if rule.repairs else "",
            str(rule.repairs_failed) if rule.repairs_failed else "",
            duration(rule.repair_seconds) if rule.repairs else "",
            str(rule.recovered),
        ]
        for rule in rules
    ]
    return table(["STEP", "RULE", "FIRED", "REPAIRS", "FAILED", "TIME", "RECOVERED"], rows, paint, columns(sys.stdout))
