"""Finds the steps whose outputs a step uses: in its texts, code, conditions and arguments, in every language.

    ${steps.build.output}   ${version} (captured by build)   outputs.build, outputs['build']   {{ build.rows }}

A name with a default (`${steps.build.output:-none}`) needs no output; neither do `.status` and `.attempts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from resile.commands.check_expressions import pieces_of
from resile.languages.missing_values import capturers
from resile.languages.references import names, path_of
from resile.languages.registry import language_of

if TYPE_CHECKING:
    from resile.model.workflow import Step, Workflow

# Fields that hold names and not texts; the steps of a child workflow see values of their own.
_NO_TEXTS = frozenset(("name", "origin", "needs", "text", "calls", "target", "tags", "events", "workflow", "file"))
_KNOWN_WITHOUT_RUN = ("status", "attempts")
# The names under which a playbook's step finds the result of the step that led to it.
_LED_HERE = frozenset(("result", "response"))
_IN_CODE = re.compile(
    r"""\b(?:outputs|outputs_history|outputs_raw|steps)\s*(?:(?:\.|\?\.)\s*([\w$-]+)|(?:\?\.)?\[\s*(['"])(.+?)\2)"""
)


class Uses:
    """Finds the steps of one workflow whose outputs others use."""

    def __init__(self, workflow: Workflow) -> None:
        self._language = language_of(workflow)
        self._has_references = workflow.templates == "dollar"
        self._steps = {step.name for step in workflow.steps}
        self._owners = capturers(workflow.steps)
        self._leading: dict[str, set[str]] = {}
        for step in workflow.steps:
            for arc in step.arcs:
                self._leading.setdefault(arc.step, set()).add(step.name)

    def of_step(self, step: Step) -> set[str]:
        """The steps whose output a step, or a step inside it, uses."""
        found = {name for text in texts_of(step) for name in self.of_text(text, step)}
        for piece in pieces_of(step):
            found |= _in_code(piece.code)
        return (found & self._steps) - {step.name}

    def of_text(self, text: str, step: Step) -> set[str]:
        """The steps whose output one text of a step uses."""
        found = {name for name in map(self._step_of, (name for name, _ in names(text))) if name in self._steps}
        if self._has_references:
            return found
        used = self._language.names_in(text)
        found |= {*used, *(other for alias, other in step.aliases.items() if alias in used)}
        if "outputs" in used or "steps" in used:
            found |= _in_code(text)
        if used & _LED_HERE:
            found |= self._leading.get(step.name, set())
        return found & self._steps

    def _step_of(self, name: str) -> str:
        """The step whose output a reference uses; empty if it uses none."""
        path = path_of(name)
        if ":-" in name or (path[0] == "steps" and path[2:3] and path[2] in _KNOWN_WITHOUT_RUN):
            return ""
        if path[0] == "steps":
            return str(path[1]) if len(path) > 1 else ""
        # The values of a map stand under its own name.
        return self._owners.get(str(path[0])) or (str(path[0]) if len(path) > 1 else "")


def _in_code(code: str) -> set[str]:
    """The steps that code names."""
    return {match[1] or match[3] for match in _IN_CODE.finditer(code)}


def texts_of(step: Step) -> Iterator[str]:
    """Every text of a step and of the steps inside it, except those of a child workflow."""
    yield from _texts(msgspec.to_builtins(step))


def _texts(data: Any) -> Iterator[str]:
    """The texts in data; an argument that is another step's value counts as a reference to it."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        if isinstance(data.get("step"), str):
            # The list of a fan-out.
            yield _reference(data["step"])
        for key, value in data.items():
            if key not in _NO_TEXTS:
                yield from _texts(value)
    elif isinstance(data, list | tuple):
        if len(data) == 2 and data[0] == "step" and isinstance(data[1], str):
            yield _reference(data[1])
        elif len(data) > 1 and data[1] == "jinja" and isinstance(data[0], str) and "{" not in data[0]:
            # A condition of a playbook may stand without its braces.
            yield f"{{{{ {data[0]} }}}}"
        for value in data:
            yield from _texts(value)


def _reference(step: str) -> str:
    return f"${{steps['{step}'].output}}"
