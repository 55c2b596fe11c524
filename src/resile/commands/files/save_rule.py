"""Turns a judgement into a rule of the workflow file, which makes the same decision by itself next time.

    draft()   parked failure + verdict -> the rule -> the new text of the file, compiled and compared -> RuleDraft
    write()   RuleDraft -> the file, at once and with its mode

For the file of another system, `text` has the rule, and nothing is written. If no rule can express the verdict, or the
file has no safe place for the rule, `draft` refuses with the reason.
"""

from __future__ import annotations

import difflib
import os
import shlex
import signal
from typing import Any

from msgspec import Struct

from resile.commands.files.rule_words import RETRIES, SYSTEMS, Verdict, pattern_of, refusal, rule_of_system
from resile.commands.judge import ParkedStep
from resile.commands.load import STDIN_NAME, read_source
from resile.core.recovery.matching import matches
from resile.dialects.compile import compile_text
from resile.dialects.formats.yaml_edit import CannotEdit, Text, entry, is_list, is_mapping, mapping_at
from resile.dialects.native.writer.compare import differences
from resile.model.builtin_actions import Ask
from resile.model.failure import Failure, Kind
from resile.model.folders import put_in_place
from resile.model.nested import steps_of
from resile.model.workflow import Rule, Step, Workflow

FACTOR_MAX = 100
GENERAL_CODES = (1, 2, 255)
"""Exit codes that programs use for any failure: a rule for one of them needs a pattern, too."""
_SAYS_LITTLE = (Kind.SPAWN, Kind.CHECK, Kind.CONTRACT)


class RuleDraft(Struct, frozen=True):
    """The rule as text: a difference of the file at `path`, or the rule alone if `path` is empty."""

    text: str
    path: str = ""
    before: bytes = b""
    after: bytes = b""


def draft(parked: ParkedStep, verdict: Verdict) -> RuleDraft:
    """The rule for a parked failure, in the file of its run."""
    workflow, step, failure = parked.workflow, parked.step, parked.failure
    if isinstance(step.action, Ask):
        raise refusal(f"{step.name!r} asks a question; no rule can answer it")
    if failure.kind in (Kind.LOST, Kind.CANCELED):
        raise refusal(f"no rule of a file sees a {failure.kind} attempt: Resile itself answers it")
    if workflow.dialect in SYSTEMS:
        return RuleDraft(rule_of_system(workflow.dialect, step, failure, verdict))
    if workflow.dialect != "native" or workflow.file == STDIN_NAME:
        kind = "came from standard input" if workflow.file == STDIN_NAME else f"is a {workflow.dialect} file"
        raise refusal(f"{workflow.file} {kind}; a rule can be saved in a native file")
    return _in_native(workflow, step, failure, verdict)


def write(saved: RuleDraft) -> None:
    """Write the new text of the file, if it is still as it was when the draft was made."""
    part = f"{saved.path}.{os.getpid()}.part"
    try:
        if read_source(saved.path) != saved.before:
            raise refusal(f"{saved.path} has changed meanwhile; nothing was written to it")
        mode = os.stat(saved.path).st_mode & 0o7777
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(saved.after)
            put_in_place(file, part, saved.path)
    except OSError as error:
        raise refusal(f"the rule can't be written to {saved.path}: {error.strerror}") from error


def _in_native(workflow: Workflow, ran: Step, failure: Failure, verdict: Verdict) -> RuleDraft:
    """The rule as a change of a native file."""
    path = os.path.realpath(os.path.join(workflow.folder, os.path.basename(workflow.file)))
    before = read_source(path)
    if before is None:
        raise refusal(f"{path} can't be read, so no rule can be saved in it")
    old = _compile(before, path, workflow)
    step = _only_step(old, ran.name, path)
    rule, remark = _rule(step, failure, verdict)
    text = Text(before.decode(), is_json=path.endswith(".json"))
    try:
        _place(text, old, step, rule, "" if text.is_json or not remark else f"  # {remark}")
        after = text.result().encode()
    except CannotEdit as problem:
        raise refusal(f"{path} has no place for the rule: {problem}", text.flow(rule)) from problem
    new = _compile(after, path, workflow, text.flow(rule))
    _verify(old, new, step, failure, text.flow(rule))
    shown = difflib.unified_diff(
        before.decode().splitlines(), after.decode().splitlines(), workflow.file, workflow.file, n=2, lineterm=""
    )
    return RuleDraft("\n".join(shown), path, before, after)


def _compile(data: bytes, path: str, workflow: Workflow, rule: str = "") -> Workflow:
    """Compile a text of the file; raises the first error if there is one."""
    result = compile_text(data, file=workflow.file, folder=os.path.dirname(path), dialect="native")
    if result.workflow is None:
        first = next(found for found in result.diagnostics if found.severity == "error")
        whose = "with the rule, " if rule else ""
        raise refusal(f"{whose}{workflow.file} does not compile: {first.message}", rule)
    return result.workflow


def _only_step(workflow: Workflow, name: str, path: str) -> Step:
    """The step with this name in the file as it is now."""
    found = [step for step in steps_of(workflow) if step.name == name]
    if not found:
        raise refusal(f"{path} has no step {name!r}; it may have changed since the run started")
    if len(found) > 1 or found[0].origin.file or not found[0].origin.line:
        raise refusal(f"{path} has no single place for the step {name!r}")
    return found[0]


def _rule(step: Step, failure: Failure, verdict: Verdict) -> tuple[dict[str, Any], str]:
    """The rule that decides as the judge did, and a remark on the parts that it can't express."""
    match = _match(failure)
    if verdict.word == "fail":
        return {"then": "fail", **match}, ""
    if verdict.word == "skip":
        return _skip(match, verdict.output), ""
    if verdict.word == "retry-with":
        growth = _growth(step, failure, verdict)
        if growth:
            return {"then": "retry", **match, "limit": RETRIES, "escalate": growth}, ""
        given = " ".join(f"--{word} {value}" for word in ("memory", "runtime") if (value := getattr(verdict, word)))
        return {**match, "max_retries": RETRIES}, f"judged retry-with {given}: see `resources` of the step"
    return {**match, "max_retries": RETRIES}, ""


def _skip(match: dict[str, Any], output: Any) -> dict[str, Any]:
    """The rule that lets a step count as done; a command in the rule prints the output, if the judge gave one."""
    if output is None:
        return {"then": "recovered", **match}
    if not isinstance(output, str) or "${" in output or not output.isprintable():
        raise refusal("a rule can give one line of text as the output, without references", "leave --output out")
    return {"then": "fallback", **match, "commands": [f"printf %s {shlex.quote(output)}"]}


def _growth(step: Step, failure: Failure, verdict: Verdict) -> dict[str, Any]:
    """The resources that the next try gets more of, up to the judge's grant; empty if a rule can't grant them."""
    has = step.resources
    if has is None:
        return {}
    if failure.kind == Kind.OOM and verdict.memory_bytes and has.memory_bytes:
        word, text, factor = "memory_max", verdict.memory, verdict.memory_bytes / has.memory_bytes
    elif failure.kind == Kind.TIMEOUT and verdict.runtime_seconds and has.runtime_seconds:
        word, text, factor = "runtime_max", verdict.runtime, verdict.runtime_seconds / has.runtime_seconds
    else:
        return {}
    if not 1.01 < factor <= FACTOR_MAX:
        raise refusal(f"a rule can grant up to {FACTOR_MAX} times of what the step has, not {factor:g} times")
    return {"factor": -(-factor * 100 // 1) / 100, word: text}


def _match(failure: Failure) -> dict[str, Any]:
    """The matchers of a failure: its code, signal or kind, and a pattern if these say little."""
    if failure.kind == Kind.SIGNAL and failure.signal is not None:
        return {"signals": [signal.Signals(failure.signal).name.removeprefix("SIG")]}
    if failure.kind == Kind.EXIT and failure.exit_code is not None:
        pattern = pattern_of(failure) if failure.exit_code in GENERAL_CODES else ""
        return {"exit_codes": [failure.exit_code], **({"pattern": pattern} if pattern else {})}
    pattern = pattern_of(failure) if failure.kind in _SAYS_LITTLE else ""
    return {"kinds": [failure.kind], **({"pattern": pattern} if pattern else {})}


def _place(text: Text, workflow: Workflow, step: Step, rule: dict[str, Any], remark: str) -> None:
    """Add the rule to the step's failure handler.

    If it has none, add a handler to the file, and its name to the step.
    """
    node = mapping_at(text.root, step.origin.line, step.origin.column)
    if node is None:
        raise CannotEdit(f"the step {step.name!r} is not a mapping")
    handlers, named = entry(text.root, "failure_handlers"), entry(node, "failure_handler")
    if named is not None:
        handler = entry(handlers, named.value) if is_mapping(handlers) else None
        rules = entry(handler, "rules") if is_mapping(handler) else None
        if not is_list(rules):
            raise CannotEdit(f"the rules of the failure handler {named.value!r} are not in a list")
        text.add_item(rules, rule, remark)
        return
    name = step.name
    while name in workflow.failure_handlers:
        name += "-judged"
    text.add_entry(node, "failure_handler", name)
    if is_mapping(handlers) and handlers.value:
        text.add_entry(handlers, name, {"rules": [rule]}, comment=remark)
        return
    if handlers is not None:
        raise CannotEdit("`failure_handlers` is empty")
    keys = [key.value for key, _ in text.root.value]
    place = keys.index("steps") if "steps" in keys else len(keys)
    above = text.root.value[place - 1][1] if place and not text.root.flow_style else None
    text.add_entry(text.root, "failure_handlers", {name: {"rules": [rule]}}, after=above, comment=remark)


def _verify(old: Workflow, new: Workflow, step: Step, failure: Failure, rule: str) -> None:
    """Refuse a change that concerns more than the rules of one step, or does not answer the failure."""
    own = ".end.rules" if step is old.end else f"[{step.name}].rules"
    for found in differences(old, new):
        if own not in found.path and not found.path.startswith(".failure_handlers"):
            message = f"the rule would change more than the step {step.name!r}: {found.path.lstrip('.')}"
            raise refusal(message, f"give the step a failure handler of its own with {rule}")
    changed = next(one for one in steps_of(new) if one.name == step.name)
    place = _place_of_added(step.rules, changed.rules)
    before = next((one for one in step.rules[:place] if one.then == "park" and matches(one.match, failure)), None)
    if before is not None:
        where = f"{new.file}:{before.origin.line}:{before.origin.column}"
        raise refusal(f"the rule at {where} parks the failure before the new one is tried", f"put {rule} above it")
    if not matches(changed.rules[place].match, failure):
        raise refusal("no rule can match this failure alone", rule)


def _place_of_added(old: tuple[Rule, ...], new: tuple[Rule, ...]) -> int:
    """The place of the one rule that is new."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (one, other) in pairs if any(differences(one, other))), len(old))
