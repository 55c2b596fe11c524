"""Runs of lines that are written alike, read at a glance: a large file is mostly `NAME: {key: value, …}`.

    text -> lines -> runs of such lines, each put away behind a mark -> libyaml reads the rest
                                                                     -> marks become the entries of their runs

The mark is a character that the file does not have, so it can turn up only where it was put. It takes the first two
lines of its run, as a key and a list of one item below it; the others become blank, so that every place stays right.
Such a list can't stand in a flow mapping, where lines without commas between them would be wrong.

Nothing is ever said of a file here. Where something is to be said, or a mark is not found as it was put (in a block of
text, or with more text below it), nothing comes of it, and the file is read once more without: so what a tree is, and
what is wrong with a file, is decided in one place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from resile.dialects.formats.yaml import Builder, Mapping, Node, Refused, Scalar, Sequence, loader_of, resolve
from resile.dialects.reading.diagnostics import Diagnostics
from resile.model.limits import FILE_DEPTH_MAX

if TYPE_CHECKING:
    from typing import Any

RUN_LINES_MIN = 16
_MARK = "\ue000"
# Other line breaks than "\n" would be counted differently here, and a byte order mark moves the first line.
_UNREADABLE = (_MARK, "\r", "\x85", "\u2028", "\u2029", "\ufeff")
_LINE = re.compile(r"( *)([A-Za-z_][A-Za-z0-9_-]{0,199}): \{(.+)\}")
_PAIR = re.compile(
    r"([A-Za-z_][A-Za-z0-9_-]{0,199}): "
    r'(?:"([ !#-\[\]-~]*)"|\[([A-Za-z0-9_./, -]+)\]|([A-Za-z0-9_./](?:[A-Za-z0-9_./= -]*[A-Za-z0-9_./=-])?))(?:, |\Z)'
)
_WORD = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*")
# A mapping in which a list stands: so much deeper goes a line.
_LEVELS = 2


class _Word(Struct, frozen=True, gc=False):
    """A scalar, so many characters behind where its mapping begins."""

    value: str | int | float | bool | None
    text: str
    offset: int


class _Pair(Struct, frozen=True, gc=False):
    """A key with its value: a word, or a list of words that begins at `offset`; `names` where they are all text."""

    key: _Word
    value: _Word | None
    words: tuple[_Word, ...]
    names: tuple[str, ...]
    offset: int


class _Line(Struct, frozen=True, gc=False):
    """One entry of a run: its name, and what its mapping holds."""

    name: str
    pairs: tuple[_Pair, ...]


class _Run(Struct, gc=False):
    """Lines of the same indentation, each an entry of one block mapping; the first has the number `line`, from 1."""

    line: int
    indent: int
    lines: list[_Line]


def glance(data: bytes, variants: list[Mapping] | None) -> Node | None:
    """The root node of a file that has such runs and nothing to complain of; None where that can't be said."""
    import yaml

    text = data.decode()
    if any(character in text for character in _UNREADABLE):
        return None
    lines = text.split("\n")
    runs = _runs(lines)
    if not runs:
        return None
    marked = {_put_away(lines, run, f"{_MARK}{number}"): run for number, run in enumerate(runs)}
    found: list[Mapping] | None = None if variants is None else []
    builder = _Glancing(found, marked)
    try:
        builder.build(loader_of("\n".join(lines).encode()).get_event)
    except (Refused, yaml.YAMLError):
        return None
    if builder.runs:
        return None
    if variants is not None and found:
        variants += found
    return builder.root


def _runs(lines: list[str]) -> list[_Run]:
    """The runs of a file, each long enough to be worth it."""
    runs: list[_Run] = []
    bodies: dict[str, tuple[_Pair, ...]] = {}
    run: _Run | None = None
    for number, line in enumerate(lines, 1):
        found = _LINE.fullmatch(line) if line.endswith("}") else None
        if found is None:
            run = None
            continue
        indent, name, body = found.groups()
        pairs = bodies.get(body)
        if pairs is None:
            pairs = bodies[body] = _pairs(body)
        if not pairs or type(resolve(name)) is not str:
            run = None
            continue
        if run is None or run.indent != len(indent):
            run = _Run(number, len(indent), [])
            runs.append(run)
        run.lines.append(_Line(name, pairs))
    return [run for run in runs if len(run.lines) >= RUN_LINES_MIN]


def _pairs(body: str) -> tuple[_Pair, ...]:
    """What stands between the braces of a line; nothing where any of it is not of the plainest kind."""
    pairs: dict[str, _Pair] = {}
    at = 0
    while at < len(body):
        found = _PAIR.match(body, at)
        if found is None or found[1] in pairs or type(resolve(found[1])) is not str:
            return ()
        # Places are counted from the opening brace, which is not part of the body.
        key = _Word(found[1], found[1], at + 1)
        quoted, listed, plain = found.group(2, 3, 4)
        words: tuple[_Word, ...] = ()
        value: _Word | None = None
        offset = found.start(found.lastindex or 0)
        if listed is not None:
            words = _words(listed, offset + 1)
            if not words:
                return ()
        elif quoted is not None:
            value = _Word(quoted, quoted, offset)
        else:
            value = _Word(resolve(plain), plain, offset + 1)
        names = tuple([word.text for word in words if type(word.value) is str])
        pairs[found[1]] = _Pair(key, value, words, names if len(names) == len(words) else (), offset)
        at = found.end()
    return tuple(pairs.values())


def _words(listed: str, offset: int) -> tuple[_Word, ...]:
    """What stands between the brackets of a list, which begins there; nothing where it is not just words."""
    words: list[_Word] = []
    for text in listed.split(", "):
        if _WORD.fullmatch(text) is None:
            return ()
        words.append(_Word(resolve(text), text, offset))
        offset += len(text) + len(", ")
    return tuple(words)


def _put_away(lines: list[str], run: _Run, mark: str) -> str:
    """Leave a mark for the lines of a run; the mark."""
    first, indent = run.line - 1, " " * run.indent
    count = len(run.lines)
    lines[first : first + count] = [f"{indent}{mark}:", f"{indent}- {mark}", *[""] * (count - 2)]
    return mark


def _mapping(pairs: tuple[_Pair, ...], line: int, column: int) -> Mapping:
    """The mapping that a line holds, at its place."""
    entries: dict[str, tuple[Scalar, Node]] = {}
    for pair in pairs:
        key, value = pair.key, pair.value
        node: Node
        if value is not None:
            node = Scalar(value.value, value.text, line, column + value.offset)
        else:
            items: list[Node] = [Scalar(word.value, word.text, line, column + word.offset) for word in pair.words]
            node = Sequence(items, line, column + pair.offset, pair.names)
        entries[key.text] = (Scalar(key.text, key.text, line, column + key.offset), node)
    return Mapping(entries, line, column)


class _Unsaid(Diagnostics):
    """Whatever there is to say ends the reading: it is said by the one that follows."""

    def _add(self, *_: Any, **__: Any) -> None:
        """Read no further."""
        raise Refused


class _Glancing(Builder):
    """Makes nodes of events, and entries of marks; `runs` are those whose marks were not met yet."""

    def __init__(self, variants: list[Mapping] | None, runs: dict[str, _Run]) -> None:
        super().__init__(_Unsaid(""), variants)
        self.runs = runs

    def _place(self, node: Node) -> None:
        """Put a node where it belongs, or the entries of a run where its mark stands."""
        frame = self.frames[-1] if self.frames else None
        if frame is None or frame.key is None or frame.key.text[:1] != _MARK:
            super()._place(node)
            return
        run = self.runs.pop(frame.key.text, None)
        parent = frame.node
        if run is None or not isinstance(parent, Mapping) or not _is_mark(node, frame.key):
            raise Refused
        if len(self.frames) + _LEVELS > FILE_DEPTH_MAX:
            raise Refused
        frame.key = None
        column = run.indent + 1
        for line, entry in enumerate(run.lines, run.line):
            name = entry.name
            if name in parent.entries:
                raise Refused
            mapping = _mapping(entry.pairs, line, column + len(name) + len(": "))
            parent.entries[name] = (Scalar(name, name, line, column), mapping)

    def _alias(self, _: Any) -> None:
        """Refuse aliases: how much they stand for is counted in nodes, and entries of runs are not counted."""
        raise Refused


def _is_mark(node: Node, key: Scalar) -> bool:
    """Is this what was put below a mark: a list with nothing but the mark in it?"""
    if not isinstance(node, Sequence) or len(node.items) != 1:
        return False
    only = node.items[0]
    return isinstance(only, Scalar) and only.text == key.text
