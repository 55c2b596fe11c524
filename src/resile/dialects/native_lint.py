"""Checks of `${...}` once every name is known: certain mistakes are errors, likely ones warnings.

A bare `${NAME}` that nobody knows belongs to the shell and is not looked at; one with a path (`${a.b}`) does not,
unless quotes keep it away from the shell.
"""

from __future__ import annotations

import re
from typing import Any

from resile.dialects.base import Reading, Text, did_you_mean, nearest
from resile.dialects.interpolate import names, path_of
from resile.dialects.native_graph import Ancestors
from resile.dialects.native_keys import ROOTS
from resile.dialects.native_step import Drafted, NativeReading
from resile.dialects.shell import knows_ansi
from resile.dialects.tree import Mark, shorten

ERROR_FIELDS = ("message", "exit_code", "step", "timestamp", "stdout", "stderr", "kind", "attempt", "signal")
STEP_FIELDS = ("output", "exit_code", "stderr", "status", "attempts", "outputs")
EXECUTION_FIELDS = (
    "status", "failed_steps", "tolerated_steps", "canceled_steps", "skipped_steps", "results", "first_failure"
)  # fmt: skip
_SHIELDED = ("single", "ansi", "literal", "comment")
_NESTING = frozenset("'\"`\\<>()[]")
_SECOND_SHELL = r"(?:^|[\s;&|(])(?:eval|(?:\S*/)?(?:ba|da|z|k)?sh\s+-[a-z]*c)\s"


def check_references(
    reading: NativeReading,
    inputs: dict[str, Any],
    drafts: dict[str, Drafted],
    ancestors: Ancestors,
    called: frozenset[str],
    end: Drafted | None,
) -> None:
    """Check captured names and every text that was read; `called` steps may run as a remedy."""
    captured = {**reading.captured, **_check_captures(reading, drafts, inputs, end)}
    if not reading.texts:
        return
    everyone = {**drafts, "end": end} if end else drafts
    lint = _Lint(reading, inputs, captured, everyone, ancestors, called)
    for text in reading.texts:
        lint.check(text)


def _check_captures(
    reading: Reading, drafts: dict[str, Drafted], inputs: dict[str, Any], end: Drafted | None
) -> dict[str, str]:
    """The captured names and who captures them; a name that two give a value to is probably a mistake."""
    captured: dict[str, str] = {}
    for draft in [*drafts.values(), end] if end else drafts.values():
        for capture in draft.step.capture:
            name = capture.name
            where = draft.node.entries["capture"][0]
            if name in captured:
                message = f"`{name}` is captured in `{shorten(captured[name])}` too: the last to finish decides"
                reading.report.warning("capture-clash", message, where)
            elif name in inputs:
                message = f"`{name}` is an input too: `${{{name}}}` is captured, `${{inputs.{name}}}` given"
                reading.report.warning("capture-clash", message, where)
            captured.setdefault(name, draft.step.name)
    return captured


class _Lint:
    """Looks at texts, one after the other."""

    def __init__(
        self,
        reading: Reading,
        inputs: dict[str, Any],
        captured: dict[str, str],
        drafts: dict[str, Drafted],
        ancestors: Ancestors,
        called: frozenset[str],
    ) -> None:
        self.reading = reading
        self.report = reading.report
        self.inputs = inputs
        self.captured = captured
        self.drafts = drafts
        self.ancestors = ancestors
        self.called = called
        self.lines: list[str] = []

    def check(self, text: Text) -> None:
        """Every reference in one text."""
        if text.program:
            self._check_places(text)
        for name, offset in names(text.node.text):
            path = path_of(name)
            if len(path) == 1:
                continue
            match path[0]:
                case "inputs":
                    self._input(text, name, path, offset)
                case "steps":
                    self._step(text, name, path, offset)
                case "execution":
                    self._execution(text, name, path, offset)
                case "error" | "shell" if self._in_repair(text):
                    self._failure(text, name, path, offset)
                case "env":
                    if len(path) != 2:
                        self._error(text, name, offset, "`env` has the form `${env.NAME}`")
                case root if root not in self.captured:
                    self._unknown_root(text, name, str(root), offset)
                case _:
                    pass

    def _in_repair(self, text: Text) -> bool:
        """Is there a failure that this text can speak of: in a handler, or in a step that is called for?"""
        return text.in_repair or text.owner in self.called

    def _where(self, text: Text, name: str, offset: int) -> Mark:
        """Where a reference stands in the file: found by its text, because quoting and folding move columns."""
        if not self.lines:
            self.lines = self.reading.source.data.decode("utf-8").split("\n")
        lines = self.lines
        wanted = f"${{{name}}}"
        skip = text.node.text[:offset].count(wanted)
        line, column = text.node.line, text.node.column
        for number in range(line - 1, min(len(lines), line + text.node.text.count("\n") + 1_000)):
            at = lines[number].find(wanted, column - 1 if number == line - 1 else 0)
            while at >= 0:
                if not skip:
                    return Mark(number + 1, at + 1)
                skip -= 1
                at = lines[number].find(wanted, at + 1)
        return Mark(line, column)

    def _error(self, text: Text, name: str, offset: int, message: str, hint: str = "") -> None:
        """A reference that can't be right."""
        place = None if self.report.full else self._where(text, name, offset)
        self.report.error("unknown-variable", f"`${{{shorten(name)}}}`: {message}", place, hint=hint)

    def _warning(self, code: str, text: Text, name: str, offset: int, message: str, hint: str = "") -> None:
        """A reference that is probably not right."""
        self.report.warning(code, f"`${{{shorten(name)}}}`: {message}", self._where(text, name, offset), hint=hint)

    def _input(self, text: Text, name: str, path: tuple[str | int, ...], offset: int) -> None:
        """An input must be declared."""
        if str(path[1]) not in self.inputs:
            message = f"there is no input `{shorten(str(path[1]))}`"
            hint = did_you_mean(str(path[1]), self.inputs, "inputs") or "declare it under `inputs`"
            self._error(text, name, offset, message, hint)

    def _step(self, text: Text, name: str, path: tuple[str | int, ...], offset: int) -> None:
        """A step must exist, have that property, and have run before."""
        if len(path) < 3:
            fields = ", ".join(STEP_FIELDS)
            self._error(text, name, offset, f"what of that step? One of {fields}", "`${steps.NAME.output}`")
            return
        step, field = str(path[1]), str(path[2])
        draft = self.drafts.get(step)
        if step in text.beside and field in STEP_FIELDS:
            return
        if draft is None:
            hint = did_you_mean(step, self.drafts, "steps")
            if "." in name and any(other.startswith(f"{step}.") for other in self.drafts):
                hint = f"quote a name with dots: `${{steps['{step}.…'].output}}`"
            self._error(text, name, offset, f"there is no step `{shorten(step)}`", hint)
        elif field not in STEP_FIELDS:
            self._error(
                text, name, offset, f"a step has no `{shorten(field)}`", did_you_mean(field, STEP_FIELDS, "it has")
            )
        elif field == "outputs" and (len(path) < 4 or path[3] not in {c.name for c in draft.step.capture}):
            captured = [capture.name for capture in draft.step.capture]
            hint = did_you_mean(str(path[3]) if len(path) > 3 else "", captured, "it captures")
            self._error(text, name, offset, f"`{shorten(step)}` captures nothing of that name", hint)
        elif not self._has_run(text, step):
            message = f"`{shorten(step)}` may not have run when `{shorten(text.owner)}` starts"
            self._warning("not-an-ancestor", text, name, offset, message, f"add `{step}` to its `needs`")

    def _has_run(self, text: Text, step: str) -> bool:
        """Has a step certainly run when this text is rendered? In what follows it, it has; a remedy can't know."""
        if not text.owner or text.owner in self.called or (text.is_inside and text.owner == step):
            return True
        return self.ancestors.has(text.owner, step)

    def _failure(self, text: Text, name: str, path: tuple[str | int, ...], offset: int) -> None:
        """The failure that a repair answers."""
        root, field = str(path[0]), str(path[1])
        fields = ERROR_FIELDS if root == "error" else ("output",)
        if field not in fields:
            hint = did_you_mean(field, fields, "it has")
            self._error(text, name, offset, f"`{root}` has no `{shorten(field)}`", hint)

    def _execution(self, text: Text, name: str, path: tuple[str | int, ...], offset: int) -> None:
        """The execution as a whole, which only `end` sees complete."""
        wanted = str(path[1])
        if wanted not in EXECUTION_FIELDS:
            message = f"the execution has no `{shorten(wanted)}`"
            self._error(text, name, offset, message, did_you_mean(wanted, EXECUTION_FIELDS, "it has"))
        elif text.owner != "end":
            self._warning("not-in-end", text, name, offset, "the execution is complete only in `end`")

    def _unknown_root(self, text: Text, name: str, root: str, offset: int) -> None:
        """A name with a path that nobody knows; no shell variable has one, but other languages do."""
        if root in ROOTS:
            self._warning("unknown-variable", text, name, offset, f"`{root}` has no value here")
            return
        hint = self._meant(name.removeprefix("raw:"), root)
        if not hint and text.program:
            if "." not in name and knows_ansi(text.program):
                return
            if self._is_shielded(text, offset):
                return
        known = ", ".join(ROOTS[:4])
        fallback = f"`${{…}}` reads {known} and captured names" if "." in name else "arrays need `shell_program: bash`"
        self._warning("unknown-variable", text, name, offset, f"`{shorten(root)}` is not known", hint or fallback)

    def _meant(self, name: str, root: str) -> str:
        """A hint at what a name with an unknown first word was probably to say."""
        if root in self.drafts:
            return f"did you mean `${{steps.{shorten(name)}}}`?"
        if root in self.inputs:
            return f"did you mean `${{inputs.{shorten(name)}}}`?"
        if root in ("secrets", "secret"):
            return f"secrets are environment variables: write `${shorten(str(path_of(name)[1]))}`"
        near = nearest(root, [*ROOTS, *self.captured])
        if near:
            return f"did you mean `{near}`?"
        near = nearest(root, self.drafts)
        return f"did you mean `${{steps.{shorten(near + name[len(root) :])}}}`?" if near else ""

    def _is_shielded(self, text: Text, offset: int) -> bool:
        """Do quotes or a comment keep the shell from reading this reference, as code in another language does?"""
        from resile.dialects.shell_pieces import Hole
        from resile.dialects.shell_places import read

        at = 0
        for piece in read(text.node.text, knows_ansi(text.program)):
            if isinstance(piece, Hole):
                if at == offset:
                    return piece.place in _SHIELDED
                at += len(piece.source)
            elif isinstance(piece, str):
                at += len(piece)
        return False

    def _check_places(self, text: Text) -> None:
        """A known value must stand where it can be quoted, and not be read a second time as code."""
        known = {name for name, _ in names(text.node.text) if self._is_ours(text, path_of(name))}
        if not known:
            return
        from resile.dialects.shell_pieces import Hole
        from resile.dialects.shell_places import read

        # Where nothing quotes or nests, every place is sound: reading 100,000 such commands would take seconds.
        is_flat = text.node.text.count("${") == len(known) and _NESTING.isdisjoint(text.node.text)
        for piece in () if is_flat else read(text.node.text, knows_ansi(text.program)):
            if isinstance(piece, Hole) and piece.place == "refused" and piece.name in known and not piece.is_raw:
                message = f"no value can be put here safely: {piece.reason}"
                place = self._where(text, piece.name, 0)
                self.report.error("shell-place", f"`{piece.source}`: {message}", place)
        if re.search(_SECOND_SHELL, text.node.text):
            message = "a value inside `eval` or `sh -c` is read a second time, as code"
            hint = "pass it as an argument: sh -c '… \"$1\"' sh ${…}"
            self.report.warning("second-shell", message, text.node, hint=hint)

    def _is_ours(self, text: Text, path: tuple[str | int, ...]) -> bool:
        """Will the workflow know this name?"""
        if path[0] in self.captured:
            return True
        roots = ("inputs", "env", "steps", "execution", *(("error", "shell") if self._in_repair(text) else ()))
        return len(path) > 1 and path[0] in roots
