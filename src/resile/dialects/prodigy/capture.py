"""Names for the results of a Prodigy step: its output, its streams, and the files that it made."""

from __future__ import annotations

import re
from shlex import quote

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe, plain
from resile.dialects.native.nodes import items_of, node_of, put, sequence, text_in, value_of, walk, word
from resile.dialects.prodigy.keys import OUTPUT
from resile.dialects.prodigy.variables import STREAMS, StepDraft, Translation, Where
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import IDENTIFIER, wrong
from resile.model.patterns import PatternRefused, compile_pattern

FORMS = {"string": "text", "json": "json", "lines": "lines", "number": "number", "boolean": "bool"}
SOURCES = ("stdout", "stderr", "both")
MULTILINES = ("preserve", "array", "join", "first_line", "last_line")
_CUT = """\
import json
import re2
from jsonpath import JSONPathEnvironment

def main(name, out, err, how):
    def lacking(what):
        if "default" in how:
            return how["default"]
        raise SystemExit("%s: %s" % (name, what))

    text = {"stderr": err, "both": "\\n".join(filter(None, (out, err)))}.get(how.get("source"), out)
    size, most = len(text.encode("utf-8", "surrogateescape")), how.get("max_size")
    if most is not None and size > most:
        raise SystemExit("%s has %d bytes, and its `max_size` is %d" % (name, size, most))
    lines = how.get("multiline")
    if "pattern" in how:
        compiled = re2.compile("(?m)" + how["pattern"])
        found = [match[1] if compiled.groups else match[0] for match in compiled.finditer(text)]
        if lines == "array":
            return found
        if not found:
            return lacking("nothing matches " + how["pattern"])
        text = found[0]
    if "json_path" in how:
        try:
            found = JSONPathEnvironment(strict=True).findall(how["json_path"], json.loads(text))
        except ValueError as problem:
            return lacking("the output is no JSON: %s" % problem)
        if not found:
            return lacking("nothing is at " + how["json_path"])
        return found[0] if len(found) == 1 else found
    rows = text.splitlines()
    if lines == "array":
        return rows
    if lines == "join":
        return " ".join(rows)
    if lines in ("first_line", "last_line"):
        return rows[0 if lines == "first_line" else -1] if rows else lacking("there is no line")
    return text or lacking("there is no output")
"""
KEPT_AS = ("shell.output", "claude.output")
"""Names that a step captures without giving its output another one."""
_ALL_STREAMS = ("stdout", *STREAMS)
_DOTTED = re.compile(r"\b([A-Za-z_]\w*\.[A-Za-z_]\w*)")


def find_names(t: Translation, root: Node) -> None:
    """Find what the steps capture, with its form, their output files, and the streams that texts name.

    This comes before any text is rewritten.
    """
    dotted: set[str] = set()
    for part in walk(root):
        if isinstance(part, Scalar):
            dotted.update(_DOTTED.findall(part.text))
        elif isinstance(part, Mapping):
            form = FORMS.get(text_in(value_of(part, "capture_format")), "text")
            for name in _capture_names_of(part):
                t.captured.setdefault(name, form)
            outputs, label = value_of(part, "outputs"), text_in(value_of(part, "id"))
            if label and isinstance(outputs, Mapping):
                t.files |= {(label, name): _file_name_for(label, name) for name in outputs.entries}
            t.ids |= {label} if IDENTIFIER.fullmatch(label) else set()
    t.ids -= t.captured.keys()
    t.streams = {(name, stream) for name in (*t.captured, *t.ids) for stream in STREAMS if f"{name}.{stream}" in dotted}


def _capture_names_of(node: Mapping) -> list[str]:
    """The names that one mapping captures."""
    names = [text_in(value_of(node, "capture"))]
    said = value_of(node, "capture_output")
    names += [said.text] if isinstance(said, Scalar) and isinstance(said.value, str) else []
    for key in ("capture", "capture_outputs"):
        several = value_of(node, key)
        names += several.entries if isinstance(several, Mapping) else []
    return [name for name in names if IDENTIFIER.fullmatch(name)]


def _file_name_for(label: str, name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in f"file_{label}_{name}")


def add_captures(step: StepDraft) -> None:
    """Add the captures of a Prodigy step to the native step."""
    at = _find_capture_name(step.t, step.fields)
    label = step.fields.get("id")
    own = [stream for name, stream in sorted(step.t.streams) if name == text_in(label) in step.t.ids]
    if isinstance(label, Scalar) and own:
        # The first name is what `output` of the step means.
        forms = {"output": "text", **{stream: stream for stream in own}}
        add_capture(step.out, label, {f"{label.text}_{key}": form for key, form in forms.items()})
    if at is None:
        for key in ("capture_format", "capture_streams"):
            if key in step.fields:
                step.t.report.error("conflict", f"`{key}` has no meaning without `capture`", step.key(key))
        return
    streams, form = _read_forms(step.t, step.fields, at.text)
    given = {at.text: form, **{f"{at.text}_{stream}": stream for stream in STREAMS if stream in streams}}
    add_capture(step.out, at, given)
    step.t.declare(at.text, form, step.name if step.where.is_top else "")


def _find_capture_name(t: Translation, fields: dict[str, Node]) -> Scalar | None:
    """Find the name that captures the output."""
    found: list[Scalar] = []
    for key in ("capture", "capture_output"):
        value = fields.get(key)
        if isinstance(value, Scalar) and isinstance(value.value, str):
            found += [value] if value.text not in KEPT_AS else []
        elif value is not None and not (key == "capture_output" and isinstance(plain(value), bool)):
            wrong(t, value, "a name" if key == "capture" else "true, false or a name")
    if len(found) > 1 and found[0].text != found[1].text:
        t.report.error("conflict", "`capture` and `capture_output` give two names", found[1], hint="keep one of them")
    return found[0] if found else None


def _read_forms(t: Translation, fields: dict[str, Node], name: str) -> tuple[set[str], str]:
    """Read the other streams that are captured, and the form of the output."""
    form, said = "text", fields.get("capture_format")
    if said is not None:
        form = FORMS.get(text_in(said), "")
        if not form:
            wrong(t, said, f"one of {', '.join(FORMS)}")
    asked = {stream for other, stream in t.streams if other == name}
    streams = fields.get("capture_streams")
    if isinstance(streams, Mapping):
        for key, (place, value) in streams.entries.items():
            if key not in _ALL_STREAMS or not isinstance(plain(value), bool):
                wrong(t, place, f"{', '.join(_ALL_STREAMS)}, each true or false")
            elif key == "stdout" and not plain(value):
                t.report.error("refused", "`stdout: false` is not run: the name stands for it", place)
            elif plain(value):
                asked.add(key)
    elif streams is not None:
        if text_in(streams) not in ("stdout", "stderr", "both"):
            wrong(t, streams, "one of stdout, stderr, both, or a mapping")
        if text_in(streams) == "both":
            asked.add("stderr")
        form = "stderr" if text_in(streams) == "stderr" else form
    return asked, form or "text"


def make_capture_steps(step: StepDraft, inner: Where) -> list[Node]:
    """Make the steps after a success: they capture the paths of its files, and write its output to a file."""
    after = _make_file_steps(step) if "outputs" in step.fields else []
    if "output_file" in step.fields:
        at = step.key("output_file")
        name = f"output_{at.line}_{at.column}"
        add_capture(step.out, at, {name: "text"})
        path = step.t.rewrite_text(step.fields["output_file"], inner)
        after.append(node_of({"id": "output_file", "write_file": {"path": path, "content": f"${{{name}}}\n"}}, at))
    return after


def add_capture(step: Mapping, at: Place, forms: dict[str, str]) -> None:
    """Let a native step capture more names, each in its form."""
    own = value_of(step, "capture")
    kept = {key: value for key, (_, value) in own.entries.items()} if isinstance(own, Mapping) else {}
    put(step, "capture", node_of({**kept, **forms}, at), at)


def append_on_success(step: Mapping, after: Node) -> None:
    """Add a step to `on_success` of a native step, before the others."""
    others = value_of(step, "on_success")
    put(step, "on_success", sequence([after, *(items_of(others) if others is not None else [])], after), after)


def make_cutting_step(t: Translation, name: str, whole: str, how: dict[str, Node], at: Place) -> Node:
    """Make a step that captures a part of an output: what a pattern or a path finds, some lines, or both streams."""
    pattern = how.get("pattern")
    if pattern is not None:
        try:
            compile_pattern(text_in(pattern))
        except PatternRefused as problem:
            t.report.error("value", f"{describe(pattern)} is no regular expression: {problem}", pattern)
    most = how.get("max_size")
    if most is not None and type(plain(most)) is not int:
        wrong(t, most, "a number of bytes")
    settings = {key: value for key, value in how.items() if key != "command_index"}
    inputs = {"name": name, "out": f"${{{whole}}}", "err": f"${{{whole}_err}}", "how": settings}
    program = {"source": _CUT, "inputs": inputs}
    form = "json" if text_in(how.get("multiline")) == "array" else "text"
    return node_of({"id": f"capture {name}", "python": program, "capture": {name: form}}, at)


def _make_file_steps(step: StepDraft) -> list[Node]:
    """Make a step for each declared file: it finds a match in the last commit or among uncommitted files, or fails."""
    t, outputs, label = step.t, step.fields["outputs"], text_in(value_of(step.node, "id"))
    if not isinstance(outputs, Mapping):
        wrong(t, outputs, "a mapping of names to {file_pattern}")
        return []
    after: list[Node] = []
    for name, (key, value) in outputs.entries.items():
        pattern = read_mapping(t, value, OUTPUT).get("file_pattern")
        if pattern is None or not text_in(pattern):
            t.report.error("value", f"the output `{name}` needs `file_pattern`", key)
            continue
        paths = quote(text_in(pattern))
        command = (
            f"{{ git diff --name-only HEAD~1 HEAD -- {paths}; git ls-files --others --exclude-standard -- {paths}; }}"
            f" | grep -m 1 . || {{ echo no file matches {paths} >&2; exit 1; }}"
        )
        made = {"id": f"output {name}", "shell": word(command, pattern), "capture": _file_name_for(label, name)}
        after.append(node_of(made, key))
    if not label:
        t.report.error("conflict", "`outputs` are named by the step's `id`, and it has none", step.key("outputs"))
    return after
