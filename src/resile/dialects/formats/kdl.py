"""KDL 2 with positions: bytes in, a list of nodes out, each with its arguments, properties and children.

    name argument argument property=value { child; child }      # one node; a newline or `;` ends it

    parse_document(data, report)    the nodes of a file, or None after a report

Supported: bare, quoted, raw and multi-line strings, numbers in four bases, `#true` and the other keywords, all three
kinds of comments (`/-` drops the part after it), line continuations. Refused: type annotations, which have no meaning
in a workflow, and the bare `true` of KDL 1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from resile.dialects.formats.kdl_tokens import KEYWORDS, Strings
from resile.dialects.formats.nodes import Scalar, report_duplicate
from resile.dialects.formats.scanner import NUMBER_CHARACTERS_MAX, parse_text
from resile.errors import shorten
from resile.model.limits import FILE_DEPTH_MAX

if TYPE_CHECKING:
    from resile.dialects.reading.diagnostics import Diagnostics

_NUMBER = re.compile(
    r"[+-]?(?:0x[0-9a-fA-F][0-9a-fA-F_]*|0o[0-7][0-7_]*|0b[01][01_]*"
    r"|(?P<ten>[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9][0-9_]*)?))"
)
_NUMBER_STARTS = re.compile(r"[+-]?\.?[0-9]")
_KEYWORD = re.compile(r"#-?[a-z]+")


class KdlNode(Struct):
    """One node of a file; `children` is None if it has no block."""

    name: Scalar
    arguments: list[Scalar]
    properties: dict[str, tuple[Scalar, Scalar]]
    children: list[KdlNode] | None = None

    @property
    def line(self) -> int:
        """The line, from 1."""
        return self.name.line

    @property
    def file(self) -> str:
        """The file of its name, if it is not the file being read."""
        return self.name.file

    @property
    def column(self) -> int:
        """The column, from 1."""
        return self.name.column


def parse_document(data: bytes, report: Diagnostics) -> list[KdlNode] | None:
    """Parse a KDL file; return its nodes, or None after a report."""
    return parse_text("KDL", data, report, lambda text: _Reader(text, report).document())


class _Reader(Strings):
    """Parses a text to nodes; recursion is bounded by the nesting limit."""

    def document(self) -> list[KdlNode]:
        """Parse all nodes of the file."""
        nodes = self._nodes(0)
        if self.peek():
            self.refuse("this `}` closes nothing")
        if not nodes:
            self.refuse("the file is empty", 0, code="empty")
        return nodes

    def _nodes(self, depth: int) -> list[KdlNode]:
        """Parse the nodes up to the end of a block or of the file."""
        nodes: list[KdlNode] = []
        while True:
            self.skip_lines()
            character = self.peek()
            if character in ("", "}"):
                return nodes
            if character == ";":
                self.at += 1
                continue
            dropped = self._slashdash()
            node = self._node(depth)
            if not dropped:
                nodes.append(node)

    def _slashdash(self) -> bool:
        """Skip `/-`, which drops the part after it; was it there?"""
        if not self.text.startswith("/-", self.at):
            return False
        self.at += 2
        self.skip_lines()
        return True

    def _node(self, depth: int) -> KdlNode:
        """Parse a node with its arguments, properties and children."""
        self._no_annotation()
        node = KdlNode(self._name("the name of a node"), [], {})
        while True:
            parted = self.skip_blanks()
            if self.ends_node():
                return node
            dropped = self._slashdash()
            if self.peek() == "{":
                children = self._block(depth)
                if not dropped and node.children is not None:
                    self.refuse(f"the node `{shorten(node.name.text)}` has a second block")
                node.children = node.children if dropped else children
                continue
            if not parted and not dropped:
                self.refuse(f"{self.text_here()} stands where a blank or the end of the node is expected")
            if node.children is not None:
                self.refuse("nothing but the end of the node stands behind its block")
            self._entry(node, dropped)

    def _block(self, depth: int) -> list[KdlNode]:
        """The children of a node."""
        if depth >= FILE_DEPTH_MAX:
            self.refuse(f"nested deeper than {FILE_DEPTH_MAX} levels", code="limit")
        opened = self.at
        self.at += 1
        children = self._nodes(depth + 1)
        if self.peek() != "}":
            self.refuse("this block does not end", opened)
        self.at += 1
        return children

    def _entry(self, node: KdlNode, dropped: bool) -> None:
        """Parse an argument or a property; report a duplicate property."""
        value = self._value()
        behind = self.at
        self.skip_blanks()
        if self.peek() != "=":
            self.at = behind
            if not dropped:
                node.arguments.append(value)
            return
        if not isinstance(value.value, str):
            self.refuse(f"`{shorten(value.text)}` can't be the name of a property")
        self.at += 1
        self.skip_blanks()
        given = self._value()
        if dropped:
            return
        if value.text in node.properties:
            report_duplicate(self.report, "property", value, node.properties[value.text][0])
        else:
            node.properties[value.text] = (value, given)

    def _value(self) -> Scalar:
        """A string, a number or a keyword."""
        self._no_annotation()
        if _NUMBER_STARTS.match(self.text, self.at):
            return self._number()
        if self.peek() == "#" and not self.at_raw_string():
            return self._keyword()
        return self._name("a value")

    def _name(self, what: str) -> Scalar:
        begin, text = self.at, self.string(what)
        return self.scalar(text, text, begin)

    def _no_annotation(self) -> None:
        if self.peek() == "(":
            self.refuse("type annotations have no meaning in a workflow", hint="take the `(...)` out")

    def _number(self) -> Scalar:
        """A number."""
        begin, end = self.at, self.word_end(self.at)
        written = self.text[begin:end]
        found = _NUMBER.fullmatch(written)
        if found is None:
            self.refuse(f"`{shorten(written)}` is no number", hint="put text that starts like a number into quotes")
        if len(written) > NUMBER_CHARACTERS_MAX:
            self.refuse(f"a number has at most {NUMBER_CHARACTERS_MAX} characters", code="limit")
        self.at = end
        digits = written.replace("_", "")
        if found["ten"] is None:
            return self.scalar(int(digits, 0), written, begin)
        return self.scalar(float(digits) if set(digits) & set(".eE") else int(digits), written, begin)

    def _keyword(self) -> Scalar:
        """Parse `#true`, `#null` and the other keywords."""
        begin, found = self.at, _KEYWORD.match(self.text, self.at)
        if found is None or found[0] not in KEYWORDS:
            shown = found[0] if found is not None else "#"
            self.refuse(f"`{shorten(shown)}` is no keyword", hint=f"those are {', '.join(KEYWORDS)}")
        self.at = found.end()
        return self.scalar(KEYWORDS[found[0]], found[0].removeprefix("#"), begin)
