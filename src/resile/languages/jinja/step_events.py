"""Events of a playbook's steps, the cases that hold at them, and the effects of these cases.

    events of a success   call.done, step.exit, step.done          of a loop as a whole also   loop.done
    events of a failure   call.error, call.done, step.exit, step.failed   (only cases that mention `error` apply)

    at each event the first case that holds counts --> effects (kept with the outcome)   arcs, rules, sinks (`case`)
    event.answered        did a case hold at an earlier event?

A condition with an unknown name does not hold. A case of a loop also holds if it held for one of its items.
Effects are part of the attempt's outcome, so that the memory of a run is in its log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from resile.languages.jinja.loop_results import ASKED_AGAIN, FIRED
from resile.languages.jinja.outcomes import error_of, outcome_of
from resile.languages.jinja.plain_values import as_result, plain_text
from resile.languages.jinja.scope import AGAIN, COLLECTED, ITER, VARS, JinjaNames, JinjaScope
from resile.languages.jinja.templates import Unknown, condition_text, holds, names_in, render_data
from resile.languages.references import MISSING, ValueRefused, walk
from resile.languages.surroundings import host_of
from resile.model.failure import Failure, Kind, Outcome, contract_failure
from resile.model.limits import MESSAGE_CHARACTERS_MAX
from resile.model.workflow import FanOut

if TYPE_CHECKING:
    from resile.core.state import Job
    from resile.languages.contract import Run
    from resile.model.builtin_actions import Effect
    from resile.model.workflow import Arc, Condition, Step

ON_SUCCESS = ("call.done", "step.exit", "step.done")
ON_SUCCESS_OF_LOOP = ("call.done", "step.exit", "loop.done", "step.done")
ON_FAILURE = ("call.error", "call.done", "step.exit", "step.failed")
ON_ENTER = "step.enter"
# Names that exist only at some events; a case may use them at others, too.
_SOMETIMES = frozenset(("event", "error", "response", "result", "data", "page"))
_ANSWERS = "answers"
"""The namespace of the memory for the responses of tools whose result cases have changed."""
_ANSWER = ("response", "page")
_DECIDED = "arcs"
"""The namespace of the memory for the conditions of arcs that were decided before the taken arcs set variables."""
# No name contains a line break, so a name followed by an attempt is never another name.
_ATTEMPT = "\n"
_JUDGING = ("again", "fail")
PAGES_MAX = 10_000
"""The most pages of a step that has no limit of its own."""


class StepEvents:
    """Decides the cases of the steps of one run, and carries out their effects."""

    def __init__(self, run: Run) -> None:
        self._state = run.state
        self._scope = JinjaScope(run)
        self._memory = run.memory

    def names(self, job: Job) -> JinjaNames:
        """The names that a job's texts can use; a job that follows a step sees the result of that step."""
        subject = self._scope.subject_of(job)
        if subject is job:
            return JinjaNames(self._scope, job)
        about = self._names_about(subject)
        own = render_data(self._state.step_of(job).args, JinjaNames(self._scope, job, about).find)
        return JinjaNames(self._scope, job, {**about, **own}, own)

    def holds(self, condition: Condition, job: Job) -> tuple[bool, str]:
        """Does a condition hold, given as text or as the number of a case? And what is its problem?"""
        subject = self._scope.subject_of(job)
        if condition.language == "case":
            return condition.source in self._cases_true(subject), ""
        decided = self._memory.namespaces(subject).get(_DECIDED, {}).get(self._scope.memory_key(subject), {})
        if condition.source in decided:
            return bool(decided[condition.source]), ""
        about = self._names_about(subject)
        if "event" in names_in(condition_text(condition.source)):
            return self._at_some_event(condition.source, subject, about, about), ""
        return self._condition_holds(condition.source, subject, about)

    def arguments_of_arcs(self, job: Job, arcs: list[Arc]) -> dict[str, dict[str, Any]]:
        """The arguments of the taken arcs, by target step; raises ValueRefused."""
        names = JinjaNames(self._scope, job, self._names_about(job))
        return {arc.step: render_data(arc.args, names.find) for arc in arcs if arc.args}

    def enter(self, job: Job, step: Step) -> dict[str, dict[str, Any]]:
        """Set the variables that a step sets at its start; return the changes, for its outcome to record."""
        names = JinjaNames(self._scope, job, {"event": self._event(job, ON_ENTER, {})})
        changed = {one.name: render_data(one.value, names.find) for one in step.effects if one.kind == "enter"}
        return self._memory.write(job, {VARS: {**self._scope.variables(job), **changed}}) if changed else {}

    def conclude(self, job: Job, step: Step, outcome: Outcome) -> Outcome:
        """The outcome of an attempt after the step's cases and effects."""
        try:
            return self._conclude(job, step, outcome)
        except ValueRefused as problem:
            if outcome.failure is not None:
                return outcome
            return replace(outcome, failure=contract_failure(str(problem), "value refused"))

    def _conclude(self, job: Job, step: Step, outcome: Outcome) -> Outcome:
        """Like `conclude`, but raises ValueRefused."""
        pages = any(effect.kind == "again" for effect in step.effects)
        again = self._scope.repeat_settings(job) if pages else None
        keeper = _Keeper(dict(self._scope.variables(job)), again, job.attempt)
        if host_of(self._state, job) is not None:
            keeper.scratch = dict(self._scope.scratch(job))
        before = dict(keeper.variables)
        values, failure = outcome.values, outcome.failure
        value = values.get(step.name)
        seen = self._result_names(value, failure)
        keeper.own = self._scope.own_names(job, values.get(step.name, MISSING), failure)
        events = ON_FAILURE if failure is not None else _events_of_success(step)
        whatever = [
            effect for effect in step.effects if effect.case < 0 and (failure is None or _answers_failure(effect))
        ]
        for effect in whatever:
            if effect.kind not in _JUDGING and not effect.of_arc:
                self._carry_out(job, effect, "step.exit", seen, keeper)
        before_cases = dict(keeper.variables), dict(keeper.scratch or {})
        fired: list[str] = []
        of_arcs: list[tuple[Effect, str]] = [(effect, "step.exit") for effect in whatever if effect.of_arc]
        for event, number in self._cases_fired(job, step, events, {**keeper.own, **seen}):
            fired.append(str(number))
            own = [effect for effect in step.effects if effect.case == number]
            of_arcs += [(effect, event) for effect in own if effect.of_arc]
            for effect in own:
                if not effect.of_arc:
                    self._carry_out(job, effect, event, seen, keeper)
        # The conditions of cases that changed what they depend on would have other answers afterwards.
        keeper.is_settled = keeper.result is not MISSING or (keeper.variables, keeper.scratch or {}) != before_cases
        decided: dict[str, bool] = self._decide_arcs(job, step, seen, outcome.failure, keeper) if of_arcs else {}
        for effect, event in of_arcs:
            self._carry_out(job, effect, event, seen, keeper)
        for effect in whatever:
            if effect.kind in _JUDGING:
                self._carry_out(job, effect, "step.exit", seen, keeper)
        if failure is None:
            if keeper.result is not MISSING:
                values = {**values, step.name: keeper.result}
            failure = keeper.failure
        elif keeper.said:
            failure = replace(failure, message=keeper.said)
            if isinstance(value, dict):
                values = {**values, step.name: {**value, "message": keeper.said}}
        if keeper.scratch is not None:
            values = {**values, ITER: keeper.scratch}
        memory = self._memory.write(job, self._changes(job, step, outcome, keeper, before, fired, decided))
        if fired and self._state.scopes[job.scope].kind == "item":
            # The loop as a whole needs them after its items are dropped.
            values = {**values, FIRED: fired}
        return replace(outcome, values=values, failure=failure, memory={**outcome.memory, **memory})

    def _changes(
        self,
        job: Job,
        step: Step,
        outcome: Outcome,
        keeper: _Keeper,
        before: dict[str, Any],
        fired: list[str],
        decided: dict[str, bool],
    ) -> dict[str, Any]:
        """The changes that the end of an attempt makes to the memory."""
        # The end of the step records the variables that it set at its start.
        sets = any(effect.kind == "enter" for effect in step.effects)
        changed = {VARS: keeper.variables} if keeper.variables != before or sets else {}
        if outcome.failure is not None:
            kept = fired if keeper.said or keeper.is_settled else MISSING
            changed |= self._memory_of(job, FIRED, kept, f"{_ATTEMPT}{job.attempt}")
        else:
            changed |= self._memory_of(job, FIRED, fired if keeper.is_settled else MISSING)
            # Store the response of the tool, if a follower of the step may use it.
            after = repr((step.arcs, step.on_success, step.rules)) if keeper.result is not MISSING else ""
            is_used = any(word in after for word in _ANSWER)
            changed |= self._memory_of(job, _ANSWERS, outcome.values.get(step.name) if is_used else MISSING)
        changed |= self._memory_of(job, _DECIDED, decided or MISSING)
        is_over = outcome.failure is None and keeper.failure is None
        return changed | self._memory_of_repeat(job, keeper, over=is_over)

    def _decide_arcs(
        self, job: Job, step: Step, seen: Mapping[str, Any], failure: Failure | None, keeper: _Keeper
    ) -> dict[str, bool]:
        """Which templates in the conditions of a step's arcs hold, before the taken arcs set variables."""
        if keeper.result is not MISSING and failure is None:
            seen = {**self._result_names(keeper.result, None), **{name: seen[name] for name in _ANSWER}}
            own = self._scope.own_names(job, keeper.result, None)
        else:
            own = keeper.own
        about = {**own, **keeper.variables, **seen, **self._variables_after(job, keeper)}
        about["event"] = self._event(job, "step.exit", seen)
        return {text: self._at_some_event(text, job, about, seen) for text in _templates_of(step)}

    def _variables_after(self, job: Job, keeper: _Keeper) -> dict[str, Any]:
        """The namespaces of the variables after the effects so far."""
        # The workload is the fallback.
        variables = {**dict(self._scope.find("vars", job)), **keeper.variables}
        kept = {"vars": variables, "ctx": keeper.variables}
        if keeper.scratch is not None:
            kept[ITER] = {**self._scope.find(ITER, job), **keeper.scratch}
        return kept

    def _carry_out(self, job: Job, effect: Effect, event: str, seen: Mapping[str, Any], keeper: _Keeper) -> None:
        """Carry out one effect if its conditions hold; it sees the results of the effects before it."""
        if effect.kind == "enter":
            return
        more = {**keeper.own, **keeper.variables, **seen, **self._variables_after(job, keeper)}
        more["event"] = self._event(job, event, seen)
        if effect.kind == "again" and effect.case < 0:
            # The conditions of `retry` compare the error of a success with none.
            more.setdefault("error", None)
        if effect.when and not self._at_some_event(effect.when, job, more, seen):
            return
        if not effect.unless or not self._at_some_event(effect.unless, job, more, seen):
            keeper.keep(effect, render_data(effect.value, JinjaNames(self._scope, job, more).find))

    def _at_some_event(self, text: str, job: Job, more: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
        """Does a condition hold: as it is, or, if it mentions events, at one of the step's events?"""
        if "event" not in names_in(condition_text(text)):
            return self._condition_holds(text, job, more)[0]
        events = ON_FAILURE if "error" in seen else _events_of_success(self._state.step_of(job))
        return any(
            self._condition_holds(text, job, {**more, "event": self._event(job, name, seen)})[0] for name in events
        )

    def conclude_child(self, job: Job, step: Step) -> Outcome:
        """The outcome of a step whose child playbook succeeded."""
        value = self._scope.child_result(job)
        return self.conclude(job, step, Outcome(0, values={} if value is MISSING else {step.name: value}))

    def conclude_loop(self, job: Job, step: Step) -> dict[str, dict[str, Any]]:
        """The changes that a finished loop makes to the memory."""
        value = self._scope.result_of(job)
        failure = job.error.failure if job.error is not None else None
        outcome = Outcome(0, failure, values={} if value is MISSING else {step.name: value})
        return self._conclude(job, step, outcome).memory

    def _memory_of(self, job: Job, namespace: str, value: Any, attempt: str = "") -> dict[str, dict[str, Any]]:
        """Replace the value of a job in a namespace of the memory; MISSING removes it."""
        before, key = self._memory.namespaces(job).get(namespace, {}), self._scope.memory_key(job)
        kept = {name: other for name, other in before.items() if name.partition(_ATTEMPT)[0] != key}
        if value is not MISSING:
            kept[key + attempt] = value
        return {namespace: kept} if kept != before else {}

    def _memory_of_repeat(self, job: Job, keeper: _Keeper, *, over: bool) -> dict[str, dict[str, Any]]:
        """Store the settings of a further attempt; remove them when the step is over."""
        kept = dict(self._memory.namespaces(job).get(AGAIN, {}))
        key, wanted = self._scope.memory_key(job), keeper.again
        if wanted is None and not (over and key in kept):
            return {}
        if wanted is None:
            del kept[key]
        else:
            kept[key] = {**kept.get(key, {}), **wanted, COLLECTED: keeper.pages}
        return {AGAIN: kept}

    def _cases_true(self, job: Job) -> set[str]:
        """The cases that hold for a job in its present state, after a success or a failure."""
        step, error = self._state.step_of(job), job.error
        if error is not None and error.failure.signature.startswith(ASKED_AGAIN):
            return {error.failure.signature.removeprefix(ASKED_AGAIN)}
        key = self._scope.memory_key(job)
        before = self._memory.namespaces(job).get(FIRED, {}).get(f"{key}{_ATTEMPT}{error.attempt}" if error else key)
        if before is not None:
            fired = set(before)
        else:
            seen = self._names_of_result(job, error.failure if error is not None else None)
            events = ON_FAILURE if error is not None else _events_of_success(step)
            fired = {str(number) for _, number in self._cases_fired(job, step, events, seen)}
        return fired | self._scope.loops.came_true(job) if isinstance(step.action, FanOut) else fired

    def _cases_fired(
        self, job: Job, step: Step, events: tuple[str, ...], seen: Mapping[str, Any]
    ) -> Iterator[tuple[str, int]]:
        """The first case that holds, at each event."""
        failed = "error" in seen
        yielded: set[int] = set()
        for event in events:
            more = {**seen, "event": {**self._event(job, event, seen), "answered": bool(yielded)}}
            for number, case in enumerate(step.cases):
                if (case.on_failure or not failed) and self._condition_holds(case.when, job, more)[0]:
                    if number not in yielded:
                        yield event, number
                    yielded.add(number)
                    break

    def _condition_holds(self, text: str, job: Job, more: Mapping[str, Any]) -> tuple[bool, str]:
        """Does a condition hold? One with an unknown name does not; the message says so unless the name is optional."""
        try:
            return holds(text, JinjaNames(self._scope, job, more).find), ""
        except Unknown as problem:
            optional = names_in(condition_text(text)) & _SOMETIMES
            return False, "" if optional else problem.message
        except ValueRefused as problem:
            return False, problem.message

    def _names_about(self, job: Job) -> dict[str, Any]:
        """The names that conditions and arcs of a job can use in addition to its texts."""
        seen = self._names_of_result(job, _failure_of(job))
        answers = self._memory.namespaces(job).get(_ANSWERS, {})
        if "error" not in seen and self._scope.memory_key(job) in answers:
            seen |= dict.fromkeys(_ANSWER, as_result(answers[self._scope.memory_key(job)]))
        return {**seen, "event": self._event(job, "step.exit", seen)}

    def _names_of_result(self, job: Job, failure: Failure | None) -> dict[str, Any]:
        """The names for the result of a job, including its own name."""
        value = self._scope.result_of(job)
        return {
            **self._scope.own_names(job, value, failure),
            **self._result_names(None if value is MISSING else value, failure),
        }

    def _result_names(self, value: Any, failure: Failure | None) -> dict[str, Any]:
        """The names for the result of an attempt."""
        if failure is not None:
            error = error_of(failure)
            seen = {"error": error, "success": False, "status_code": error.status, "result": None, "data": None}
            return {**seen, "outcome": outcome_of(error.status, None, error)}
        whole = as_result(value)
        status = value.get("status_code") if isinstance(value, dict) else None
        gave = dict.fromkeys(("response", "result", "this", "data", "page"), whole)
        return {**gave, "success": True, "status_code": status, "outcome": outcome_of(status, whole, None)}

    def _event(self, job: Job, name: str, seen: Mapping[str, Any]) -> dict[str, Any]:
        step = self._state.step_of(job).name
        payload = {"response": seen.get("response"), "error": seen.get("error")}
        return {"name": name, "step": step, "payload": payload, "timestamp": self._state.last_at}


class _Keeper:
    """Collects the results of an attempt's effects."""

    def __init__(self, variables: dict[str, Any], again: dict[str, Any] | None, attempt: int) -> None:
        self.attempt = attempt
        self.variables = variables
        self.result: Any = MISSING
        self.failure: Failure | None = None
        # Has a case changed what the conditions of the cases depend on?
        self.is_settled = False
        # The step itself, by its name.
        self.own: dict[str, Any] = {}
        # The reason of the failure, given by a case.
        self.said = ""
        self.again: dict[str, Any] | None = None
        # The values that the tools of a pipeline share, if the step is one of them.
        self.scratch: dict[str, Any] | None = None
        # Values collected over several attempts of a step; each visit of the step starts anew.
        self.pages: dict[str, Any] | None = None if again is None else dict(again.get(COLLECTED, {}))

    def keep(self, effect: Effect, value: Any) -> None:
        """Apply one effect."""
        if effect.path:
            value = _part_of(value, effect.path)
        match effect.kind:
            case "result":
                self.result = (self.pages or {}).get(effect.name) if effect.name else value
            case "again":
                if self.again is None:
                    self.again = value or {}
                    which = effect.name or effect.case
                    said = "the result asks for one more attempt"
                    if self.attempt >= PAGES_MAX:
                        said = f"the result asks for one more page, and {PAGES_MAX} are the limit"
                    self.failure = Failure(Kind.CHECK, said, 0, signature=f"{ASKED_AGAIN}{which}")
            case "fail":
                self.said = plain_text(value)[:MESSAGE_CHARACTERS_MAX] or "a case failed the step"
                self.failure = Failure(Kind.CHECK, self.said, 0, signature="check: case")
            case "set" if self.scratch is not None and effect.name.startswith(f"{ITER}."):
                self.scratch[effect.name.removeprefix(f"{ITER}.")] = value
            case _:
                added = self.pages if self.pages is not None and effect.kind != "set" else self.variables
                self.variables[effect.name] = added[effect.name] = _join(effect, added.get(effect.name), value)


def _templates_of(step: Step) -> set[str]:
    """The templates in the conditions of a step's arcs."""
    found: set[str] = set()
    left = [arc.when for arc in step.arcs if arc.when is not None]
    while left:
        condition = left.pop()
        left += condition.besides
        if condition.language == "jinja":
            found.add(condition.source)
    return found


def _answers_failure(effect: Effect) -> bool:
    """Does an effect apply to a failure, because its condition mentions one?"""
    return "step.failed" in effect.when or "error" in names_in(condition_text(effect.when or "true"))


def _failure_of(job: Job) -> Failure | None:
    failure = job.error.failure if job.error is not None else None
    return None if failure is not None and failure.signature.startswith(ASKED_AGAIN) else failure


def _events_of_success(step: Step) -> tuple[str, ...]:
    return ON_SUCCESS_OF_LOOP if isinstance(step.action, FanOut) else ON_SUCCESS


def _part_of(value: Any, path: str) -> Any:
    """A part of a result; of a response, first of its `data`."""
    inner = value.get("data") if isinstance(value, dict) else None
    for whole in (inner, value):
        found = walk(whole, path.split("."))
        if found is not MISSING:
            return found
    raise ValueRefused(f"the result has no {path!r} to collect")


def _join(effect: Effect, old: Any, value: Any) -> Any:
    """The new value: the given one, or its combination with the old one."""
    match effect.kind:
        case "append":
            return [*_as_list(old), *(value if isinstance(value, list) and effect.path else [value])]
        case "extend":
            return [*_as_list(old), *_as_list(value)]
        case "merge":
            if not isinstance(value, dict) or not isinstance(old, dict | None):
                raise ValueRefused(f"{effect.name!r} can't be merged: both must be mappings")
            return {**(old or {}), **value}
    return value


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
