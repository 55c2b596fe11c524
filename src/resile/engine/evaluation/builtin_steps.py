"""Steps that run inside the engine, and the transforms and checks of every step's output.

    perform(job, step, at)       Script, Memory, Collect: an outcome, without a process; Ask: a question that waits
    complete(job, step, outcome) the value of an attempt: parsed -> template -> code -> schema -> checks

A problem in code or in a template fails the attempt: `exit` for a script that threw, `contract` for a value
that breaks a promise, `check` for a condition that does not hold. A condition that can't be evaluated does not hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import msgspec
from msgspec.structs import replace

from resile.engine.evaluation.schemas import unmet
from resile.languages.contract import render_data, render_text
from resile.languages.liquid.javascript import LiquidCode
from resile.languages.liquid.scope import LiquidScope, failed_value, is_plain_output
from resile.languages.liquid.templates import render, value_of
from resile.languages.references import ValueRefused
from resile.model.builtin_actions import Ask, Check, Collect, Computed, Memory, Script, Transform
from resile.model.failure import QUESTION, Failure, Kind, Outcome, contract_failure
from resile.model.limits import MESSAGE_CHARACTERS_MAX
from resile.model.status import COMPLETED, DISABLED

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.engine.evaluation.values import Values
    from resile.model.workflow import Step

_LAST_LINES_MAX = 1_000
_NO_LIST = "gave nothing to run for: its output must be a list, or one item"


class Broken(Exception):
    """The attempt failed with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class BuiltinSteps:
    """Evaluates steps for the jobs of one run; it fetches the sandbox only when there is code to run."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._scope = LiquidScope(values)
        self._code = LiquidCode(values)

    def perform(self, job: Job, step: Step, at: float) -> Outcome:
        """Evaluate a step that needs no process; return its outcome."""
        action = step.action
        try:
            match action:
                case Script():
                    outcome = self._script(job, action, at)
                case Memory():
                    outcome = self._memory(job, action, at)
                case Collect():
                    found, absent = self._collect(job, action.values, at)
                    return Outcome(0, values=found, remarks=absent)
                case Ask():
                    question = render_text(action.question, self._values.of(job)).strip()
                    message = f"waits for an answer: {question}"[:MESSAGE_CHARACTERS_MAX]
                    return Outcome(failure=Failure(Kind.CONTRACT, message, signature=QUESTION))
                case _:
                    raise AssertionError(f"{type(action).__name__} steps run elsewhere")
        except Broken as broken:
            return self.failure_outcome(step, broken.failure)
        except ValueRefused as problem:
            return self.failure_outcome(step, _contract(str(problem)))
        return self.complete(job, step, outcome, outcome.values["value"], at)

    def complete(self, job: Job, step: Step, outcome: Outcome, value: Any, at: float) -> Outcome:
        """The outcome with the step's value, or with a failure if the value misses the transform, the schema or a
        check.
        """
        text = value if isinstance(value, str) and is_plain_output(step) else ""
        try:
            if step.transform is not None:
                value = self._transform(job, step, step.transform, value, at)
            outcome = replace(outcome, values={capture.name: value for capture in step.capture})
            remarks = [remark for check in step.checks if (remark := self._run_check(job, check, value, text, at))]
        except Broken as broken:
            return replace(outcome, failure=broken.failure)
        except ValueRefused as problem:
            return replace(outcome, failure=_contract(str(problem)))
        return replace(outcome, remarks=(*outcome.remarks, *remarks)) if remarks else outcome

    def failure_outcome(self, step: Step, failure: Failure) -> Outcome:
        """The outcome of a failure, with the value that other steps see."""
        return Outcome(1, failure, values=dict.fromkeys((c.name for c in step.capture), failed_value(failure)))

    def _script(self, job: Job, action: Script, at: float) -> Outcome:
        """Run code that may write to the memory."""
        answer = self._code.run_script(action.code, action.namespace, job, at)
        if answer.problem:
            raise Broken(Failure(Kind.EXIT, answer.problem, 1, signature=f"script: {answer.kind}"))
        gave = answer.value
        memory = self._values.memory.write(job, gave["memory"]) if gave["memory"] else {}
        return Outcome(0, values={"value": gave["value"]}, memory=memory, remarks=tuple(gave["log"]))

    def _memory(self, job: Job, action: Memory, at: float) -> Outcome:
        """Perform one operation on the memory."""
        texts = self._values.of(job)
        space = dict(self._values.memory.namespaces(job).get(action.namespace, {}))
        key = render_text(action.key, texts)
        given: Any = None
        if action.code:
            given = self._value(job, action.code, at, "value_js")
        elif action.value is not None:
            given = render_data(action.value, texts)
        result: Any = None
        match action.operation:
            case "get":
                return Outcome(0, values={"value": space.get(key)})
            case "list":
                return Outcome(0, values={"value": sorted(space)})
            case "set":
                space[key] = result = given
            case "append":
                old = space.get(key, [])
                space[key] = result = [*(old if isinstance(old, list) else [old]), given]
            case "increment":
                space[key] = result = _sum_of(key, space.get(key, 0), 1 if given is None else given)
            case "delete":
                result = space.pop(key, None) is not None
            case "clear":
                space = {}
            case _:
                assert_never(action.operation)
        return Outcome(0, values={"value": result}, memory=self._values.memory.write(job, {action.namespace: space}))

    def _collect(self, job: Job, wanted: tuple[Computed, ...], at: float) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Compute the values of a workflow in order; each sees the earlier ones as outputs.

        This is the workflow's `end`: where a step did not complete, a value that can't be computed is null, with a
        remark.
        """
        state = self._values.state
        others = [other for other in state.jobs_in(state.scopes[job.scope]) if other is not job]
        is_whole = all(other.status in (COMPLETED, DISABLED) for other in others)
        found: dict[str, Any] = {}
        remarks: list[str] = []
        for computed in wanted:
            try:
                found[computed.name] = self._compute(job, computed, found, at)
            except (Broken, ValueRefused) as problem:
                if is_whole:
                    raise
                found[computed.name] = None
                remarks.append(problem.failure.message if isinstance(problem, Broken) else str(problem))
        return found, tuple(remarks)

    def _compute(self, job: Job, computed: Computed, found: dict[str, Any], at: float) -> Any:
        """One value of a workflow."""
        if computed.code:
            return self._value(job, computed.code, at, computed.name, found)
        variables = self._scope.variables(job)
        outputs = {**dict(variables["outputs"]), **found}
        return _read(value_of(computed.template, {**variables, "outputs": outputs}))

    def _value(self, job: Job, code: str, at: float, what: str, outputs: dict[str, Any] | None = None) -> Any:
        """The value of code that does not write to the memory."""
        answer = self._code.value(what, code, job, at, outputs=outputs)
        if answer.problem:
            raise Broken(Failure(Kind.EXIT, answer.problem, 1, signature=f"{what}: {answer.kind}"))
        return answer.value

    def _transform(self, job: Job, step: Step, transform: Transform, value: Any, at: float) -> Any:
        """The value of a step, made from its output."""
        if transform.first is not None:
            value = self._transform(job, step, transform.first, value, at)
        text, value = value if isinstance(value, str) else "", _parse_output(transform, value)
        if transform.template:
            variables = {**self._scope.variables(job), "output": value, "data": value, "response": value}
            text, value = "", _read(render(transform.template, variables).strip())
        if transform.code:
            answer = self._code.value("transform_js", transform.code, job, at, output=value, text=text)
            if answer.problem:
                raise Broken(_contract(answer.problem))
            value = answer.value
        if transform.schema is not None and (problem := unmet(transform.schema, value)):
            raise Broken(_contract(f"schema: {problem}"))
        return _items(step, value) if transform.as_items else value

    def _run_check(self, job: Job, check: Check, value: Any, text: str, at: float) -> str:
        """Check a condition; return a remark, or an empty text. Raises Broken if the condition fails the attempt."""
        subject = _subject(value)
        more = {"output": subject, "$texts": {"": text} if text else {}, **self._scope.issue_names(job, subject)}
        holds, problem = self._code.check(check.name, check.code, job, at, more)
        if not problem and holds == check.must:
            return ""
        kind = "guarantee" if check.must else "failure condition"
        default = check.message or f"{kind} {'not met' if check.must else 'met'}: {' '.join(check.code.split())}"
        message = (problem or default)[:MESSAGE_CHARACTERS_MAX]
        if check.effect == "remark":
            return f"{check.name}: {message}"
        if check.must:
            raise Broken(_contract(message))
        raise Broken(Failure(Kind.CHECK, message, 0, signature=f"check: {check.name}"))


def _items(step: Step, value: Any) -> list[Any]:
    """The value as a list of items; a text that holds a JSON list counts as that list, even with `parse: text`."""
    read = _read(value)
    if isinstance(read, list):
        return read
    if value is None or value == "":
        raise Broken(_contract(f"{step.name!r} {_NO_LIST}"))
    return [value]


def _contract(message: str) -> Failure:
    return contract_failure(message[:MESSAGE_CHARACTERS_MAX], "value")


def _sum_of(key: str, old: Any, by: Any) -> int | float:
    """The sum of two numbers; raises Broken if one is not a number."""
    for value in (old, by):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Broken(Failure(Kind.EXIT, f"{key!r} can't be incremented: {str(value)[:60]!r} is no number", 1))
    return old + by  # type: ignore[no-any-return]


def _parse_output(transform: Transform, value: Any) -> Any:
    """The output, parsed as JSON where `parse` asks for it."""
    if not isinstance(value, str) or transform.parse == "text":
        return value
    text = value.strip()
    if transform.parse == "last":
        text = text.rpartition("\n")[2]
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        if transform.parse == "json":
            raise Broken(_contract(f"the output is not JSON ({error})")) from error
        return text


def _read(value: Any) -> Any:
    return _parse_output(Transform(), value) if isinstance(value, str) else value


def _subject(value: Any) -> Any:
    """The `output` that conditions see: a list goes into `items`, `issues` always exists, JSON at the end of a text
    counts.
    """
    if isinstance(value, str):
        value = _at_the_end(value)
    if isinstance(value, list):
        return {"items": value, "issues": []}
    return {"issues": [], **(value or {})} if value is None or isinstance(value, dict) else value


def _at_the_end(text: str) -> Any:
    """The JSON object or list with which a text ends, from the beginning of a line on; else the text."""
    lines = text.rstrip().split("\n")
    for number in reversed(range(len(lines))[-_LAST_LINES_MAX:]):
        if lines[number][:1] in ("{", "["):
            read = _read("\n".join(lines[number:]))
            if not isinstance(read, str):
                return read
    return text
