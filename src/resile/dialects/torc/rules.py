"""Translates the failure handlers of a Torc file to native rules.

    rule with listed codes   -> match those codes; a code belongs to the first rule that lists it
    match_all_exit_codes     -> the last rule, for every failure that no rule lists
    max_retries: N           -> N attempts in all: the rules of a job retry N-1 times together
    use_pending_failed       -> park failures that no rule matches

Only one rule answers a failure; when it is used up the failure stays, so the rules below exclude the listed codes.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar
from resile.dialects.native.nodes import node_of
from resile.dialects.reading.context import Reading
from resile.dialects.torc.commands import escape_for_bash, torc_on_path, without_surroundings
from resile.dialects.torc.jobs import Datum
from resile.dialects.torc.keys import HANDLER, RULE
from resile.dialects.torc.values import read_list, read_named
from resile.errors import shorten
from resile.model.workflow import Rule, Shell

ATTEMPTS_DEFAULT = 3
SCRIPT_NAME = "recovery_script"
NO_CODE = -64


class Handler(Struct, frozen=True):
    """The native rules of one handler, the codes that they list, and whether one matches all others."""

    node: Scalar
    rules: tuple[Node, ...]
    listed: tuple[int, ...]
    catches_all: bool


def make_parking_rule(listed: tuple[int, ...] = ()) -> Node:
    """Make the native rule that parks failures that no rule matches; it has no position in the file."""
    rule = {"then": "park", "text": "use_pending_failed", "except_exit_codes": listed}
    return node_of(rule, Mark(0, 0))


def read_handlers(reading: Reading, node: Node | None, user_data: dict[str, Datum]) -> dict[str, Handler]:
    """Read every failure handler by name; recovery scripts that call `torc` find the user data."""
    return {
        name: _make_handler(reading, fields["name"], read_list(reading, fields["rules"], RULE), user_data)
        for name, (_, fields) in read_named(reading, node, HANDLER, "the failure handler", "rules").items()
    }


def _make_handler(
    reading: Reading, name: Scalar, drafts: list[tuple[Mapping, dict[str, Any]]], user_data: dict[str, Datum]
) -> Handler:
    """Make the rules of one handler, in the order in which the engine tries them."""
    if not drafts:
        message = f"the failure handler `{shorten(name.text)}` has no rules: it answers no failure"
        reading.report.warning("never", message, name)
    owner: dict[int, int] = {}
    for place, (_, fields) in enumerate(drafts):
        for code in fields.get("exit_codes", ()):
            owner.setdefault(code, place)
    listed = _add_missing_outputs(tuple(owner))
    catch_all = next((place for place, (_, fields) in enumerate(drafts) if fields.get("match_all_exit_codes")), -1)
    rules: list[Node] = []
    last: list[Node] = []
    for place, (node, fields) in enumerate(drafts):
        own = _add_missing_outputs(tuple(code for code, first in owner.items() if first == place))
        if place == catch_all:
            others = tuple(code for code in listed if code not in own)
            text = f"failure_handler {name.text}: every other failure"
            last.append(_make_rule(reading, node, fields, {"text": text, "except_exit_codes": others}, user_data))
        elif own:
            shown = " ".join(str(code) for code in own if code)
            text = f"failure_handler {name.text}: exit codes {shown}"
            rules.append(_make_rule(reading, node, fields, {"text": text, "exit_codes": own}, user_data))
        else:
            hint = "list `exit_codes`, or say `match_all_exit_codes: true`"
            if fields.get("exit_codes") or fields.get("match_all_exit_codes"):
                hint = "a rule above answers these failures already"
            reading.report.warning("never", "this rule answers no failure", node, hint=hint)
    if not rules and not last:
        # The job has a handler all the same: its outcome is NoMatchingRule.
        text = f"failure_handler {name.text}: no rule"
        rules.append(node_of({"then": "fail", "exit_codes": [NO_CODE], "text": text}, name))
    return Handler(name, (*rules, *last), listed, catch_all >= 0)


def _add_missing_outputs(codes: tuple[int, ...]) -> tuple[int, ...]:
    """Add 0 to codes with 1: a job with a missing output file has the code 1 in Torc, but its own 0 in Resile."""
    return (*codes, 0) if 1 in codes else codes


def _make_rule(
    reading: Reading, node: Mapping, fields: dict[str, Any], failures: dict[str, Any], user_data: dict[str, Datum]
) -> Node:
    """Make one native rule for the given `failures`."""
    attempts = fields.get("max_retries", ATTEMPTS_DEFAULT)
    _report_attempts(reading, node, attempts)
    rule: dict[str, Any] = {"then": "retry", **failures, "limit": max(0, attempts - 1), "limit_of": "job"}
    script: Scalar | None = fields.get("recovery_script")
    if script is not None:
        if not script.text.strip():
            reading.report.error("value", "`recovery_script` is empty", script)
        text = torc_on_path(reading, [script.text], user_data, script)
        text += escape_for_bash(reading, script.text, script, in_repair=True)
        rule["commands"] = [node_of({"id": SCRIPT_NAME, "shell": text, "shell_program": "bash"}, script)]
        # The job runs again even if the script fails.
        rule["on_repair_failure"] = "ignore"
    return node_of(rule, node)


def _report_attempts(reading: Reading, node: Mapping, attempts: int) -> None:
    """Report how many attempts `max_retries` means."""
    place = node.entries["max_retries"][1] if "max_retries" in node.entries else node
    if attempts <= 1:
        message = f"`max_retries: {attempts}` is one attempt in all, as Torc counts: this rule never retries"
        reading.report.warning("attempts", message, place, hint="for one retry write `max_retries: 2`")
        return
    retries = "1 retry" if attempts == 2 else f"{attempts - 1} retries"
    message = f"`max_retries: {attempts}` is {attempts} attempts of a job in all, as Torc counts: {retries}"
    hint = f"for {attempts} retries write `max_retries: {attempts + 1}`"
    reading.report.notice("attempts", message, place, hint=hint)


def write_rule(rule: Rule) -> dict[str, Any] | None:
    """Write a rule with Torc's keys, as a client of Torc expects it; None for one that no file has."""
    if rule.then != "retry":
        return None
    codes = rule.match.codes
    listed = [code for code in codes if code or 1 not in codes]
    written: dict[str, Any] = {"exit_codes": listed} if listed else {"match_all_exit_codes": True}
    if rule.repair is not None and isinstance(script := rule.repair.steps[0].action, Shell):
        written["recovery_script"] = without_surroundings(script.command)
    return written | {"max_retries": rule.limit + 1}
