"""Checks of `${...}` once every name is known: certain mistakes are errors, likely ones warnings.

A bare `${NAME}` that no step captures belongs to the shell and is not checked. One with a path (`${a.b}`) can't be a
shell variable, so it is checked unless quotes keep it from the shell.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mark, Node, Scalar
from resile.dialects.native.context import NativeReading, Scope, StepDraft
from resile.dialects.native.keys.names import ROOTS
from resile.dialects.reading.context import Reading, Text
from resile.dialects.reading.diagnostics import did_you_mean, nearest
from resile.errors import shorten
from resile.languages.references import is_one_reference, names, path_of, without_default
from resile.model.workflow import Child, Condition, FanOut

if TYPE_CHECKING:
    from resile.languages.shell.lexer import Hole

ERROR_FIELDS = ("message", "exit_code", "step", "timestamp", "stdout", "stderr", "kind", "attempt", "signal")
STEP_FIELDS = ("output", "exit_code", "stderr", "status", "attempts", "outputs")
EXECUTION_FIELDS = (
    "status", "failed_steps", "tolerated_steps", "canceled_steps", "skipped_steps", "results", "first_failure"
)  # fmt: skip
FANOUT_FIELDS = (
    "total", "successful", "failed", "skipped", "held", "failure_rate", "error_types", "failure_patterns",
    "dead_letters", "results", "outcomes", "branches",
)  # fmt: skip
ITEM_ROOTS = ("item", "item_index", "item_id")
ROOT_HINTS = {
    "item": "the steps of a map's items, and those below a `foreach` step, have it",
    "item_index": "it is a number, without fields",
    "item_id": "it is a text, without fields",
    "map": "it is what came of a map step called `map`; of another, `${steps.NAME.total}`",
}
_SHIELDED = ("single", "ansi", "literal", "comment")
_BLANKS = r"(?<![\\$])\$\{([ \t][^{}\n]*|[^{}\n]*[ \t])\}"
_BROKEN = r"(?<![\\$])\$\{(?:raw:)?((?:inputs|steps|execution|workflow)\.[^{}\n]*)\}"
_NESTING = frozenset("'\"`\\<>()[]")


def check_references(reading: NativeReading, inputs: dict[str, Any], end: StepDraft | None) -> None:
    """Check captured names and all texts, scope by scope, outer ones first."""
    root = reading.scopes[0]
    if end is not None:
        root.drafts = {**root.drafts, "end": end}
    lint = _ReferenceChecker(reading, inputs)
    captured: dict[int, ChainMap[str, str]] = {}
    for scope in reading.scopes:
        around = captured[id(scope.around)] if scope.around is not None else ChainMap()
        own = {**scope.captured, **_check_captures(reading, scope, inputs)}
        captured[id(scope)] = around.new_child(own)
        if scope.texts:
            lint.enter(scope, captured[id(scope)])
            for text in scope.texts:
                lint.check(text)
            lint.check_lists()
            lint.check_conditions()


def _check_captures(reading: Reading, scope: Scope, inputs: dict[str, Any]) -> dict[str, str]:
    """Map captured names to their steps; warn if two steps capture the same name."""
    captured: dict[str, str] = {}
    for draft in scope.drafts.values():
        if not draft.step.capture:
            continue
        where = draft.node.entries["capture"][0] if "capture" in draft.node.entries else draft.key
        _check_fallback(reading, draft, where)
        for capture in draft.step.capture:
            name = capture.name
            if name in captured:
                message = f"`{name}` is captured in `{shorten(captured[name])}` too: the last to finish decides"
                reading.report.warning("capture-clash", message, where)
            elif name in inputs:
                message = f"`{name}` is an input too: `${{{name}}}` is captured, `${{inputs.{name}}}` given"
                reading.report.warning("capture-clash", message, where)
            captured.setdefault(name, draft.step.name)
    return captured


def _check_fallback(reading: Reading, draft: StepDraft, where: Node) -> None:
    """Check that a fallback prints output: the step's captures are read from it too."""
    for rule in draft.step.rules:
        last = rule.repair.steps[-1] if rule.then == "fallback" and rule.repair is not None else None
        if last is not None and isinstance(last.action, FanOut | Child):
            word = "map" if isinstance(last.action, FanOut) else "workflow"
            message = f"`capture` can't be read from the fallback: its last command is a `{word}`, which prints nothing"
            reading.report.error("conflict", message, where, hint="end the fallback with a command that prints it")
        elif last is not None and last.when is not None:
            message = "the last command of the fallback has a `when`: where that is false, nothing new is captured"
            reading.report.warning("fallback-skipped", message, where)


def _conditions_of(draft: StepDraft) -> Iterator[Condition]:
    """The conditions of a step, of its arcs and of its handlers' commands that may refer to values."""
    repairs = [rule.repair for rule in draft.step.rules if rule.repair is not None]
    commands = (command.when for repair in repairs for command in repair.steps)
    for whole in (draft.step.when, *(arc.when for arc, _ in draft.arcs), *commands):
        for condition in (whole, *whole.besides) if whole is not None else ():
            if condition.language in ("value", "js"):
                yield condition


class _Reference(Struct, frozen=True):
    """One `${name}` in a text, with its path and its offset."""

    text: Text
    name: str
    path: tuple[str | int, ...]
    offset: int


class _ReferenceChecker:
    """Checks texts in the scope that it has entered."""

    def __init__(self, reading: NativeReading, inputs: dict[str, Any]) -> None:
        self.reading = reading
        self.report = reading.report
        self.inputs = inputs
        self.scope = reading.scopes[0]
        self.captured: ChainMap[str, str] = ChainMap()
        self.drafts: ChainMap[str, StepDraft] = ChainMap()
        self.lines: list[str] = []
        self.reported: set[tuple[int, int, str]] = set()

    def enter(self, scope: Scope, captured: ChainMap[str, str]) -> None:
        """Switch to the texts of this scope."""
        self.scope, self.captured = scope, captured
        scopes = [scope]
        while scopes[-1].around is not None:
            scopes.append(scopes[-1].around)
        self.drafts = ChainMap(*(each.drafts for each in scopes))

    def check(self, text: Text) -> None:
        """Check every reference in one text."""
        if text.program:
            self._check_places(text)
        if "${" in text.node.text:
            self._check_blanks(text)
            self._check_broken(text)
        for name, offset in names(text.node.text):
            path = path_of(name)
            if len(path) > 1:
                self._check_path(_Reference(text, name, path, offset), str(path[0]), str(path[1]))

    def _check_path(self, ref: _Reference, root: str, field: str) -> None:
        """Check a reference with a path: its first word and the field of that."""
        match root:
            case "inputs":
                if field not in self.inputs:
                    hint = did_you_mean(field, self.inputs, "inputs") or "declare it under `inputs`"
                    self._error(ref, f"there is no input `{shorten(field)}`", hint)
            case "steps":
                self._check_step(ref, field)
            case "execution":
                if self._has_field(ref, "the execution", field, EXECUTION_FIELDS) and ref.text.owner != "end":
                    self._warning("not-in-end", ref, "the execution is complete only in `end`")
            case "error" | "shell" if self._in_repair(ref.text):
                self._has_field(ref, f"`{root}`", field, ERROR_FIELDS if root == "error" else ("output",))
            case "item" if self.scope.around is not None:
                pass
            case "map" if self._map_step() is not None:
                if self._has_field(ref, "a map", field, FANOUT_FIELDS):
                    self._check_order(ref, "map")
            case "env":
                if len(ref.path) != 2:
                    self._error(ref, "`env` has the form `${env.NAME}`")
            case _ if root not in self.captured:
                self._report_unknown_root(ref, root)

    def _has_field(self, ref: _Reference, owner: str, field: str, fields: tuple[str, ...]) -> bool:
        if field not in fields:
            self._error(ref, f"{owner} has no `{shorten(field)}`", did_you_mean(field, fields, "it has"))
        return field in fields

    def _check_blanks(self, text: Text) -> None:
        """Warn of blanks inside the braces of a reference: neither Resile nor a shell can read it."""
        for found in re.finditer(_BLANKS, text.node.text):
            written = f"${{{found[1].strip()}}}"
            if is_one_reference(written) and self._is_ours(text, path_of(written[2:-1])):
                message = f"`{shorten(found[0])}` is left as it stands: no blank can be inside the braces"
                place = self._place_of_name(text, found[1], found.start())
                if self._is_new(place, message):
                    self.report.warning("blank", message, place, hint=f"write `{shorten(written)}`")

    def _check_broken(self, text: Text) -> None:
        """Warn of what begins like a reference and is none: a shell can't read it either."""
        for found in re.finditer(_BROKEN, text.node.text):
            if is_one_reference(f"${{{found[1].strip()}}}"):
                continue
            message = f"`{shorten(found[0])}` is left as it stands: Resile can't read it"
            place = self._place_of(text, found[0], text.node.text[: found.start()].count(found[0]))
            if self._is_new(place, message):
                hint = (
                    "write a name with other marks than letters, digits, `_` and `-` as in `${steps['a name'].output}`"
                )
                self.report.warning("reference", message, place, hint=hint)

    def check_lists(self) -> None:
        """Check fan-outs over one bare name: no shell reads it, so a step must capture it."""
        for draft in self.scope.drafts.values():
            source = draft.step.action.source if isinstance(draft.step.action, FanOut) else None
            if source is None or not is_one_reference(source.template):
                continue
            path = path_of(source.template[2:-1])
            is_known = path[0] in self.captured or (path[0] in ITEM_ROOTS and self.scope.around is not None)
            if len(path) == 1 and not is_known:
                near = did_you_mean(str(path[0]), self.captured, "captured names")
                message = f"`{source.template}`: no step captures `{path[0]}`, and no shell reads it here"
                from resile.dialects.native.fanout import input_of

                self.report.error("unknown-variable", message, input_of(draft.node), hint=near)

    def check_conditions(self) -> None:
        """Warn of a bare name in a condition that nothing gives: no shell reads it there, so it would be null."""
        items = ITEM_ROOTS if self.scope.around is not None else ()
        known = {*self.captured, *items, *ROOTS, "worktree", "worktree_branch"}
        for draft in self.scope.drafts.values():
            for condition in _conditions_of(draft):
                for name, _ in names(condition.source):
                    path = path_of(name)
                    if len(path) == 1 and path[0] not in known and without_default(name) == name:
                        near = self._hint_for(name, str(path[0]))
                        message = (
                            f"`${{{shorten(name)}}}`: no step captures `{shorten(str(path[0]))}`, so it is null here"
                        )
                        place = Mark(condition.origin.line, condition.origin.column)
                        if self._is_new(place, message):
                            self.report.warning("unknown-variable", message, place, hint=near)

    def _in_repair(self, text: Text) -> bool:
        """Can this text refer to a failure: is it in a handler, or in a step that is called as a remedy?"""
        return text.in_repair or text.owner in self.scope.called

    def _map_step(self) -> StepDraft | None:
        draft = self.drafts.get("map")
        return draft if draft is not None and _fans_out(draft) else None

    def _place_of_name(self, text: Text, name: str, offset: int) -> Mark:
        """Find the position of a reference by its text, because quoting and folding shift columns."""
        wanted = f"${{{name}}}"
        return self._place_of(text, wanted, text.node.text[:offset].count(wanted))

    def _place_of(self, text: Text, wanted: str, skip: int) -> Mark:
        """The position of a part of a text in the file, behind `skip` others like it."""
        if not self.lines:
            self.lines = self.reading.source.data.decode("utf-8").split("\n")
        return place_in(self.lines, text.node, wanted, skip)

    def _error(self, ref: _Reference, message: str, hint: str = "") -> None:
        place = None if self.report.full else self._place_of_name(ref.text, ref.name, ref.offset)
        if place is None or self._is_new(place, message):
            self.report.error("unknown-variable", f"`${{{shorten(ref.name)}}}`: {message}", place, hint=hint)

    def _warning(self, code: str, ref: _Reference, message: str, hint: str = "") -> None:
        place = self._place_of_name(ref.text, ref.name, ref.offset)
        if self._is_new(place, message):
            self.report.warning(code, f"`${{{shorten(ref.name)}}}`: {message}", place, hint=hint)

    def _is_new(self, place: Mark, message: str) -> bool:
        """Is this finding new? Several steps of an item can share one handler."""
        count = len(self.reported)
        self.reported.add((place.line, place.column, message))
        return len(self.reported) > count

    def _check_step(self, ref: _Reference, step: str) -> None:
        """Check that a step exists, has that property, and runs earlier."""
        path = ref.path
        if len(path) < 3:
            self._error(ref, f"what of that step? One of {', '.join(STEP_FIELDS)}", "`${steps.NAME.output}`")
            return
        field, output = str(path[2]), str(path[3]) if len(path) > 3 else ""
        if step in ref.text.beside and field in STEP_FIELDS:
            return
        draft = self.drafts.get(step)
        if draft is None:
            self._report_unknown_step(ref, step)
        elif not self._has_field(ref, "a step", field, STEP_FIELDS + (FANOUT_FIELDS if _fans_out(draft) else ())):
            return
        elif field != "outputs" or output in _outputs(draft):
            self._check_order(ref, step)
        elif not _is_unread_child(draft):
            hint = did_you_mean(output, sorted(_outputs(draft)), "it captures")
            self._error(ref, f"`{shorten(step)}` captures nothing of that name", hint)

    def _report_unknown_step(self, ref: _Reference, step: str) -> None:
        """Report a step that does not exist, or that runs for the items of another step."""
        scope: Scope | None = self.scope
        while scope is not None and step not in scope.inner:
            scope = scope.around
        if scope is not None:
            holder = scope.inner[step]
            called = f".{holder}" if re.fullmatch(r"\w[\w-]*", holder) else f"['{holder}']"
            hint = f"what came of them is `${{steps{called}.results}}`"
            self._error(ref, f"`{shorten(step)}` runs inside the items of `{shorten(holder)}`", hint)
            return
        hint = did_you_mean(step, self.drafts, "steps")
        if "." in ref.name and any(other.startswith(f"{step}.") for other in self.drafts):
            hint = f"quote a name with dots: `${{steps['{step}.…'].output}}`"
        self._error(ref, f"there is no step `{shorten(step)}`", hint)

    def _check_order(self, ref: _Reference, step: str) -> None:
        """Warn of a step that may not have run when this text is rendered."""
        scope, owner, is_inside = self.scope, ref.text.owner, ref.text.is_inside
        # A step around the items has run if it ran before the fan-out.
        while step not in scope.drafts and scope.around is not None:
            scope, owner, is_inside = scope.around, scope.owner, scope.is_inside
            if owner == step:
                # Items may refer to the totals of their own fan-out.
                return
        if not _has_run(scope, owner, is_inside, step):
            message = f"`{shorten(step)}` may not have run when `{shorten(owner)}` starts"
            self._warning("not-an-ancestor", ref, message, f"add `{step}` to its `needs`")

    def _report_unknown_root(self, ref: _Reference, root: str) -> None:
        """Warn of a path with an unknown first word: no shell variable has a path, but code in other languages may."""
        if ref.name.removeprefix("raw:") == "workflow.folder":
            return
        if root in ROOTS:
            self._warning("unknown-variable", ref, f"`{root}` has no value here", ROOT_HINTS.get(root, ""))
            return
        text, has_dot = ref.text, "." in ref.name
        hint = self._hint_for(ref.name.removeprefix("raw:"), root)
        if not hint and text.program:
            if not has_dot and _has_arrays(text.program):
                return
            if self._is_shielded(text, ref.offset):
                return
        known = ", ".join(ROOTS[:4])
        fallback = f"`${{…}}` reads {known} and captured names" if has_dot else "arrays need `shell_program: bash`"
        self._warning("unknown-variable", ref, f"`{shorten(root)}` is not known", hint or fallback)

    def _hint_for(self, name: str, root: str) -> str:
        """Suggest a correction for a name with an unknown first word."""
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
        """Do quotes or a comment keep the shell from expanding this reference, as with code in another language?"""
        from resile.languages.shell.grammar import read
        from resile.languages.shell.lexer import Hole

        at = 0
        for piece in read(text.node.text, text.program):
            if isinstance(piece, Hole):
                if at == offset:
                    return piece.place in _SHIELDED
                at += len(piece.source)
            elif isinstance(piece, str):
                at += len(piece)
        return False

    def _check_places(self, text: Text) -> None:
        """Check that known values can be quoted in their places, and that no second shell reads them as code."""
        known = {name for name, _ in names(text.node.text) if self._is_ours(text, path_of(name))}
        if not known:
            return
        from resile.languages.shell.commands import has_suspect
        from resile.languages.shell.grammar import read
        from resile.languages.shell.lexer import Hole

        # Without quotes and nesting few places are unsafe; skip the lexer, which takes seconds for 100,000 commands.
        written = text.node.text
        is_flat = written.count("$") == len(known) and _NESTING.isdisjoint(written) and not has_suspect(written)
        count: dict[str, int] = {}
        for piece in () if is_flat else read(written, text.program):
            if not isinstance(piece, Hole):
                continue
            number = count[piece.source] = count.get(piece.source, -1) + 1
            if piece.name in known and not piece.is_raw:
                self._check_place(text, piece, number)

    def _check_place(self, text: Text, hole: Hole, number: int) -> None:
        """Check one value in a command, the one of this number with its name."""
        if hole.place == "refused":
            message = f"`{hole.source}`: no value can be put here safely: {hole.reason}"
        elif hole.second:
            from resile.languages.shell.hints import complaint

            message = f"`{hole.source}`: {complaint(hole.second)}"
        else:
            return
        place = self._place_of(text, hole.source, number)
        if not self._is_new(place, message):
            return
        if hole.place == "refused":
            self.report.error("shell-place", message, place)
        else:
            from resile.languages.shell.hints import HINTS

            hint = HINTS[hole.second].replace("${…}", hole.source)
            self.report.warning("second-shell", message, place, hint=hint)

    def _is_ours(self, text: Text, path: tuple[str | int, ...]) -> bool:
        """Is this a name that the workflow resolves, not the shell?"""
        if path[0] in self.captured or (path[0] in ITEM_ROOTS and self.scope.around is not None):
            return True
        if path == ("workflow", "folder"):
            return True
        if path[0] == "map" and len(path) > 1:
            return self._map_step() is not None
        roots = ("inputs", "env", "steps", "execution", *(("error", "shell") if self._in_repair(text) else ()))
        return len(path) > 1 and path[0] in roots


def place_in(lines: list[str], node: Scalar, wanted: str, skip: int) -> Mark:
    """The position of a part of a text in the lines of its file, behind `skip` others like it."""
    line, column = node.line, node.column
    for number in range(line - 1, min(len(lines), line + node.text.count("\n") + 1_000)):
        at = lines[number].find(wanted, column - 1 if number == line - 1 else 0)
        while at >= 0:
            if not skip:
                return Mark(number + 1, at + 1)
            skip -= 1
            at = lines[number].find(wanted, at + 1)
    return Mark(line, column)


def _has_arrays(program: str) -> bool:
    """Does this shell certainly have arrays?"""
    from resile.languages.shell.rules import shell_of

    return shell_of(program) != "sh"


def _has_run(scope: Scope, owner: str, is_inside: bool, step: str) -> bool:
    """Is it certain that a step has run when `owner` starts? Handlers of the step and remedies count as yes."""
    if not owner or owner in scope.called or (is_inside and owner == step) or scope.ancestors is None:
        return True
    return scope.ancestors.has(owner, step)


def _fans_out(draft: StepDraft) -> bool:
    """Does a step run others for each item? Includes a step whose `map` could not be read and is reported elsewhere."""
    return isinstance(draft.step.action, FanOut) or "map" in draft.node.entries


def _is_unread_child(draft: StepDraft) -> bool:
    """Does a step call a workflow that could not be read, so that its captures are unknown?"""
    return "workflow" in draft.node.entries and not isinstance(draft.step.action, Child)


def _outputs(draft: StepDraft) -> set[str]:
    """Names under `outputs` of a step: its captures, or those of its child workflow."""
    if isinstance(draft.step.action, Child):
        from resile.dialects.native.child_workflow import captured_names

        return captured_names(draft.step.action.workflow)
    return {capture.name for capture in draft.step.capture}
