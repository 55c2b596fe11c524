"""YAML 1.2 with positions: bytes in, a tree of small nodes out, each with its line and column (from 1).

    bytes -> text_of()   encoding, size, NUL
          -> libyaml     events, one at a time
          -> Builder     nodes; refuses constructs that a workflow file must not have

Scalars follow the YAML 1.2 core schema, so `yes`, `1:10` and dates are text and `012` is twelve. Refused with both
positions or a hint: duplicate keys, keys that are not text, `<<`, foreign tags, several documents, alias bombs, deep
nesting. Most JSON is valid YAML too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from resile.dialects.formats.nodes import (
    Mapping,
    Mark,
    Node,
    Scalar,
    Sequence,
    describe,
    mark_at,
    report_duplicate,
    text_of,
)
from resile.errors import shorten
from resile.model.limits import ALIAS_NODES_MAX, FILE_DEPTH_MAX

if TYPE_CHECKING:
    from resile.dialects.reading.diagnostics import Diagnostics


_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER_STARTS = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?[0-9]{1,4000}")
_BASED = re.compile(r"0o[0-7]{1,4000}|0x[0-9a-fA-F]{1,4000}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,400}|[0-9]{1,400}(\.[0-9]{0,400})?)([eE][-+]?[0-9]{1,9})?")
_TAG_PREFIX = "tag:yaml.org,2002:"
_VARIANT = re.compile(r"![A-Za-z_][A-Za-z0-9_-]*")
_DROPPED = Scalar(value="", text="", line=0, column=0)


def resolve(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar in the YAML 1.2 core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in _NUMBER_STARTS:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _BASED.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


class Repeat(Struct, gc=False):
    """An entry whose key its mapping has already, at `first`."""

    mapping: Mapping
    first: Scalar
    key: Scalar
    value: Node


def parse(
    data: bytes, report: Diagnostics, variants: list[Mapping] | None = None, repeats: list[Repeat] | None = None
) -> Node | None:
    """Parse the single document in `data`; return its root node, or None after a report.

    With `variants`, `!word VALUE` is read as `word: VALUE` and added to them; otherwise the tag is refused. With
    `repeats`, entries with a key that is there already are added to them; otherwise they are errors.
    """
    if text_of(data, report, "a workflow file is YAML or JSON text in UTF-8", "save the file as UTF-8") is None:
        return None
    import yaml

    builder = Builder(report, variants)
    try:
        builder.build(loader_of(data).get_event)
    except Refused:
        return None
    except yaml.MarkedYAMLError as error:
        _report_syntax(error, data, report)
        return None
    except yaml.reader.ReaderError as error:
        character = error.character if isinstance(error.character, int) else ord(error.character)
        message = f"the character U+{character:04X} can't stand in YAML text"
        report.error("yaml", message, mark_at(data, error.position), hint="write it as an escape in double quotes")
        return None
    if repeats is not None:
        repeats += builder.repeats
    else:
        refuse_repeats(builder.repeats, report)
    root = builder.root
    if root is None or (isinstance(root, Scalar) and root.value is None):
        report.error("empty", "the file is empty", Mark(1, 1), hint="a workflow starts with `resile: 1`")
        return None
    return root


def refuse_repeats(repeats: list[Repeat], report: Diagnostics) -> None:
    """Report entries whose key is there already as errors."""
    for repeat in repeats:
        report_duplicate(report, "key", repeat.key, repeat.first)


def loader_of(data: bytes) -> Any:
    """The YAML event parser: libyaml if it is installed."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)(data)


def _report_syntax(error: Any, data: bytes, report: Diagnostics) -> None:
    """Report a syntax error in the parser's words; tabs get a clearer message."""
    mark = error.problem_mark or error.context_mark
    where = Mark(mark.line + 1, mark.column + 1)
    lines = data.decode("utf-8").splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: mark.column + 1] and not line[: mark.column].strip():
        report.error("yaml", "a tab can't indent YAML", where, hint="indent with spaces")
        return
    problem = error.problem or "this is not YAML"
    if wrong := _indentation_problem(lines, mark.line, mark.column, problem):
        report.error("yaml", wrong, where, hint="give it as many spaces as the lines that it belongs to")
        return
    if error.context:
        began = error.context_mark
        place = f" that began at {began.line + 1}:{began.column + 1}" if began is not None else ""
        problem = f"{problem} ({error.context}{place})"
    offending = f": `{shorten(line.strip())}`" if line.strip() else ""
    hint = "quote a value that holds `: `" if "mapping values" in problem else ""
    if line[: mark.column + 1].endswith("${") and (error.context or "").startswith("while parsing a flow"):
        hint = "inside {…} and […], quote a value that holds `${`"
    report.error("yaml", f"{problem}{offending}", where, hint=hint)


def _indentation_problem(lines: list[str], number: int, column: int, problem: str) -> str:
    """What is wrong with the indentation of a line at which the parser stopped; empty if it may be something else."""
    above = [(_indent(line), line.strip()) for line in lines[:number] if line.strip() and line.strip()[0] != "#"]
    if number >= len(lines) or not above:
        return ""
    own, (last, text) = _indent(lines[number]), above[-1]
    if "mapping values" in problem and own > last and ": " in text:
        return f"this line is indented deeper than `{shorten(text)}`, which has a value already"
    known: list[int] = []
    for spaces, _ in reversed(above):
        if not known or spaces < known[-1]:
            known.append(spaces)
    if column != own or own in known or not problem.startswith("did not find expected"):
        return ""
    return (
        f"this line is indented by {own} space{'s' * (own != 1)}, the lines above it by {' or '.join(map(str, known))}"
    )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


class Refused(Exception):
    """Raised when the parser gives up; the reason is already reported."""


class _Frame(Struct, gc=False):
    """A container that is still open."""

    node: Sequence | Mapping
    key: Scalar | None
    anchor: str | None
    nodes_before: int
    height: int = 0
    variant: str = ""


class Builder:
    """Builds nodes from events; iterative, so deep nesting needs no deep stack."""

    def __init__(self, report: Diagnostics, variants: list[Mapping] | None) -> None:
        self.report = report
        self.variants = variants
        self.repeats: list[Repeat] = []
        self.root: Node | None = None
        self.frames: list[_Frame] = []
        self.anchors: dict[str, tuple[Node, int, int]] = {}
        self.open_anchors: set[str] = set()
        self.nodes = 0
        self.alias_nodes = 0
        self.merge_key: Node | None = None

    def build(self, next_event: Any) -> None:
        """Read events to the end of the stream."""
        import yaml.events as events

        documents = 0
        scalar_event, frames = events.ScalarEvent, self.frames
        while True:
            event = next_event()
            kind = type(event)
            if kind is scalar_event:
                node = self._scalar(event)
                # Fast path: most scalars of a large file are list items, which have no key.
                parent = frames[-1].node if frames else None
                if type(parent) is Sequence:
                    parent.items.append(node)
                else:
                    self._place(node)
            elif kind is events.MappingStartEvent:
                self._open(Mapping({}, event.start_mark.line + 1, event.start_mark.column + 1), event)
            elif kind is events.SequenceStartEvent:
                self._open(Sequence([], event.start_mark.line + 1, event.start_mark.column + 1), event)
            elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
                self._close()
            elif kind is events.AliasEvent:
                self._alias(event)
            elif kind is events.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    self._refuse("yaml", "a second document starts here", event, "keep one workflow in a file")
            elif kind is events.StreamEndEvent:
                return

    def _refuse(self, code: str, message: str, event: Any, hint: str = "") -> None:
        mark = Mark(event.start_mark.line + 1, event.start_mark.column + 1)
        self.report.error(code, message, mark, hint=hint)
        raise Refused

    def _scalar(self, event: Any) -> Node:
        """Build a scalar: resolve plain ones, keep quoted ones as text, check tagged ones against their tag."""
        mark = event.start_mark
        text = event.value
        plain_one = event.implicit[0]
        node: Node = Scalar(resolve(text) if plain_one else text, text, mark.line + 1, mark.column + 1)
        if not plain_one and event.tag is not None:
            if self._is_variant(event.tag):
                plain = Scalar(resolve(text) if event.style is None else text, text, node.line, node.column)
                node = self._as_variant(event.tag, plain)
            else:
                node = Scalar(self._value_of_tag(event, text), text, node.line, node.column)
        if plain_one and text == "<<":
            self.merge_key = node
        if event.anchor is not None:
            self.anchors[event.anchor] = (node, 1, 0)
        self.nodes += 1
        return node

    def _is_variant(self, tag: str) -> bool:
        """Is this tag a variant name, as Prodigy's files use them?"""
        return self.variants is not None and _VARIANT.fullmatch(tag) is not None

    def _as_variant(self, tag: str, node: Node) -> Mapping:
        """Wrap a value in a mapping with its variant name as the key."""
        found = Mapping({tag[1:]: (Scalar(tag[1:], tag[1:], node.line, node.column), node)}, node.line, node.column)
        assert self.variants is not None
        self.variants.append(found)
        return found

    def _value_of_tag(self, event: Any, text: str) -> Any:
        """The value of a scalar with an explicit type."""
        name = event.tag.removeprefix(_TAG_PREFIX)
        if name in ("str", "!"):
            return text
        types: dict[str, tuple[type, ...]] = {
            "int": (int,), "float": (float, int), "bool": (bool,), "null": (type(None),)
        }  # fmt: skip
        if name not in types or not event.tag.startswith(_TAG_PREFIX):
            self._refuse("yaml", f"the tag `{shorten(event.tag)}` is not known here", event, "leave the tag out")
        value = resolve(text) if text or name == "null" else text
        if not isinstance(value, types[name]) or (isinstance(value, bool) and name != "bool"):
            self._refuse("yaml", f"`{shorten(text)}` is not of the type !!{name}", event)
        return float(value) if name == "float" and isinstance(value, int) else value

    def _open(self, node: Sequence | Mapping, event: Any) -> None:
        """Begin a container."""
        if len(self.frames) >= FILE_DEPTH_MAX:
            self._refuse("limit", f"nested deeper than {FILE_DEPTH_MAX} levels", event)
        expected = "map" if isinstance(node, Mapping) else "seq"
        variant = event.tag if event.tag is not None and self._is_variant(event.tag) else ""
        if event.tag is not None and not variant and event.tag not in ("!", _TAG_PREFIX + expected):
            self._refuse("yaml", f"the tag `{shorten(event.tag)}` is not known here", event, "leave the tag out")
        if event.anchor is not None:
            self.open_anchors.add(event.anchor)
        self.frames.append(_Frame(node, None, event.anchor, self.nodes, variant=variant))
        self.nodes += 1

    def _close(self) -> None:
        """Complete a container."""
        frame = self.frames.pop()
        node: Node = self._as_variant(frame.variant, frame.node) if frame.variant else frame.node
        if frame.anchor is not None:
            self.open_anchors.discard(frame.anchor)
            self.anchors[frame.anchor] = (node, self.nodes - frame.nodes_before, frame.height + 1)
        if self.frames and self.frames[-1].height <= frame.height:
            self.frames[-1].height = frame.height + 1
        self._place(node)

    def _alias(self, event: Any) -> None:
        """Insert the node of the anchor again, and count its size."""
        if event.anchor in self.open_anchors:
            self._refuse("yaml", f"the alias `*{event.anchor}` stands inside its own anchor", event)
        if event.anchor not in self.anchors:
            self._refuse("yaml", f"nothing above is anchored as `&{event.anchor}`", event)
        node, size, height = self.anchors[event.anchor]
        self.nodes += size
        self.alias_nodes += size
        if self.alias_nodes > ALIAS_NODES_MAX:
            self._refuse("limit", f"aliases expand to more than {ALIAS_NODES_MAX} nodes", event)
        if len(self.frames) + height > FILE_DEPTH_MAX:
            self._refuse("limit", f"nested deeper than {FILE_DEPTH_MAX} levels by aliases", event)
        if self.frames and self.frames[-1].height < height:
            self.frames[-1].height = height
        self._place(node)

    def _place(self, node: Node) -> None:
        """Add a complete node to its parent."""
        if not self.frames:
            self.root = node
            return
        frame = self.frames[-1]
        parent = frame.node
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif frame.key is None:
            frame.key = self._key(node)
        else:
            if frame.key is not _DROPPED and frame.key.text in parent.entries:
                self.repeats.append(Repeat(parent, parent.entries[frame.key.text][0], frame.key, node))
            elif frame.key is not _DROPPED:
                parent.entries[frame.key.text] = (frame.key, node)
            frame.key = None

    def _key(self, node: Node) -> Scalar:
        """Check a node in the position of a key; report an invalid one and drop its entry."""
        if not isinstance(node, Scalar):
            self.report.error("yaml", f"a key must be text, not {describe(node)}", node)
            return _DROPPED
        if type(node.value) is not str:
            hint = f'write it in quotes: "{shorten(node.text)}"'
            self.report.error("key-type", f"a key must be text, not {describe(node)}", node, hint=hint)
            # Keep integer keys: readers that accept them withdraw this error.
            if type(node.value) is not int:
                return _DROPPED
        if node is self.merge_key:
            hint = "YAML 1.2 has no merge keys: write the keys out, or use an alias for a whole value"
            self.report.error("yaml", "`<<` does not merge here", node, hint=hint)
            return _DROPPED
        return node
