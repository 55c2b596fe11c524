"""Finds secrets that a workflow puts into command lines: every user of the machine can read those in the process list.

curl -H "Authorization: ${env.TOKEN}"     the value is in the text that the shell gets as an argument
curl -H "Authorization: $TOKEN"           the name is; the shell has the value in its environment
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from resile.errors import Diagnostic, shorten
from resile.languages.references import names
from resile.model.nested import handler_steps, workflows_within
from resile.model.rules import Origin
from resile.model.workflow import Agent, FanOut, Shell, Step, Validate, Workflow

_BRACES = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")


def check_secrets(workflow: Workflow) -> list[Diagnostic]:
    """A warning for each secret in a command line of a workflow or of one inside it."""
    flows = list(workflows_within(workflow))
    # The variable that steps have, by each name that a text can use.
    variables: dict[str, str] = {}
    for name, secret in ((name, secret) for flow in flows for name, secret in flow.secrets.items()):
        variable = name if _NAME.fullmatch(name) else secret.env
        variables |= {name: variable, secret.env or name: variable}
    if not variables:
        return []
    return [
        _finding(flow, step.origin, written, variables[name], isinstance(step.action, Agent))
        for flow in flows
        for step in _steps_of((*flow.steps, flow.end))
        for text in _command_lines(step)
        for name, written in _secrets_in(text, variables)
    ]


def _steps_of(steps: tuple[Step, ...]) -> Iterator[Step]:
    """The steps with those of items and of repairs, without those of child workflows."""
    for step in steps:
        yield step
        yield from _steps_of(step.action.steps if isinstance(step.action, FanOut) else ())
        yield from _steps_of(tuple(handler_steps(step)))


def _command_lines(step: Step) -> Iterator[str]:
    """The texts of a step that become arguments of a process."""
    match step.action:
        case Shell(command=command) | Validate(command=command):
            yield command
        case Agent(prompt=prompt, prompt_by="argument"):
            yield prompt
        case FanOut(source=source):
            yield source.command
        case _:
            pass


def _secrets_in(text: str, variables: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(name, as it is written) of each secret in a text: `${env.NAME}`, `{{ env.NAME }}`, `{{ keychain.NAME }}`."""
    found: dict[str, str] = {}
    for name, _ in names(text):
        root, _, field = name.removeprefix("raw:").partition(".")
        if root == "env" and field in variables:
            found.setdefault(field, f"${{{name}}}")
    for braces in _BRACES.findall(text):
        for name in variables:
            if re.search(rf"\b(env|keychain)\.{re.escape(name)}\b", braces):
                found.setdefault(name, braces)
    yield from found.items()


def _finding(flow: Workflow, origin: Origin, written: str, variable: str, is_prompt: bool) -> Diagnostic:
    """The warning for one secret."""
    file = origin.file or flow.file
    line, column = _place_of(file, origin, written)
    hint = f'write `"${variable}"`: the step has it in its environment, and a shell puts it in after the start'
    return Diagnostic(
        severity="warning",
        code="secret-shown",
        message=f"`{shorten(written)}` puts a secret into a command line, which all users see in the process list",
        file=file,
        line=line,
        column=column,
        hint="leave it out of the prompt, or pass the prompt with `prompt_by: stdin`" if is_prompt else hint,
    )


def _place_of(file: str, origin: Origin, written: str) -> tuple[int, int]:
    """The line and column of a text in its step; those of the step if the file writes the text in another form."""
    try:
        with open(file, encoding="utf-8") as opened:
            lines = opened.read().split("\n")
    except (OSError, UnicodeError):
        lines = []
    for number in range(max(0, origin.line - 1), len(lines)):
        if (at := lines[number].find(written)) >= 0:
            return number + 1, at + 1
    return origin.line, origin.column
