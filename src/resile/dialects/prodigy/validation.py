"""`validate` and `goal_seek`: checks with a threshold, and the loops that run until they pass, as native steps.

    step -> on_success: check, measure, complete, validated
                                          |         |  still incomplete: on_failure, the command and its check again
                                          +---------+- incomplete: on_incomplete, check, measure, then complete again

`check` are the commands of the validation; their failure is a result like any other. `measure` reads their output and
captures it as `validation`. `complete` fails while the result is below the threshold: its failure rules are the loop. A
result that is still incomplete after them is a failure of the step, which its `on_failure` handles.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import (
    flag,
    is_null,
    items_of,
    mapping,
    number,
    put,
    sequence,
    text_in,
    value_of,
    word,
)
from resile.dialects.prodigy.failures import translate_handler
from resile.dialects.prodigy.keys import GOAL_SEEK, ON_INCOMPLETE, VALIDATE
from resile.dialects.prodigy.variables import Translation, Where
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import wrong

THRESHOLD_DEFAULT = 100
ATTEMPTS_DEFAULT = 2
TRIES_DEFAULT = 5
_COMPLETE = "test ${validation.complete} = true || { echo ${validation.summary} >&2; exit 1; }"
_REPEATED = ("working_dir", "timeout", "env", "capture", "outputs", "commit_required")
_NATIVE_ACTIONS = ("shell", "agent", "write_file", "python", "noop", "map")
MEASURE = """\
import json, re

def main(text, code, file, threshold):
    result, problem = None, ""
    try:
        if file:
            with open(file) as opened:
                result = json.load(opened)
        else:
            result = json.loads(text)
    except (OSError, ValueError) as error:
        problem = str(error)
    known = result if isinstance(result, dict) else {}
    percent = next((known[key] for key in ("completion_percentage", "completion", "score")
                    if isinstance(known.get(key), (int, float))), None)
    score = re.search(r"score:\\s*([0-9]+(?:\\.[0-9]+)?)", text or "")
    if file and (code or problem):
        percent = 0
    elif percent is None and "status" in known:
        percent = 100 if known["status"] == "complete" else 0
    elif percent is None and score:
        percent = float(score[1])
    elif percent is None:
        percent = 0 if code or file else 100
    complete = percent >= threshold
    summary = "validation: %g %% complete, %g %% needed" % (percent, threshold)
    if file and problem:
        summary += " (%s)" % problem
    missing = known.get("missing") or []
    return {**known, "completion": percent, "completion_percentage": percent, "complete": complete,
            "status": "complete" if complete else "incomplete", "missing": missing, "missing_count": len(missing),
            "implemented": known.get("implemented") or [], "gaps": known.get("gaps") or {}, "summary": summary}
"""


class _Check:
    """Makes the steps of one validation, once for each list that needs them."""

    def __init__(self, t: Translation, at: Mapping, commands: list[Node], file: Node | None, threshold: Node) -> None:
        self.t = t
        self.at = at
        self.commands = commands
        self.file = file
        self.threshold = threshold
        self.again: list[Node] = []

    def make_steps(self, where: Where, *, is_repeated: bool = False) -> list[Node]:
        """Make the steps that check and measure; without commands, a repeated check runs the step's own action."""
        made = self.t.translate_steps(self.commands, where)
        if is_repeated and not made:
            made = self.again
        for number_, step in enumerate(made):
            if isinstance(step, Mapping):
                self._capture_result(step, number_ > 0)
        return [*made, self._make_measure_step(where, bool(made))]

    def _capture_result(self, step: Mapping, is_later: bool) -> None:
        """Let a command of the check capture its output and exit code; those after a failed one are skipped."""
        own = value_of(step, "capture")
        kept: dict[str, Node] = {}
        if isinstance(own, Mapping):
            kept = {key: value for key, (_, value) in own.entries.items()}
        kept |= {"validation_text": word("text", step), "validation_code": word("exit_code", step)}
        put(step, "capture", mapping(step, kept), step)
        if is_null(value_of(step, "on_failure")):
            put(step, "on_failure", mapping(step, {"accept": flag(True, step)}), step)
        if is_later:
            condition = text_in(value_of(step, "when"))
            passed = "${validation_code} == 0"
            put(step, "when", word(f"{passed} && ({condition})" if condition else passed, step), step)

    def _make_measure_step(self, where: Where, has_commands: bool) -> Node:
        """Make the step that measures the result and captures it."""
        at = self.at
        inputs: dict[str, Node] = {
            "text": word("${validation_text}" if has_commands else "", at),
            "code": word("${validation_code}", at) if has_commands else number(0, at),
            "file": word("", at) if self.file is None else self.t.rewrite_text(self.file, where),
            "threshold": self.threshold,
        }
        source = mapping(at, {"source": word(MEASURE, at), "inputs": mapping(at, inputs)})
        capture = mapping(at, {"validation": word("json", at)})
        return mapping(at, {"id": word("measure", at), "python": source, "capture": capture})


def make_validation_steps(
    t: Translation, node: Node, inner: Where, out: Mapping, on_failure: Node | None
) -> list[Node]:
    """Make the steps that follow a step with `validate`."""
    if not isinstance(node, Mapping):
        several = node if isinstance(node, Sequence) else sequence([mapping(node, {"shell": node})], node)
        node = mapping(node, {"commands": several})
    fields = read_mapping(t, node, VALIDATE)
    commands = _commands_of(t, node, fields)
    threshold = fields.get("threshold", number(THRESHOLD_DEFAULT, node))
    _check_threshold(t, threshold)
    check = _Check(t, node, commands, fields.get("result_file"), threshold)
    if not commands:
        if "result_file" not in fields:
            t.report.error("value", "`validate` has neither a command nor a `result_file`", node)
        check.again = [_repeat_action(out, "check")]
    inner.last = {}
    made = check.make_steps(_place_beside(inner, "check"))
    loop = fields.get("on_incomplete")
    accepted = value_of(loop, "fail_workflow") if isinstance(loop, Mapping) else None
    if on_failure is None or _is_no(on_failure) or (accepted is not None and _is_no(accepted)):
        return [*made, _make_completion_step(t, node, loop, inner, check)]
    verdict = mapping(node, {"id": word("complete", node), "validate": word(_COMPLETE, node)})
    if loop is not None:
        made.append(_make_completion_step(t, node, loop, inner, check, is_last=False))
        put(verdict, "id", word("validated", node))
    put(verdict, "on_failure", _translate_own_handler(t, on_failure, inner, check, out, loop), on_failure)
    return [*made, verdict]


def _is_no(node: Node) -> bool:
    """Is this `false` or null?"""
    return isinstance(node, Scalar) and (node.value is False or node.value is None)


def _make_completion_step(
    t: Translation, node: Mapping, loop: Node | None, inner: Where, check: _Check, *, is_last: bool = True
) -> Mapping:
    """Make the step that fails while the result is incomplete; accept that result if another step gives the verdict."""
    complete = mapping(node, {"id": word("complete", node), "validate": word(_COMPLETE, node)})
    if loop is not None:
        answer = _translate_loop(t, loop, inner, check)
        if not is_last and answer.entries.pop("fail_workflow", None) is not None:
            put(answer, "accept", flag(True, loop))
        put(complete, "on_failure", answer, loop)
    return complete


def _place_beside(where: Where, prefix: str) -> Where:
    """The same context with another prefix for unnamed steps."""
    return replace(where, prefix=prefix, count=0, taken={"measure": 1, "complete": 1})


def _commands_of(t: Translation, node: Mapping, fields: dict[str, Node]) -> list[Node]:
    """The commands of a validation, as steps of a Prodigy file."""
    single = [key for key in ("shell", "command", "claude") if key in fields]
    if len(single) + ("commands" in fields) > 1:
        t.report.error("conflict", "`validate` has more than one check", node, hint="`commands` takes several")
    items = items_of(fields["commands"]) if "commands" in fields else []
    for key in single:
        items.append(mapping(node, {"claude" if key == "claude" else "shell": fields[key]}))
    if "timeout" not in fields:
        return items
    timed: list[Node] = []
    for item in items:
        if isinstance(item, Scalar):
            item = mapping(item, {"claude" if item.text.startswith("/") else "shell": item})
        if isinstance(item, Mapping) and "timeout" not in item.entries:
            entry = (word("timeout", fields["timeout"]), fields["timeout"])
            item = Mapping({**item.entries, "timeout": entry}, item.line, item.column)
        timed.append(item)
    return timed


def _check_threshold(t: Translation, node: Node) -> None:
    """Check that a threshold is a number of percent."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        wrong(t, node, "a number from 0 to 100")


def _read_count(t: Translation, node: Node | None, default: int) -> int:
    """Read a number of attempts."""
    if node is None:
        return default
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1_000:
        wrong(t, node, "a whole number from 1 to 999")
        return default
    return value


def _is_false(t: Translation, node: Node | None) -> bool:
    """Is the value of a key `false`?"""
    if node is None:
        return False
    if not isinstance(node, Scalar) or not isinstance(node.value, bool):
        wrong(t, node, "true or false")
    return isinstance(node, Scalar) and node.value is False


def _translate_loop(t: Translation, node: Node, inner: Where, check: _Check) -> Mapping:
    """Translate `on_incomplete`: its commands, then the check again, up to `max_attempts` times."""
    fields: dict[str, Any] = {"commands": node}
    if isinstance(node, Mapping):
        fields = read_mapping(t, node, ON_INCOMPLETE)
    items: list[Node] = []
    if "commands" in fields:
        items += items_of(fields["commands"])
    single = {key: fields[key] for key in ("shell", "claude") if key in fields}
    items += [mapping(node, {key: value}) for key, value in single.items()]
    if not items:
        t.report.error("value", "`on_incomplete` has no command", node)
    if single and "commands" in fields:
        t.report.error("conflict", "`commands` and a command both say what runs", node)
    if "commit_required" in fields:
        entry = (word("commit_required", fields["commit_required"]), fields["commit_required"])
        items = [
            Mapping({"commit_required": entry, **item.entries}, item.line, item.column)
            if isinstance(item, Mapping)
            else item
            for item in items
        ]
    where = inner.inner("on_incomplete", in_handler=True)
    made = t.translate_steps(items, where)
    again = check.make_steps(_place_beside(where, "check"), is_repeated=True)
    out = mapping(node, {"commands": sequence([*made, *again], node)})
    put(out, "max_attempts", number(_read_count(t, fields.get("max_attempts"), ATTEMPTS_DEFAULT) + 1, node))
    _set_last_answer(out, _is_false(t, fields.get("fail_workflow")), node)
    return out


def _set_last_answer(out: Mapping, is_accepted: bool, at: Place) -> None:
    """Set how an incomplete result counts when all attempts are used up."""
    put(out, "accept" if is_accepted else "fail_workflow", flag(True, at))


def _translate_own_handler(
    t: Translation, node: Node, inner: Where, check: _Check, out: Mapping, loop: Node | None
) -> Node:
    """Translate the step's own `on_failure`; another execution runs the command and its check again."""
    if isinstance(node, Scalar) and not isinstance(node.value, str):
        return mapping(node, {"accept": flag(True, node)})
    made = translate_handler(t, node, inner)
    answer = made if isinstance(made, Mapping) else mapping(node, {"commands": made})
    commands = value_of(answer, "commands")
    for key in ("max_attempts", "max_retries"):
        if key in out.entries and key not in answer.entries:
            answer.entries[key] = out.entries[key]
    attempts = value_of(answer, "max_attempts") or value_of(answer, "max_retries")
    if isinstance(commands, Sequence) and attempts is not None:
        where = inner.inner("on_failure", in_handler=True)
        commands.items += [_repeat_action(out, "again")] if check.commands else []
        commands.items += check.make_steps(_place_beside(where, "check"), is_repeated=True)
        if loop is not None:
            commands.items.append(_make_completion_step(t, check.at, loop, where, check, is_last=False))
    stays = value_of(answer, "fail_workflow")
    if not (isinstance(stays, Scalar) and stays.value is True):
        answer.entries.pop("fail_workflow", None)
        put(answer, "accept", flag(True, node))
    return answer


def _repeat_action(out: Mapping, name: str) -> Mapping:
    """Make a step that repeats the action of a native step."""
    kept = {key: entry for key, entry in out.entries.items() if key in (*_NATIVE_ACTIONS, *_REPEATED)}
    return Mapping({"id": (word("id", out), word(name, out)), **kept}, out.line, out.column)


def translate_goal_seek(t: Translation, node: Node, where: Where, out: Mapping) -> str:
    """Add the action that `goal_seek` tries; return its kind, or an empty text if it has none."""
    fields = read_mapping(t, node, GOAL_SEEK)
    given = [key for key in ("shell", "claude") if key in fields]
    if len(given) != 1 or "validate" not in fields:
        if isinstance(node, Mapping):
            t.report.error("value", "`goal_seek` needs `validate`, and `shell` or `claude`", node)
        return ""
    written = t.rewrite_shell(fields["shell"], where) if given == ["shell"] else t.rewrite_text(fields["claude"], where)
    put(out, "shell" if given == ["shell"] else "agent", written, fields[given[0]])
    if "timeout_seconds" in fields:
        put(out, "timeout", fields["timeout_seconds"])
    return given[0]


def make_goal_steps(t: Translation, node: Mapping, inner: Where, out: Mapping) -> list[Node]:
    """Make the steps that check `goal_seek`, and the tries after the first."""
    fields = {key: value for key, (_, value) in node.entries.items()}
    if "validate" not in fields:
        return []
    threshold = fields.get("threshold", number(THRESHOLD_DEFAULT, node))
    _check_threshold(t, threshold)
    check = _Check(t, node, [mapping(node, {"shell": fields["validate"]})], None, threshold)
    where = inner.inner("on_failure", in_handler=True)
    tries = _read_count(t, fields.get("max_attempts"), TRIES_DEFAULT)
    complete = mapping(node, {"id": word("complete", node), "validate": word(_COMPLETE, node)})
    again = [_repeat_action(out, "try"), *check.make_steps(_place_beside(where, "check"))]
    loop = mapping(node, {"commands": sequence(again, node)})
    put(loop, "max_attempts", number(tries, node))
    _set_last_answer(loop, _is_false(t, fields.get("fail_on_incomplete")), node)
    is_single = tries == 1
    answer = mapping(node, {"accept": flag(True, node)}) if "accept" in loop.entries else None
    if not is_single:
        answer = loop
    if answer is not None:
        put(complete, "on_failure", answer, node)
    return [*check.make_steps(_place_beside(inner, "check")), complete]
