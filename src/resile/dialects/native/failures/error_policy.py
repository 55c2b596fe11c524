"""Error policies: how a failed item counts, and named handlers for failures inside items.

    on_item_failure: custom:NAME   NAME of `failure_handlers`: its rules come after those of every step of the item
                                   NAME of `handlers`: its steps run once for a failed step, which is then recovered

Both become rules of the item's steps, so the model needs no custom handlers: an item that stays failed
becomes a dead letter as with `dlq`, and its map fails when all items are over unless the policy lets it go on. A
`retry_config` retries failed items before `on_item_failure` applies, whatever its value.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.context import Defaults, NativeReading, Policy, Scope, StepDraft
from resile.dialects.native.failures.commands import read_commands
from resile.dialects.native.failures.handlers import handed_over
from resile.dialects.native.keys.fanout import CUSTOM, ERROR_POLICY
from resile.dialects.reading.diagnostics import Diagnostics, did_you_mean
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import name_problem, wrong
from resile.errors import shorten
from resile.model.fanout import ErrorPolicy
from resile.model.rules import Backoff, Origin
from resile.model.workflow import Repair, Rule

ATTEMPTS_DEFAULT = 3
BACKOFF_DEFAULT = Backoff("exponential", 1.0)
_LAST = ("tolerate", "park", "fail")


def read_policy(reading: NativeReading, node: Node) -> Policy:
    """Read an error policy; its handler must exist."""
    fields = read_mapping(reading, node, ERROR_POLICY)
    is_lenient = not fields.keys().isdisjoint(("continue_on_failure", "failures_max", "failure_threshold"))
    word, where = fields.pop("on_item_failure", ("dlq", None))
    custom = where if word == CUSTOM and _is_known(reading, where) else None
    fields["on_item_failure"] = _meaning_of(reading, node, "dlq" if word == CUSTOM else word, is_lenient)
    if fields.get("failure_threshold", 1.0) < 1.0 and isinstance(node, Mapping):
        message = "since 0.2 the share of failed items is also judged when the map ends, however few items it has"
        reading.report.notice("since-0.2", message, node.entries["failure_threshold"][0])
    if "error_collection" in fields:
        fields["collection"], size = fields.pop("error_collection")
        if size is not None:
            fields["batch_size"] = size
    retries: dict[str, Any] | None = fields.pop("retry_config", {} if word == "retry" else None)
    if retries is not None:
        fields["attempts_max"] = retries.get("attempts_max", ATTEMPTS_DEFAULT)
        fields["backoff"] = retries.get("backoff", BACKOFF_DEFAULT)
    return Policy(ErrorPolicy(**fields), custom)


def _meaning_of(reading: NativeReading, node: Node, word: str, is_lenient: bool) -> str:
    """What `on_item_failure` means: a map fails for an item that stays failed, unless another key lets it go on."""
    if is_lenient or word not in ("dlq", "retry"):
        return word
    notice_failing_map(reading, node)
    return "fail"


def notice_failing_map(reading: NativeReading, node: Node) -> None:
    """Say that a map, or its policy, means something else since 0.2."""
    hint = "`error_policy: {continue_on_failure: true}` lets the run go on"
    reading.report.notice("since-0.2", "since 0.2 a map fails if one of its items stays failed", node, hint=hint)


def _is_known(reading: NativeReading, node: Scalar) -> bool:
    """Is there a handler of this name?"""
    name = node.text.removeprefix(CUSTOM).strip()
    if name in reading.handlers or name in reading.lists:
        reading.handlers_used.add(name)
        return True
    known = [*reading.handlers, *reading.lists]
    hint = did_you_mean(name, known, "handlers") or "declare it under `handlers`, as a list of steps"
    reading.report.error("unknown-handler", f"there is no handler `{shorten(name)}`", node, hint=hint)
    return False


def read_lists(reading: NativeReading, node: Node, within: Defaults) -> None:
    """Read the lists of steps under `handlers`, and check each once, however many policies name it."""
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping of names to lists of steps")
        return
    for name, (key, value) in node.entries.items():
        problem = name_problem(name)
        if problem:
            reading.report.error("name", f"the name `{shorten(name)}` {problem}", key)
        if name in reading.handlers:
            message = f"`{shorten(name)}` is the name of a failure handler too"
            reading.report.error("duplicate", message, key, hint="call one of the two something else")
        if not isinstance(value, Sequence) or not value.items:
            wrong(reading, value, "a list of steps")
            continue
        reading.lists[name] = value.items
        # The names that a handler can see depend on the step that uses it; they are checked there.
        count = len(reading.scopes)
        with reading.enter_scope(Scope(reading.scope)):
            read_commands(reading, value.items, "on_failure", within)
        del reading.scopes[count:]


def report_unused(reading: NativeReading, root: Mapping) -> None:
    """Report an error policy and handlers that nothing uses.

    An unused handler is only a warning, and only in a file without errors.
    """
    if "error_policy" in root.entries and not reading.policy_used:
        hint = "a map without an `error_policy` of its own takes it"
        where = root.entries["error_policy"][0]
        reading.report.error("conflict", "no map of this workflow takes this `error_policy`", where, hint=hint)
    if reading.report.errors:
        return
    hints = {
        "handlers": ("handler", f"an `error_policy` names it with `on_item_failure: {CUSTOM}NAME`"),
        "failure_handlers": ("failure handler", "a step names it with `failure_handler: NAME`"),
    }
    for word, (what, hint) in hints.items():
        node = root.entries[word][1] if word in root.entries else None
        for name, (key, _) in node.entries.items() if isinstance(node, Mapping) else ():
            if name not in reading.handlers_used:
                message = f"nothing names the {what} `{shorten(name)}`"
                reading.report.warning("unused", message, key, hint=hint.replace("NAME", shorten(name)))


def hand_over(reading: NativeReading, policy: Policy, drafts: dict[str, StepDraft], program: str) -> None:
    """Add the rules of the policy's handler to the steps of an item, before rules that only park, tolerate or fail."""
    custom = policy.custom
    if custom is None:
        return
    for name, draft in drafts.items():
        reading.owner = name
        rules = list(draft.step.rules)
        at = len(rules)
        while at and rules[at - 1].then in _LAST:
            at -= 1
        rules[at:at] = _rules(reading, custom, Defaults(program, draft.step.env, draft.step.working_dir))
        draft.step = replace(draft.step, rules=tuple(rules))
    reading.owner = ""


def _rules(reading: NativeReading, custom: Scalar, within: Defaults) -> tuple[Rule, ...]:
    """The rules of a handler for one step of an item."""
    name = custom.text.removeprefix(CUSTOM).strip()
    if name in reading.handlers:
        return handed_over(reading.handlers[name], within)
    # Errors in the list itself were reported when `handlers` was read; discard them here.
    report, reading.report = reading.report, Diagnostics(reading.source.file)
    steps = read_commands(reading, reading.lists[name], "on_failure", within)
    reading.report = report
    text = f"on_item_failure: {CUSTOM}{name}"
    return (Rule(then="recovered", text=text, repair=Repair(steps=steps), origin=Origin(custom.line, custom.column)),)
