"""Writes a step of the model as a mapping of native keys, without default values.

    Writer.steps(scope)  ->  a list if each step follows its predecessor, else a mapping with `needs`
    Writer.step          ->  action, edges, limits, values, rules: in the order of the reference page

A step inside another inherits its environment, folder and shell, so only differences are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from resile.dialects.native.graph.routes import STRING_LITERAL, remedies_among
from resile.dialects.native.keys.steps import AS_READ, RESOURCES, STEP
from resile.dialects.native.step_types.builtin import ASK_RULE
from resile.dialects.native.step_types.commands import has_several_lines
from resile.dialects.native.step_types.contract import Inherited
from resile.dialects.native.step_types.registry import BY_STRUCT
from resile.dialects.native.writer import values
from resile.dialects.native.writer.rules import escalation_of, rules_in_full, short_keys_for, success_keys_for
from resile.dialects.native.writer.yaml import Block
from resile.dialects.reading.key_tables import Table
from resile.errors import Diagnostic
from resile.model.builtin_actions import Ask
from resile.model.fanout import Source
from resile.model.nested import handler_steps
from resile.model.rules import Match, Origin
from resile.model.workflow import Action, Arc, FanOut, Function, Need, Noop, Rule, Shell, Step, Validate, Workflow


class Writer:
    """Writes the steps of one workflow.

    The rules of steps in `in_full` are written rule by rule; with None, those of all steps. `findings` become comments
    at the closest step at or above their line in the old file.
    """

    def __init__(
        self,
        in_full: frozenset[int] | None,
        findings: Sequence[Diagnostic],
        workflow: Workflow,
        write_workflow: Callable[[Workflow, Writer], Block],
    ) -> None:
        self.in_full = in_full
        # Do commands of several lines stop at the first that fails, where their step does not say it?
        self.errexit = True
        self._write_workflow = write_workflow
        self.findings = findings
        self.handlers = workflow.failure_handlers
        self._notes: dict[Origin, list[str]] = {}
        places = sorted({step.origin for step in _all_steps(workflow)}, key=lambda place: (place.line, place.column))
        for finding in findings:
            if finding.file == workflow.file and finding.severity != "error":
                before = [place for place in places if place.line <= finding.line]
                self._notes.setdefault(before[-1] if before else Origin(), []).append(finding.message)

    def fields(self, value: Struct, known: Table, *only: str) -> dict[str, Any]:
        """Write the fields of a model value that differ from their defaults, by the rows of its table."""
        return values.written_fields(value, known, *only)

    def workflow(self, workflow: Workflow) -> Block:
        """Write an inline workflow."""
        return self._write_workflow(workflow, self)

    def left_over(self) -> tuple[str, ...]:
        """Comments that belong to no step."""
        return tuple(note for notes in self._notes.values() for note in notes)

    def steps(self, steps: tuple[Step, ...], end: Step | None, around: Inherited) -> Any:
        """Write the steps of a scope."""
        is_list = _is_list(steps)
        placed = list(_in_order(steps)) if is_list else [(step, step.needs) for step in steps]
        odd = _explicit_called_only(placed)
        implicit = Step(name="end", action=Noop())
        last = [("end", end)] if end is not None and replace(end, origin=Origin()) != implicit else []
        if is_list:
            return [
                *(
                    self._write_step(step, _id_unless(step.name, f"step-{place}"), needs, odd, around)
                    for place, (step, needs) in enumerate(placed, 1)
                ),
                *(self._write_step(step, {"id": name}, (), odd, around) for name, step in last),
            ]
        written = {step.name: self._write_step(step, {}, needs, odd, around) for step, needs in placed}
        return written | {name: self._write_step(step, {}, (), odd, around) for name, step in last}

    def _write_step(
        self, step: Step, name: dict[str, str], needs: tuple[Need, ...], odd: dict[str, bool], around: Inherited
    ) -> Block:
        """Write a step of a scope, with its needs."""
        written = self.step(step, around, name, needs)
        if step.name in odd:
            written["called_only"] = odd[step.name]
        return values.under_ir(written, STEP)

    def step(self, step: Step, around: Inherited, name: dict[str, str], needs: tuple[Need, ...] = ()) -> Block:
        """Write the keys of a step."""
        inherited = around
        inherits = around.env.items() <= step.env.items() and bool(step.working_dir or not around.working_dir)
        if not inherits:
            inherited = Inherited()
        inner = Inherited(_program(step, inherited), step.env, step.working_dir)
        written = Block(name)
        written.notes = tuple(self._notes.pop(step.origin, ()))
        written |= self._action(step.action, inner)
        if inner.program != inherited.program:
            written["shell_program"] = inner.program
        errexit = errexit_of(step.action)
        if errexit is not None and errexit is not self.errexit:
            written["errexit"] = errexit
        if not inherits:
            written["inherit"] = False
        written |= _edges(step, needs)
        env = {name: value for name, value in step.env.items() if inherited.env.get(name) != value}
        written |= {"env": env} if env else {}
        if step.working_dir != inherited.working_dir:
            written["working_dir"] = step.working_dir
        written |= _values(step)
        written |= self._ladder(step, inner)
        if step.on_success is not None:
            written["on_success"] = success_keys_for(
                step.on_success, lambda steps, word: self.commands(steps, word, inner)
            )
        return written

    def _action(self, action: Action, inner: Inherited) -> dict[str, Any]:
        """Write the keys that describe the action of a step."""
        kind = BY_STRUCT[type(action)]
        word = kind.key.name
        if kind.write is not None:
            written = kind.write(action, self, inner)
        else:
            written = {
                word: values.written_fields(action, kind.keys) if kind.keys is not None else values.plain(action)
            }
        return {**written, word: values.short_form(written[word], kind.short)} if kind.short else written

    def commands(self, steps: tuple[Step, ...], word: str, around: Inherited) -> list[Any]:
        """Write the commands of a handler; one with only `shell` becomes a text."""
        written: list[Any] = []
        for place, step in enumerate(steps, 1):
            keys = values.under_ir(self.step(step, around, _id_unless(step.name, f"{word}-{place}")), STEP)
            is_text = keys.keys() == {"shell"} and not keys.notes and not keys["shell"].startswith("/")
            written.append(keys["shell"] if is_text else keys)
        return written

    def _ladder(self, step: Step, inner: Inherited) -> dict[str, Any]:
        """Write the rules of a step, with its resources; a question waits by itself."""
        if step.rules and isinstance(step.action, Ask) and step.rules[0].text == ASK_RULE:
            step = replace(step, rules=step.rules[1:])
        resources: dict[str, Any] = {}
        if step.resources is not None:
            resources = values.written_fields(step.resources, RESOURCES)
            if step.resources.memory_auto:
                resources["memory"] = "auto"
            if resources.pop("enforce", None) is None and "memory" in resources:
                resources["enforce"] = False

        def commands(steps: tuple[Step, ...], word: str) -> list[Any]:
            return self.commands(steps, word, inner)

        written: dict[str, Any] = {"resources": resources} if step.resources is not None else {}
        is_plain = self.in_full is None or id(step) in self.in_full
        if not is_plain and step.rules:
            rules, handler = self._take_out_handler(step.rules)
            grown = next((rule for rule in rules if escalation_of(rule) is not None), None)
            if grown is not None and resources:
                rules.remove(grown)
                written["resources"] = {**resources, "escalate": escalation_of(grown)}
            short = short_keys_for(rules, commands)
            if short is not None:
                return written | ({"failure_handler": handler} if handler else {}) | short
            written = {"resources": resources} if step.resources is not None else {}
        if step.rules:
            written["rules"] = rules_in_full(step.rules, commands)
        return written

    def _take_out_handler(self, rules: tuple[Rule, ...]) -> tuple[list[Rule], str]:
        """Split off the rules of a failure handler; return the other rules and the handler's name."""
        for name, handed in self.handlers.items():
            texts = [rule.text for rule in handed]
            if handed and [rule.text for rule in rules if rule.text in texts] == sorted(
                texts, key=lambda text: handed[texts.index(text)].match == Match()
            ):
                return [rule for rule in rules if rule.text not in texts], name
        return list(rules), ""


def has_condition(step: Step) -> bool:
    """Has a step, or one inside it, a condition on itself or on an arc?"""
    inner = step.action.steps if isinstance(step.action, FanOut) else ()
    return (
        step.when is not None
        or any(arc.when is not None for arc in step.arcs)
        or any(map(has_condition, (*inner, *handler_steps(step))))
    )


def _id_unless(name: str, default: str) -> dict[str, str]:
    return {} if name == default else {"id": name}


def errexit_of(action: Action) -> bool | None:
    """Does a command of several lines stop at the first that fails? None for any other action."""
    command = action.source if isinstance(action, FanOut) else action
    if isinstance(command, Shell | Validate | Source) and has_several_lines(command.command):
        return command.errexit
    return None


def _program(step: Step, around: Inherited) -> str:
    """The shell of a step and of the steps inside it."""
    match step.action:
        case Shell(program=program) | Validate(program=program):
            return program
        case FanOut(source=source) if source.command:
            return source.program
    return around.program


def _edges(step: Step, needs: tuple[Need, ...]) -> dict[str, Any]:
    """Write needs, arcs, condition and time limits of a step."""
    written: dict[str, Any] = {}
    if needs:
        written["needs"] = [values.need(each) for each in needs]
    if step.arcs:
        arcs = [_arc(arc) for arc in step.arcs]
        written["next"] = {"mode": "first", "arcs": arcs} if step.arcs_mode == "first" else arcs
    return written | values.written_fields(step, STEP, "join", "when", "timeout_seconds", "grace_seconds")


def _arc(arc: Arc) -> Any:
    """Write one arc; just a name if it has no condition and no arguments."""
    if arc.when is None and not arc.args:
        return arc.step
    when = {"when": values.condition(arc.when)} if arc.when is not None else {}
    return {"step": arc.step, **when, **({"args": arc.args} if arc.args else {})}


def _values(step: Step) -> dict[str, Any]:
    """Write captures, checks, declared outputs and flags of a step."""
    written: dict[str, Any] = {}
    if len(step.capture) == 1 and step.capture[0].form == "text":
        written["capture"] = step.capture[0].name
    elif step.capture and not isinstance(step.action, Function):
        written["capture"] = {capture.name: capture.form for capture in step.capture}
    written |= values.written_fields(step, STEP, "transform", "checks", "cases", "effects", "args", "aliases")
    if step.reads:
        written["reads"] = values.one_or_list(step.reads)
    if step.outputs:
        written["outputs"] = values.one_or_list(step.outputs)
    if step.runs_on:
        written["runs_on"] = values.one_or_list(step.runs_on)
    # What is written already keeps its place.
    written |= values.written_fields(step, STEP, *(field for field in AS_READ if field != "capture"))
    return written | ({"rerun_on_loss": "never"} if step.on_loss == "park" else {})


def _in_order(steps: tuple[Step, ...]) -> Iterator[tuple[Step, tuple[Need, ...]]]:
    """The steps of a list, with the needs that list order does not imply."""
    before = ""
    for step in steps:
        follows = before and step.needs[:1] == (Need((before,), True),)
        yield step, step.needs[1:] if follows and not step.called_only else step.needs
        before = before if step.called_only else step.name


def _is_list(steps: tuple[Step, ...]) -> bool:
    """Does list order imply at least one need of every step but the first?"""
    before, count = "", 0
    for step in steps:
        if step.called_only:
            continue
        if before and step.needs[:1] != (Need((before,), True),) and (before,) not in (n.any_of for n in step.needs):
            return False
        if not before and step.needs:
            return False
        before, count = step.name, count + 1
    return count > 1 or len(steps) == 1


def _explicit_called_only(placed: list[tuple[Step, tuple[Need, ...]]]) -> dict[str, bool]:
    """Steps whose `called_only` value cannot be inferred from the references to them."""
    called = frozenset(name for step, _ in placed for name in _called_by(step))
    edges = {
        step.name: frozenset([name for each in needs for name in each.any_of] + [arc.step for arc in step.arcs])
        for step, needs in placed
    }
    known = remedies_among(called & edges.keys(), edges)
    return {step.name: step.called_only for step, _ in placed if step.called_only != (step.name in known)}


def _called_by(step: Step) -> Iterator[str]:
    """The names that a step, its handlers and their code call."""
    for caller in (*(rule.repair for rule in step.rules), step.on_success):
        if caller is not None:
            yield from caller.calls
            yield from (found for _, found in re.findall(STRING_LITERAL, caller.calls_js))
    for inner in handler_steps(step):
        yield from _called_by(inner)


def _all_steps(workflow: Workflow) -> Iterator[Step]:
    """The steps of a workflow and of its items; findings in handlers belong to the step of the handler."""
    steps = [*workflow.steps, workflow.end]
    while steps:
        step = steps.pop()
        yield step
        if isinstance(step.action, FanOut):
            steps += step.action.steps
