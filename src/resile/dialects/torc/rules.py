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

from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar, Sequence
from resile.dialects.native.nodes import mapping, number, put, sequence, word
from resile.dialects.reading.context import Reading
from resile.dialects.torc.commands import for_bash
from resile.dialects.torc.keys import HANDLER, RULE
from resile.dialects.torc.values import read_list, take_name
from resile.errors import shorten

ATTEMPTS_DEFAULT = 3
SCRIPT_NAME = "recovery_script"


class Handler(Struct, frozen=True):
    """The native rules of one handler, the codes that they list, and whether one answers all others."""

    node: Scalar
    rules: Sequence
    listed: tuple[int, ...]
    catches_all: bool


def parking_rule(listed: tuple[int, ...] = ()) -> Mapping:
    """The native rule that holds what no rule is for; it stands nowhere in the file."""
    nowhere = Mark(0, 0)
    rule = mapping(nowhere, {"then": word("park", nowhere), "text": word("use_pending_failed", nowhere)})
    put(rule, "except_exit_codes", _codes(listed, rule))
    return rule


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
    for place, (_, fields) in enumerate(drafts):
        for code in fields.get("exit_codes", ()):
            owner.setdefault(code, place)
    listed = _with_missing_outputs(tuple(owner))
    catch_all = next((place for place, (_, fields) in enumerate(drafts) if fields.get("match_all_exit_codes")), -1)
    rules: list[Node] = []
    last: list[Node] = []
    for place, (node, fields) in enumerate(drafts):
        own = _with_missing_outputs(tuple(code for code, first in owner.items() if first == place))
        if place == catch_all:
            rule = _rule(reading, name.text, node, fields, "every other failure")
            put(rule, "except_exit_codes", _codes(tuple(code for code in listed if code not in own), node))
            last.append(rule)
        elif own:
            shown = " ".join(str(code) for code in own if code)
            rule = _rule(reading, name.text, node, fields, f"exit codes {shown}")
            put(rule, "exit_codes", _codes(own, node))
            rules.append(rule)
        else:
            hint = "list `exit_codes`, or say `match_all_exit_codes: true`"
            if fields.get("exit_codes") or fields.get("match_all_exit_codes"):
                hint = "a rule above answers these failures already"
            reading.report.warning("never", "this rule answers no failure", node, hint=hint)
    return Handler(name, sequence([*rules, *last], name), listed, catch_all >= 0)


def _with_missing_outputs(codes: tuple[int, ...]) -> tuple[int, ...]:
    """In Torc a job that left an output file out has the code 1; here it has the 0 that it ended with."""
    return (*codes, 0) if 1 in codes else codes


def _codes(codes: tuple[int, ...], at: Mapping) -> Sequence:
    """A list of exit codes."""
    return sequence([number(code, at) for code in codes], at)


def _rule(reading: Reading, name: str, node: Mapping, fields: dict[str, Any], what: str) -> Mapping:
    """One native rule, without the failures that it answers."""
    attempts = fields.get("max_retries", ATTEMPTS_DEFAULT)
    _report_attempts(reading, node, attempts)
    rule = mapping(
        node,
        {
            "then": word("retry", node),
            "text": word(f"failure_handler {name}: {what}", node),
            "limit": number(max(0, attempts - 1), node),
            "limit_of": word("job", node),
        },
    )
    script: Scalar | None = fields.get("recovery_script")
    if script is not None:
        if not script.text.strip():
            reading.report.error("value", "`recovery_script` is empty", script)
        command = word(for_bash(reading, script.text, script, in_repair=True), script)
        entries: dict[str, Node] = {
            "id": word(SCRIPT_NAME, script),
            "shell": command,
            "shell_program": word("bash", script),
        }
        put(rule, "commands", sequence([mapping(script, entries)], script))
        # Whatever becomes of the script, the job runs again.
        put(rule, "on_repair_failure", word("ignore", script))
    return rule


def _report_attempts(reading: Reading, node: Mapping, attempts: int) -> None:
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
