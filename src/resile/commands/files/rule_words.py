"""Words a judgement as a rule of another system, whose files Resile reads but does not write.

    Torc      a failure handler: exit codes, and retries
    Prodigy   `retry` with `retry_on`, `on_exit_code`
    Visor     `on_fail.retry`, `continue_on_failure`: for every failure of the step
    NoETL     a policy of `retry` or a case, with a condition on `error`

If a system has no key for a part of the judgement, the module refuses, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from resile.errors import ResileError
from resile.model.failure import Failure
from resile.model.workflow import Step

RETRIES = 3
PATTERN_CHARACTERS_MAX = 80


class Verdict(Struct, frozen=True, kw_only=True):
    """The judge's decision, in the words of the call; `memory` and `runtime` are zero if they are not given."""

    word: str
    output: Any = None
    memory: str = ""
    memory_bytes: int = 0
    runtime: str = ""
    runtime_seconds: float = 0.0


def refusal(message: str, hint: str = "") -> ResileError:
    """The error that says why there is no rule."""
    return ResileError("no-rule", message, hint=hint)


def rule_of_system(system: str, step: Step, failure: Failure, verdict: Verdict) -> str:
    """The lines that answer such a failure in a file of this system, with the keys around them."""
    if verdict.word == "skip" and verdict.output is not None:
        raise refusal(f"a rule of {_NAMES[system]} can't give an output to a step that failed", "leave --output out")
    if verdict.word == "fail":
        raise refusal(f"a rule of {_NAMES[system]} can't let a step fail", _FINAL[system])
    lines = SYSTEMS[system](step, failure, verdict)
    given = [f"{word} {value}" for word in ("memory", "runtime") if (value := getattr(verdict, word))]
    if given and system != "torc":
        lines = [*lines, f"# {_NAMES[system]} has no key that gives a step {' and '.join(given)}"]
    return "\n".join(lines)


def pattern_of(failure: Failure) -> str:
    """A pattern of the message in which each number matches any number; empty if there is nothing to match."""
    text = re.sub(r"^exit code \d+(: )?", "", failure.message).splitlines()
    line = text[0][:PATTERN_CHARACTERS_MAX].strip() if text else ""
    pattern = re.sub(r"[0-9]+", r"[0-9]+", re.sub(r"([\\.^$|?*+()\[\]{}])", r"\\\1", line))
    from resile.model.patterns import compile_pattern

    found = compile_pattern(pattern).search if line.isprintable() and line else lambda _text: False
    return pattern if any(found(one) for one in (failure.stderr, failure.stdout, failure.message)) else ""


def _in_torc(step: Step, failure: Failure, verdict: Verdict) -> list[str]:
    """A failure handler, whose rules can only try again."""
    if verdict.word == "skip":
        raise refusal("a rule of Torc can try again, but not skip")
    code = -failure.signal if failure.signal is not None else failure.exit_code
    match = "match_all_exit_codes: true" if code is None else f"exit_codes: [{code}]"
    given = [f"{word} {value}" for word in ("memory", "runtime") if (value := getattr(verdict, word))]
    return [
        "failure_handlers:",
        f"  - name: {step.name}",
        "    rules:",
        f"      - {match}",
        f"        max_retries: {RETRIES}",
        *(f"# and in the job's resource requirements: {one}" for one in given),
        f"# and in the job {step.name}:",
        f"failure_handler: {step.name}",
    ]


def _in_prodigy(step: Step, failure: Failure, verdict: Verdict) -> list[str]:
    """`retry`, which can ask what a failure says; `on_exit_code`, whose command can stand in for the step."""
    head = f"# in the step {step.name}:"
    if verdict.word == "skip":
        if failure.exit_code is None:
            message = f"no key of Prodigy skips a step for a failure of the kind {failure.kind}, which has no exit code"
            raise refusal(message, "`on_failure: {shell: 'true'}` answers every failure of the step")
        return [head, f"on_exit_code: {{{failure.exit_code}: {{shell: 'true'}}}}"]
    pattern = pattern_of(failure)
    only = f", retry_on: [{{pattern: {_quote(pattern)}}}]" if pattern else ""
    every = [] if pattern else ["# it answers every failure of the step: Prodigy's `retry` knows no exit codes"]
    return [head, *every, f"retry: {{attempts: {RETRIES + 1}{only}}}"]


def _in_visor(step: Step, _failure: Failure, verdict: Verdict) -> list[str]:
    """`on_fail.retry` or `continue_on_failure`: neither has a condition."""
    key = "continue_on_failure: true" if verdict.word == "skip" else f"on_fail: {{retry: {{max: {RETRIES}}}}}"
    return [
        f"# in the step {step.name}; it answers every failure of the step, because Visor's key has no condition:",
        key,
    ]


def _in_noetl(step: Step, failure: Failure, verdict: Verdict) -> list[str]:
    """A policy of `retry` with a condition; a case that goes on with the next step."""
    if verdict.word == "skip":
        if not step.arcs:
            message = (
                f"no key of NoETL lets a failed step count as done, and {step.name!r} has no next step to go on with"
            )
            raise refusal(message, "a `case` with `next` goes on with another step")
        condition = _quote(f"{{{{ event.name == 'call.error' and {_noetl_condition(failure)} }}}}")
        return [
            f"# in the step {step.name}; it stays failed, and the playbook goes on:",
            "case:",
            f"- when: {condition}",
            f"  then: {{next: [{{step: {step.arcs[0].step}}}]}}",
        ]
    condition = _quote(f"{{{{ error is not none and {_noetl_condition(failure)} }}}}")
    return [
        f"# in the step {step.name}:",
        "retry:",
        f"- when: {condition}",
        f"  then: {{max_attempts: {RETRIES + 1}}}",
    ]


def _noetl_condition(failure: Failure) -> str:
    """The condition that tells this failure from others: by its exit code, else by words of its message."""
    if failure.exit_code is not None:
        return f"error.exit_code == {failure.exit_code}"
    words = max(re.split(r"[^A-Za-z ]+", failure.message), key=len).strip()
    return f"'{words}' in error" if words else "error"


def _quote(text: str) -> str:
    """A text as YAML takes it: JSON is YAML."""
    return msgspec.json.encode(text).decode()


_NAMES = {"torc": "Torc", "prodigy": "Prodigy", "visor": "Visor", "noetl": "NoETL"}
_FINAL = {
    "torc": "without `use_pending_failed` a failure that no rule matches is final",
    **dict.fromkeys(("prodigy", "visor", "noetl"), "a failure that no key answers is final there"),
}
SYSTEMS: dict[str, Callable[[Step, Failure, Verdict], list[str]]] = {
    "torc": _in_torc,
    "prodigy": _in_prodigy,
    "visor": _in_visor,
    "noetl": _in_noetl,
}
