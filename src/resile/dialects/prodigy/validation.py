"""`validate` and `goal_seek`: checks with a threshold, and the loops that run until they pass, as native steps.

    step -> on_success: check, measure, complete, validated
                                          |         |  still incomplete: the step's attempt failed, for its on_failure
                                          +---------+- incomplete: on_incomplete, check, measure, then complete again

`check` are the commands of the validation; their failure is a result like any other. `measure` reads their output and
captures it as `validation`. `complete` fails while the result is below the threshold: its failure rules are the loop. A
result that is still incomplete after them is a failure of the step, which its `on_failure` handles.
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, plain
from resile.dialects.native import nodes
from resile.dialects.prodigy.capture import add_capture
from resile.dialects.prodigy.failures import as_mapping, translate_handler
from resile.dialects.prodigy.keys import GOAL_SEEK, ON_INCOMPLETE, VALIDATE
from resile.dialects.prodigy.variables import StepDraft, Translation, Where, add_defaults
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import wrong

THRESHOLD_DEFAULT = 100
ATTEMPTS_DEFAULT = 2
TRIES_DEFAULT = 5
_COMPLETE = "test ${validation.complete} = true || { echo ${validation.summary} >&2; exit 1; }"
_REPEATED = ("shell", "agent", "write_file", "python", "noop", "map",
             "working_dir", "timeout", "env", "capture", "outputs", "commit_required")  # fmt: skip
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

    def __init__(self, step: StepDraft, at: Mapping, fields: dict[str, Node], commands: list[Node]) -> None:
        self.step = step
        self.t = step.t
        self.at = at
        self.commands = commands
        self.file = fields.get("result_file")
        self.threshold = fields.get("threshold", nodes.node_of(THRESHOLD_DEFAULT, at))
        value = plain(self.threshold)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
            wrong(self.t, self.threshold, "a number from 0 to 100")

    def make_steps(self, where: Where, *, is_repeated: bool = False) -> list[Node]:
        """Make the steps that check and measure; without commands, a repeated check runs the step's own action."""
        beside = replace(where, prefix="check", count=0, taken={"measure": 1, "complete": 1})
        made = self.t.translate_steps(self.commands, beside)
        if is_repeated and not self.commands:
            made = [self.repeat_action("check")]
        for number_, step in enumerate(made):
            if isinstance(step, Mapping):
                _capture_result(step, is_later=number_ > 0)
        inputs = {
            "text": "${validation_text}" if made else "",
            "code": "${validation_code}" if made else 0,
            "file": "" if self.file is None else self.t.rewrite_text(self.file, where),
            "threshold": self.threshold,
        }
        program = {"source": MEASURE, "inputs": inputs}
        return [*made, nodes.node_of({"id": "measure", "python": program, "capture": {"validation": "json"}}, self.at)]

    def make_verdict(self, name: str, answer: Node | None) -> Node:
        """Make the step that fails while the result is incomplete, and what answers its failure."""
        return nodes.Part(self.at, id=name, validate=_COMPLETE, on_failure=answer).to_node()

    def repeat_action(self, name: str) -> Mapping:
        """Make a step that repeats the action of the native step."""
        out = self.step.out
        kept = {key: entry for key, entry in out.entries.items() if key in _REPEATED}
        return Mapping({"id": (nodes.word("id", out), nodes.word(name, out)), **kept}, out.line, out.column)


def _capture_result(step: Mapping, *, is_later: bool) -> None:
    """Let a command of a check capture its output and exit code; those after a failed one are skipped."""
    add_capture(step, step, {"validation_text": "text", "validation_code": "exit_code"})
    if nodes.is_null(nodes.value_of(step, "on_failure")):
        nodes.put(step, "on_failure", nodes.node_of({"accept": True}, step), step)
    if is_later:
        condition = nodes.text_in(nodes.value_of(step, "when"))
        passed = "${validation_code} == 0"
        nodes.put(step, "when", nodes.word(f"{passed} && ({condition})" if condition else passed, step), step)


def make_validation_steps(step: StepDraft, inner: Where) -> list[Node]:
    """Make the steps that follow a step with `validate`."""
    t, node, on_failure = step.t, step.fields["validate"], nodes.value_of(step.node, "on_failure")
    if not isinstance(node, Mapping):
        several = node if isinstance(node, Sequence) else nodes.sequence([nodes.mapping(node, {"shell": node})], node)
        node = nodes.mapping(node, {"commands": several})
    fields = read_mapping(t, node, VALIDATE)
    check = _Check(step, node, fields, _commands_of(t, node, fields))
    if not check.commands and "result_file" not in fields:
        t.report.error("value", "`validate` has neither a command nor a `result_file`", node)
    inner.last = {}
    made = check.make_steps(inner)
    loop = fields.get("on_incomplete")
    accepted = nodes.value_of(loop, "fail_workflow") if isinstance(loop, Mapping) else None
    if _is_off(on_failure) or (accepted is not None and _is_off(accepted)):
        return [*made, check.make_verdict("complete", None if loop is None else _translate_loop(check, loop, inner))]
    assert on_failure is not None
    if loop is not None:
        made.append(check.make_verdict("complete", _translate_first_loop(check, loop, inner)))
    answer = _translate_own_handler(check, on_failure, inner)
    return [*made, check.make_verdict("complete" if loop is None else "validated", answer)]


def _is_off(node: Node | None) -> bool:
    return nodes.is_null(node) or (node is not None and plain(node) is False)


def _commands_of(t: Translation, node: Mapping, fields: dict[str, Node]) -> list[Node]:
    """The commands of a validation, as steps of a Prodigy file."""
    single = [key for key in ("shell", "command", "claude") if key in fields]
    if len(single) + ("commands" in fields) > 1:
        t.report.error("conflict", "`validate` has more than one check", node, hint="`commands` takes several")
    items = list(nodes.items_of(fields["commands"])) if "commands" in fields else []
    items += [nodes.mapping(node, {"claude" if key == "claude" else "shell": fields[key]}) for key in single]
    if "timeout" not in fields:
        return items
    return add_defaults(
        [as_mapping(item) for item in items], nodes.mapping(node, {"timeout": fields["timeout"]}).entries
    )


def _read_count(t: Translation, node: Node | None, default: int) -> int:
    """Read a number of attempts."""
    if node is None:
        return default
    value = plain(node)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1_000:
        wrong(t, node, "a whole number from 1 to 999")
        return default
    return value


def _last_answer(t: Translation, is_fatal: Node | None, at: Place) -> dict[str, Node]:
    """How an incomplete result counts when all attempts are used up: as a failure, or as accepted."""
    if is_fatal is not None and not isinstance(plain(is_fatal), bool):
        wrong(t, is_fatal, "true or false")
    return {"accept" if is_fatal is not None and plain(is_fatal) is False else "fail_workflow": nodes.node_of(True, at)}


def _translate_loop(check: _Check, node: Node, inner: Where) -> Mapping:
    """Translate `on_incomplete`: its commands, then the check again, up to `max_attempts` times."""
    t = check.t
    fields = read_mapping(t, node, ON_INCOMPLETE) if isinstance(node, Mapping) else {"commands": node}
    items = list(nodes.items_of(fields["commands"])) if "commands" in fields else []
    single = [nodes.mapping(node, {key: fields[key]}) for key in ("shell", "claude") if key in fields]
    items += single
    if not items:
        t.report.error("value", "`on_incomplete` has no command", node)
    if single and "commands" in fields:
        t.report.error("conflict", "`commands` and a command both say what runs", node)
    if "commit_required" in fields:
        items = add_defaults(items, nodes.mapping(node, {"commit_required": fields["commit_required"]}).entries)
    where = inner.inner("on_incomplete", in_handler=True)
    commands = nodes.sequence([*t.translate_steps(items, where), *check.make_steps(where, is_repeated=True)], node)
    attempts = nodes.node_of(_read_count(t, fields.get("max_attempts"), ATTEMPTS_DEFAULT) + 1, node)
    last = _last_answer(t, fields.get("fail_workflow"), node)
    return nodes.mapping(node, {"commands": commands, "max_attempts": attempts, **last})


def _translate_first_loop(check: _Check, node: Node, inner: Where) -> Mapping:
    """Translate `on_incomplete` where another step gives the verdict: accept a result that stays incomplete."""
    answer = _translate_loop(check, node, inner)
    if answer.entries.pop("fail_workflow", None) is not None:
        nodes.put(answer, "accept", nodes.node_of(True, node))
    return answer


def _translate_own_handler(check: _Check, node: Node, inner: Where) -> Node | None:
    """Translate the step's own `on_failure` for its verdict.

    None where that runs the step again, or lets it fail: a failed verdict is then a failure of the attempt, which the
    rules of the step answer.
    """
    if isinstance(node, Scalar) and not isinstance(node.value, str):
        return nodes.node_of({"accept": True}, node)
    made = translate_handler(check.t, node, inner)
    answer = made if isinstance(made, Mapping) else nodes.mapping(node, {"commands": made})
    stays = nodes.value_of(answer, "fail_workflow")
    runs_again = "max_attempts" in answer.entries or "max_attempts" in check.step.out.entries
    if runs_again or (stays is not None and plain(stays) is True):
        return None
    answer.entries.pop("fail_workflow", None)
    nodes.put(answer, "accept", nodes.node_of(True, node))
    return answer


def add_goal_seek(step: StepDraft) -> str:
    """Add the action that `goal_seek` tries; return its kind, or an empty text if it has none."""
    t, node = step.t, step.fields["goal_seek"]
    fields = read_mapping(t, node, GOAL_SEEK)
    given = [key for key in ("shell", "claude") if key in fields]
    if len(given) != 1 or "validate" not in fields:
        if isinstance(node, Mapping):
            t.report.error("value", "`goal_seek` needs `validate`, and `shell` or `claude`", node)
        return ""
    if given == ["shell"]:
        nodes.put(step.out, "shell", t.rewrite_shell(fields["shell"], step.where))
    else:
        nodes.put(step.out, "agent", t.rewrite_text(fields["claude"], step.where))
    if "timeout_seconds" in fields:
        nodes.put(step.out, "timeout", fields["timeout_seconds"])
    return given[0]


def make_goal_steps(step: StepDraft, inner: Where) -> list[Node]:
    """Make the steps that check `goal_seek`, and the tries after the first."""
    t, node = step.t, step.node.entries["goal_seek"][1]
    assert isinstance(node, Mapping)
    fields = {key: value for key, (_, value) in node.entries.items() if key != "result_file"}
    if "validate" not in fields:
        return []
    check = _Check(step, node, fields, [nodes.mapping(node, {"shell": fields["validate"]})])
    tries = _read_count(t, fields.get("max_attempts"), TRIES_DEFAULT)
    again = [check.repeat_action("try"), *check.make_steps(inner.inner("on_failure", in_handler=True))]
    last = _last_answer(t, fields.get("fail_on_incomplete"), node)
    answer = nodes.mapping(
        node, {"commands": nodes.sequence(again, node), "max_attempts": nodes.node_of(tries, node), **last}
    )
    if tries == 1:
        answer = nodes.mapping(node, last)
    is_answered = tries > 1 or "accept" in last
    return [*check.make_steps(inner), check.make_verdict("complete", answer if is_answered else None)]
