"""The command of a step as its fingerprint sees it: all that decides what the step does, with the inputs in place.

    Step, inputs --> data without places, rules, limits and resources --> compared with those of an earlier run

A map or a child workflow is one step: the shapes of the steps inside are part of its own. References to other steps
stay as they are written: if such a step changed, this one runs again anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from resile.commands.changed.helpers import helper_steps
from resile.engine.fingerprints.record import texts_in
from resile.languages.references import MISSING, ValueRefused, path_of, render_text, walk
from resile.model.builtin_actions import Ask, Collect, Log, Memory, Script
from resile.model.workflow import (
    Child,
    Condition,
    FanOut,
    Function,
    Need,
    Shell,
    Step,
    SuccessActions,
    Validate,
    Workflow,
)

# Fields whose values are used unchanged; `run --from` and similar options change other fields.
_PLAIN = ("env", "working_dir", "capture", "transform", "checks", "cases", "effects", "args", "aliases")
_OF_FANOUT = ("source", "scope", "item_name", "isolation", "branch", "merge")


class Shapes:
    """The shapes of the steps of one workflow with these inputs."""

    def __init__(self, workflow: Workflow, inputs: Mapping[str, Any] | None) -> None:
        self._workflow = workflow
        # Other template languages may use inputs in ways that are hidden here, so all inputs count there.
        self._is_dollar = workflow.templates == "dollar"
        self._inputs = inputs if self._is_dollar else None
        self._all_inputs = None if self._is_dollar else inputs
        self._is_torc = workflow.dialect == "torc"

    def command(self, step: Step, helpers: Iterable[str] = ()) -> Any:
        """The shape of a step and of these helpers, without the step's needs."""
        env = self._texts(self._workflow.env)
        called = [[one.name, self._step(one)] for one in self._called_by(step)]
        known = helper_steps(self._workflow) if helpers else {}
        helped = [[name, [self._step(one) for one in known.get(name, ())]] for name in sorted(helpers)]
        return [env, self._all_inputs, self._step(step), called, helped]

    def _called_by(self, step: Step) -> list[Step]:
        """The steps that a step's `on_success` calls, and those that their `on_success` calls in turn."""
        found: dict[str, Step] = {}
        work = [step]
        while work:
            actions = work.pop().on_success
            if actions is None or not (actions.calls or actions.calls_js):
                continue
            # Code may call any of them.
            names = {one.name for one in self._workflow.steps if one.called_only or one.name in actions.calls}
            more = names - found.keys() if actions.calls_js else set(actions.calls) - found.keys()
            found |= {one.name: one for one in self._workflow.steps if one.name in more and one is not step}
            work += [found[name] for name in sorted(more) if name in found]
        return [found[name] for name in sorted(found)]

    def needs(self, step: Step) -> list[Any]:
        """The needs of a step, sorted, so that their order in the file does not matter."""
        return sorted((sorted(need.any_of), need.failure_satisfies) for need in step.needs)

    def text(self, text: str) -> str:
        """A text with the values of inputs."""
        try:
            return render_text(text, self._find) if self._inputs is not None else text
        except ValueRefused:
            return text

    def _find(self, name: str) -> Any:
        """The value of a reference to an input, or to the folder of the file; all others stay."""
        path = path_of(name)
        if path == ("workflow", "folder"):
            return self._workflow.folder
        return walk(dict(self._inputs or {}), path[1:]) if path[0] == "inputs" and len(path) > 1 else MISSING

    def _step(self, step: Step) -> dict[str, Any]:
        """The shape of a step that may be inside another one."""
        plain = {name: self._texts(msgspec.to_builtins(getattr(step, name))) for name in _PLAIN}
        plain["data"] = step.reads_data
        arcs = [[arc.step, _condition(arc.when), self._texts(arc.args)] for arc in step.arcs]
        after = None if step.on_success is None else self._on_success(step.on_success)
        route = [arcs, step.arcs_mode, step.join]
        shape = {**plain, "action": self._action(step), "when": _condition(step.when), "route": route, "after": after}
        return shape if self._inputs is None or not _uses_inputs(step) else {**shape, "inputs": self._inputs}

    def _on_success(self, actions: SuccessActions) -> Any:
        """The shape of `on_success`."""
        goes = [actions.calls, actions.calls_js, actions.target, actions.target_js]
        return [[self._step(step) for step in actions.steps], *goes, msgspec.to_builtins(actions.transitions)]

    def _action(self, step: Step) -> Any:
        """The shape of an action."""
        action = step.action
        if isinstance(action, FanOut):
            fields = {name: self._texts(msgspec.to_builtins(getattr(action, name))) for name in _OF_FANOUT}
            return {**fields, "steps": self._inner(self, action.steps)}
        if isinstance(action, Child):
            # The texts inside see the inputs of the child.
            child = Shapes(action.workflow, None)
            inner = self._inner(child, (*action.workflow.steps, action.workflow.end))
            more = [action.result, action.shares, action.workflow.env, msgspec.to_builtins(action.workflow.inputs)]
            return {"inputs": self._texts(action.inputs), "steps": inner, "more": more}
        if isinstance(action, Shell | Validate):
            stdin = self.text(action.stdin) if isinstance(action, Shell) else ""
            return [type(action).__name__, self._command(action), action.program, stdin, action.errexit]
        return self._texts(msgspec.to_builtins(action))

    @staticmethod
    def _inner(shapes: Shapes, steps: tuple[Step, ...]) -> list[Any]:
        """The shapes of steps inside a step, with their names and needs."""
        return [[step.name, [_need(need) for need in step.needs], shapes._step(step)] for step in steps]

    def _command(self, action: Shell | Validate) -> str:
        """A command with the values of inputs, quoted for their places."""
        command = action.command
        if self._is_torc:
            from resile.dialects.torc.commands import without_surroundings

            command = without_surroundings(command)
        if self._inputs is None or "${" not in command:
            return command
        from resile.languages.shell.quoting import render_shell

        try:
            return render_shell(command, self._find, action.program)
        except ValueRefused:
            return self.text(command)

    def _texts(self, data: Any) -> Any:
        """Data with the values of inputs in its texts."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, Mapping):
            return {name: self._texts(value) for name, value in data.items()}
        return [self._texts(value) for value in data] if isinstance(data, list | tuple) else data


def _uses_inputs(step: Step) -> bool:
    """May a step use inputs where they are not put into texts: in a condition, in code, or as an argument of a call?"""
    action = step.action
    if isinstance(action, Function) and "input" in texts_in(msgspec.to_builtins((action.args, action.kwargs))):
        return True
    code: list[Any] = [_condition(step.when), [_condition(arc.when) for arc in step.arcs]]
    code += [step.transform, step.checks, step.cases, step.effects]
    if step.on_success is not None:
        actions = step.on_success
        code += [actions.calls_js, actions.target_js, actions.transitions]
    if isinstance(action, FanOut):
        code.append(action.source.filter)
    elif isinstance(action, Script | Log | Memory | Ask | Collect):
        code.append(action)
    return any("inputs" in text for text in texts_in(msgspec.to_builtins(code)))


def _need(need: Need) -> list[Any]:
    return [sorted(need.any_of), need.skip_satisfies, need.failure_satisfies]


def _condition(condition: Condition | None) -> Any:
    """A condition without its place in the file."""
    if condition is None:
        return None
    return [condition.source, condition.language, [_condition(one) for one in condition.besides]]
