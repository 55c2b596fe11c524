"""`run --dry-run`: the order of the steps, and what each would run; nothing runs and nothing is written.

    workflow --> groups: a step comes one group after the last step that it waits for
             --> texts: rendered with the values that are known before the run, inputs and environment

A reference stays as it is written if only the run knows its value. Native texts keep single references; a text of
another language stays whole if it uses such a value. Secrets are `***`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from resile.commands.documents.plan import PlannedStep, RunPlan
from resile.commands.start.notices import warning_lines
from resile.commands.start.prepare import prepare
from resile.core.events import RunStarted
from resile.core.react import react
from resile.core.state import ROOT, Job
from resile.engine.env_files import environment_of
from resile.engine.evaluation.values import Values
from resile.engine.secrets import Hidden, load_secrets, values_to_hide
from resile.engine.session import create
from resile.languages.references import MISSING, ValueRefused, path_of
from resile.languages.registry import language_of
from resile.model import codec
from resile.model.workflow import (
    Agent,
    Child,
    FanOut,
    Function,
    Http,
    Python,
    Query,
    Shell,
    Validate,
    WriteFile,
)
from resile.store.memory import MemoryStore

if TYPE_CHECKING:
    from resile.commands.start.call import RunCall
    from resile.core.scheduling.plan import Plan
    from resile.core.state import State
    from resile.model.workflow import Action, Step

# The first names of values that are known before a run.
_KNOWN = frozenset(("inputs", "env", "workflow", "workload", "payload"))
Render = Callable[[str], str]


def dry_run(call: RunCall) -> RunPlan:
    """The plan of a run; raises the errors that `run` would raise before anything runs."""
    loaded, inputs, capacity = prepare(call, None)
    workflow = loaded.workflow
    env = environment_of(workflow, os.environ)
    secrets = load_secrets(workflow, env)
    first = RunStarted(0.0, capacity, inputs)
    store = MemoryStore()
    row, state = create(store, workflow, codec.encode(workflow), first, output="", directory=os.getcwd())
    react(state, first)
    hidden = Hidden(values_to_hide(secrets, env))
    values = Values(store, row, state, {**env, **secrets}, public_env=env, secrets=hidden)
    planner = _Planner(state, values)
    try:
        return RunPlan(
            workflow=workflow.name,
            dialect=workflow.dialect,
            file=workflow.file,
            max_parallel=capacity.parallel,
            inputs=inputs,
            steps=sum(not (step.left_out or step.called_only) for step in workflow.steps),
            groups=[[planner.step_at(number) for number in group] for group in groups_of(state.plan)],
            called=[
                planner.step_at(number)
                for number, step in enumerate(workflow.steps)
                if step.called_only and not step.left_out
            ],
            end=planner.step_at(state.plan.end),
            left_out=[step.name for step in workflow.steps if step.left_out],
            warnings=[*([loaded.taken_for] if loaded.taken_for else []), *warning_lines(loaded.warnings, call.path)],
        )
    finally:
        values.close()


def groups_of(plan: Plan) -> list[list[int]]:
    """The steps in groups: each step one group after the last of those that it waits for, or that lead to it.

    Where arcs make a loop, the step that comes first in the file begins it.
    """
    waits: list[set[int]] = [{plan.index[name] for need in step.needs for name in need.any_of} for step in plan.steps]
    needed = [set(found) for found in waits]
    onward: list[set[int]] = [set(found) for found in plan.dependents]
    for source, step in enumerate(plan.steps):
        for target in (plan.index[arc.step] for arc in step.arcs):
            if target in plan.arc_targets and target != source:
                waits[target].add(source)
                onward[source].add(target)
    steps = [number for number, step in enumerate(plan.steps) if number != plan.end and not step.called_only]
    level = dict.fromkeys(steps, 1)
    ready = [number for number in steps if not waits[number]]
    placed: set[int] = set()
    left = dict.fromkeys(steps)
    while left:
        if not ready:
            # A loop: go on at the first step that waits for no other by `needs`.
            ready = [next((one for one in left if needed[one] <= placed), next(iter(left)))]
        number = ready.pop()
        if number in placed:
            continue
        placed.add(number)
        left.pop(number, None)
        after = level.get(number, 1) + (not plan.steps[number].left_out)
        for other in onward[number]:
            waits[other].discard(number)
            if other in left:
                level[other] = max(level[other], after)
                if not waits[other]:
                    ready.append(other)
    groups: dict[int, list[int]] = {}
    for number in sorted(steps):
        if not plan.steps[number].left_out:
            groups.setdefault(level[number], []).append(number)
    return [groups[key] for key in sorted(groups)]


class _Planner:
    """Describes the steps of one workflow."""

    def __init__(self, state: State, values: Values) -> None:
        self._state = state
        self._values = values
        self._language = language_of(state.workflow)
        self._steps = {step.name for step in state.workflow.steps}
        self._leading: dict[str, list[str]] = {}
        for step in state.workflow.steps:
            for arc in () if step.left_out else step.arcs:
                self._leading.setdefault(arc.step, []).append(step.name)

    def step_at(self, number: int) -> PlannedStep:
        """One step of the workflow."""
        state = self._state
        return self._step(state.plan.steps[number], state.jobs[state.scopes[ROOT].first + number])

    def _step(self, step: Step, job: Job | None, leading: Iterable[str] | None = None) -> PlannedStep:
        """One step; without a job its texts stay as they are written."""
        action = step.action
        inner: list[PlannedStep] = []
        if isinstance(action, FanOut):
            inner = [self._step(one, job, ()) for one in action.steps]
        elif isinstance(action, Child):
            inner = [self._step(one, None, ()) for one in (*action.workflow.steps, action.workflow.end)]
        return PlannedStep(
            step=step.name,
            action=str(action.__struct_config__.tag),
            runs=self._values.redact(_runs(action, self._text(job), self._command(job))),
            needs=["|".join(need.any_of) for need in step.needs],
            arcs_from=list(self._leading.get(step.name, ()) if leading is None else leading),
            when=step.when.source if step.when is not None else None,
            steps=inner,
        )

    def _text(self, job: Job | None) -> Render:
        """Renders a text of a job as far as its values are known."""
        return lambda text: self._render(text, job, lambda known: self._language.render_text(text, known))

    def _command(self, job: Job | None) -> Callable[[str, str], str]:
        """Renders a command of a job as far as its values are known."""
        return lambda text, program: self._render(
            text, job, lambda known: self._language.render_shell(text, known, program)
        )

    def _render(self, text: str, job: Job | None, render: Callable[[Any], str]) -> str:
        """The text with the values that are known now, or as it is written if it can't be rendered."""
        if job is None:
            return text
        visible = self._values.of(job)
        if not self._language.has_references:
            names = self._language.names_in(text)
            known = _KNOWN | self._state.workflow.inputs.keys()
            if not names <= known or names & self._steps:
                return text
        with suppress(ValueRefused):
            return render(_Known(visible) if self._language.has_references else visible)
        return text


class _Known:
    """The references of a job that have a value before the run; the others stay as they are written."""

    def __init__(self, visible: Callable[[str], Any]) -> None:
        self._visible = visible

    def __call__(self, name: str) -> Any:
        """The value of a reference, or MISSING."""
        try:
            return self._visible(name) if str(path_of(name)[0]) in _KNOWN else MISSING
        except ValueRefused:
            return MISSING


def _runs(action: Action, text: Render, command: Callable[[str, str], str]) -> str:
    """What an action runs, as one text."""
    match action:
        case Shell() | Validate():
            return command(action.command, action.program)
        case Agent():
            return f"{' '.join(action.command)} {text(action.prompt)}"
        case Http():
            return f"{action.method} {text(action.url)}"
        case Python():
            return f"python {text(action.file)}" if action.file else action.source
        case Query():
            return f"{action.engine}: {action.file or text(action.statements) or action.table}"
        case WriteFile():
            return f"write {text(action.path)}"
        case Function():
            return f"{action.module or action.file}:{action.name}"
        case Child():
            return f"workflow {action.path}"
        case FanOut():
            return _source(action, text, command)
    fields = (getattr(action, name) for name in action.__struct_fields__)
    return text(next((value for value in fields if isinstance(value, str) and value), ""))


def _source(action: FanOut, text: Render, command: Callable[[str, str], str]) -> str:
    """Where the items of a fan-out come from."""
    source = action.source
    if source.values is not None:
        count = len(source.values)
        return f"for each of {count} item{'' if count == 1 else 's'}"
    if source.command:
        return f"for each item of the command {command(source.command, source.program)}"
    if source.step:
        return f"for each item of the output of {source.step}"
    return f"for each item of {text(source.path or source.template)}"
