"""`shell` and `validate` in the engine: a command, by itself or in its shell."""

from __future__ import annotations

import os

from resile.engine.launch import ARGUMENT_BYTES_MAX, Attempt
from resile.executors.contract import Launch
from resile.languages.contract import render_shell
from resile.languages.shell.program import shell_words
from resile.languages.shell.quoting import plain_argv
from resile.model.workflow import Shell, Validate

# A union that is made once: every attempt of a command is checked against it.
_COMMANDS = Shell | Validate


def prepare(attempt: Attempt) -> Launch:
    """The launch of the command, which may read a text on standard input.

    Plain words run by themselves, with the shell as fallback; anything else runs in its shell.
    """
    action = attempt.step.action
    assert isinstance(action, _COMMANDS)
    rendered = render_shell(action.command, attempt.lookup, action.program)
    text = os.fsencode(rendered)
    shell = tuple(map(os.fsencode, shell_words(action.program, action.errexit)))
    in_shell = (*shell, b"-c", text) if len(text) <= ARGUMENT_BYTES_MAX else (*shell, attempt.write_file("sh", text))
    if type(action) is Shell and action.stdin:
        given = action.stdin
        return attempt.launch(attempt.with_stdin(in_shell, "stdin", lambda file: attempt.write_text(given, file)))
    plain = plain_argv(rendered) if action.program == "sh" and len(text) <= ARGUMENT_BYTES_MAX else None
    return attempt.launch(in_shell) if plain is None else attempt.launch(tuple(map(os.fsencode, plain)), in_shell)
