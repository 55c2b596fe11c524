"""The errors that every surface reports, each with a code, a message, a place and a hint.

A `Diagnostic` is a finding in a file; a `ResileError` ends a command. Both have the same four fields, so the command
line, the API and the agents' tools print the same message.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """One finding in a workflow file; `line` and `column` count from 1, 0 where none applies."""

    severity: str
    code: str
    message: str
    file: str
    line: int = 0
    column: int = 0
    hint: str = ""

    @property
    def where(self) -> str:
        """`file:line:column`, as compilers print it."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def render(self) -> str:
        """The finding as plain text, with its hint on a second line."""
        text = f"{self.where}: {self.severity}: {self.message} [{self.code}]"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class ResileError(Exception):
    """A command failed; nothing was run or written because of it.

    As text it is its message. Its place, its hint and every finding are notes, so that a program that does not catch
    it shows them.
    """

    def __init__(
        self, code: str, message: str, *, where: str = "", hint: str = "", diagnostics: Sequence[Diagnostic] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hint
        self.diagnostics = tuple(diagnostics)
        for finding in self.diagnostics:
            self.add_note(finding.render())
        if not self.diagnostics:
            if where and where not in message:
                self.add_note(f"  in {where}")
            if hint:
                self.add_note(f"  hint: {hint}")


class WorkflowError(ResileError):
    """A workflow file, or a workflow built in Python, is wrong; `diagnostics` has every finding."""


class RunFailed(ResileError):
    """A run did not complete; `run` is its number and `status` its status."""

    def __init__(self, message: str, *, run: int, status: str, hint: str = "") -> None:
        super().__init__("run-failed", message, hint=hint)
        self.run = run
        self.status = status


class StepFailed(ResileError):
    """A step of a run has no result, because it failed or did not run; `step` is its name."""

    def __init__(self, message: str, *, step: str) -> None:
        super().__init__("no-result", message)
        self.step = step


class StoreError(ResileError):
    """The store failed; nothing of the failed transaction is stored."""


def is_utf8(text: str) -> bool:
    """Can a text be written as UTF-8? A path with other bytes can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shorten(text: str, characters_max: int = 60) -> str:
    """A text that fits into one line of a message."""
    line = "".join(c if c.isprintable() else " " for c in text[: characters_max + 1])
    return line if len(line) <= characters_max else line[: characters_max - 1] + "…"
