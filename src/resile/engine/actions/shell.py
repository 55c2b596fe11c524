"""`shell` and `validate` in the engine: a command, by itself or in its shell."""

from __future__ import annotations

import os

from resile.engine.launch import ARGUMENT_BYTES_MAX, Attempt
from resile.executors.contract import Launch
from resile.languages.contract import render_shell, render_text
from resile.languages.shell.quoting import plain_argv
from resile.model.workflow import Shell, Validate


def prepare(attempt: Attempt) -> Launch:
    """The launch of the command, which may read a text on standard input."""
    action = attempt.step.action
    assert isinstance(action, Shell | Validate)
    argv, fallback = _shell_command(attempt, action.command, action.program)
    if isinstance(action, Shell) and action.stdin:
        text = os.fsencode(render_text(action.stdin, attempt.lookup))
        return attempt.launch(attempt.with_stdin(fallback or argv, "stdin", text))
    return attempt.launch(argv, fallback)


def _shell_command(attempt: Attempt, command: str, program: str) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The argv of a shell command: plain words with the shell as fallback, anything else in its shell."""
    rendered = render_shell(command, attempt.lookup, program)
    text = os.fsencode(rendered)
    shell = os.fsencode(program)
    if len(text) > ARGUMENT_BYTES_MAX:
        return (shell, attempt.write_file("sh", text)), ()
    plain = plain_argv(rendered) if program == "sh" else None
    if plain is None:
        return (shell, b"-c", text), ()
    return tuple(map(os.fsencode, plain)), (shell, b"-c", text)
