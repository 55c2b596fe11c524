"""Failure handlers as rules of the ladder, as the first design reads them.

    rule with listed codes   -> match those codes; a code belongs to the first rule that lists it
    match_all_exit_codes     -> the last rule, for every failure that no rule lists
    max_retries: N           -> N attempts in all: the rules of a job retry N-1 times together
    use_pending_failed       -> park what no rule is for

One rule is chosen for a failure; when it is spent the failure stands, so the rules below exclude the listed codes.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.reading.context import Reading
from resile.dialects.torc.commands import for_bash
from resile.dialects.torc.keys import HANDLER, RULE
from resile.dialects.torc.values import read_list, take_name
from resile.errors import shorten
from resile.model.rules import Match, Origin, Repair, Rule
from resile.model.workflow import Shell, Step

ATTEMPTS_DEFAULT = 3
SCRIPT_NAME = "recovery_script"


class Handler(Struct, frozen=True):
    """The rules of one handler, the codes that they list, and whether one answers all others."""

    node: Scalar
    rules: tuple[Rule, ...]
    listed: tuple[int, ...]
    catches_all: bool

    def ladder(self, parks: bool) -> tuple[Rule, ...]:
        """The rules of a job with this handler."""
        return (*self.rules, parking(self.listed)) if parks and not self.catches_all else self.rules


def parking(listed: tuple[int, ...] = ()) -> Rule:
    """The rule that holds what no rule is for."""
    return Rule(then="park", text="use_pending_failed", match=Match(codes_excluded=listed))


def read_handlers(reading: Reading, node: Node | None) -> dict[str, Handler]:
    """Every failure handler by its name."""
    result: dict[str, Handler] = {}
    for _, fields in read_list(reading, node, HANDLER, "name", "rules"):
        name: Scalar = fields["name"]
        if take_name(reading, result, name, "the failure handler"):
            result[name.text] = _handler(reading, name, read_list(reading, fields["rules"], RULE))
    return result


def _handler(reading: Reading, name: Scalar, drafts: list[tuple[Mapping, dict[str, Any]]]) -> Handler:
    """The rules of one handler in the order in which a failure meets them."""
    if not drafts:
        reading.report.error("value", f"the failure handler `{shorten(name.text)}` has no rules", name)
    owner: dict[int, int] = {}
    for number, (_, fields) in enumerate(drafts):
        for code in fields.get("exit_codes", ()):
            owner.setdefault(code, number)
    listed = _with_broken_promises(tuple(owner))
    catch_all = next((number for number, (_, fields) in enumerate(drafts) if fields.get("match_all_exit_codes")), -1)
    rules: list[Rule] = []
    last: list[Rule] = []
    for number, (node, fields) in enumerate(drafts):
        own = _with_broken_promises(tuple(code for code, first in owner.items() if first == number))
        if number == catch_all:
            others = tuple(code for code in listed if code not in own)
            last.append(_rule(reading, name.text, node, fields, Match(codes_excluded=others), "every other failure"))
        elif own:
            shown = " ".join(str(code) for code in own if code)
            rules.append(_rule(reading, name.text, node, fields, Match(codes=own), f"exit codes {shown}"))
        else:
            hint = "list `exit_codes`, or say `match_all_exit_codes: true`"
            if fields.get("exit_codes") or fields.get("match_all_exit_codes"):
                hint = "a rule above answers these failures already"
            reading.report.warning("never", "this rule answers no failure", node, hint=hint)
    return Handler(name, (*rules, *last), listed, catch_all >= 0)


def _with_broken_promises(codes: tuple[int, ...]) -> tuple[int, ...]:
    """In Torc a job that left an output file out has the code 1; here it has the 0 that it ended with."""
    return (*codes, 0) if 1 in codes else codes


def _rule(reading: Reading, name: str, node: Mapping, fields: dict[str, Any], match: Match, what: str) -> Rule:
    """One rule."""
    attempts = fields.get("max_retries", ATTEMPTS_DEFAULT)
    _tell_of_attempts(reading, node, attempts)
    return Rule(
        then="retry",
        text=f"failure_handler {name}: {what}",
        match=match,
        limit=max(0, attempts - 1),
        limit_of="job",
        repair=_repair(reading, fields),
        origin=Origin(node.line, node.column),
    )


def _tell_of_attempts(reading: Reading, node: Mapping, attempts: int) -> None:
    """`max_retries` says something else than it seems to."""
    place = node.entries["max_retries"][1] if "max_retries" in node.entries else node
    if attempts <= 1:
        message = f"`max_retries: {attempts}` is one attempt in all, as Torc counts: this rule never retries"
        reading.report.warning("attempts", message, place, hint="for one retry write `max_retries: 2`")
        return
    retries = "1 retry" if attempts == 2 else f"{attempts - 1} retries"
    message = f"`max_retries: {attempts}` is {attempts} attempts of a job in all, as Torc counts: {retries}"
    reading.report.notice(
        "attempts", message, place, hint=f"for {attempts} retries write `max_retries: {attempts + 1}`"
    )


def _repair(reading: Reading, fields: dict[str, Any]) -> Repair | None:
    """The recovery script; whatever becomes of it, the job runs again."""
    script: Scalar | None = fields.get("recovery_script")
    if script is None:
        return None
    if not script.text.strip():
        reading.report.error("value", "`recovery_script` is empty", script)
    origin = Origin(script.line, script.column)
    action = Shell(for_bash(reading, script.text, script, in_repair=True), "bash")
    step = Step(name=SCRIPT_NAME, action=action, origin=origin)
    return Repair(steps=(step,), on_failure="ignore")
