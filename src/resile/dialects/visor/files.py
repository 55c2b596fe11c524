"""Other files that a Visor file names: those that it extends, and those whose workflows it imports.

    extends, include   the other file's keys, below this one's: mappings are merged, other values are replaced
    imports            the other file's workflow, under its `id`

Only local files are read, relative to the file that names them. A finding in one of them names that file.
"""

from __future__ import annotations

import os

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe
from resile.dialects.formats.yaml import parse
from resile.dialects.native.nodes import items_of
from resile.dialects.reading.beside import open_beside
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.errors import shorten
from resile.model.limits import CHILD_DEPTH_MAX, FILE_BYTES_MAX

_EXTENDS = ("extends", "include")


def paths_of(report: Diagnostics, node: Node) -> list[Scalar]:
    """The paths under a key: one, or a list."""
    found: list[Scalar] = []
    for item in items_of(node):
        if isinstance(item, Scalar) and isinstance(item.value, str) and item.text.strip():
            found.append(item)
        else:
            report.error("type", f"expected the path of a file, not {describe(item)}", item)
    return found


def read_other(report: Diagnostics, source: Source, node: Scalar) -> tuple[Source, Mapping] | None:
    """Read another file, relative to this one; return None after a report. Its nodes have its name."""
    name = node.text.strip()
    if "://" in name:
        report.error("not-run", f"`{shorten(name)}` is not a local file", node, hint="keep a copy beside this file")
        return None
    if name == "default":
        report.error("not-run", "`default` is a file that Visor brings along", node, hint="name a local file")
        return None
    path = os.path.join(source.folder, name)
    called = os.path.normpath(os.path.join(os.path.dirname(source.file), name))
    try:
        with open_beside(path) as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        report.error("file", f"`{shorten(name)}` can't be read: {reason}", node)
        return None
    other = Diagnostics(called)
    root = parse(data, other)
    report.errors += other.errors
    if isinstance(root, Mapping):
        _set_file(root, called)
        return Source(called, data, os.path.dirname(os.path.abspath(path))), root
    if root is not None:
        report.error("type", f"`{shorten(name)}` is no workflow file: it is {describe(root)}", node)
    return None


def _set_file(root: Node, file: str) -> None:
    """Set the file of every node of a tree."""
    work = [root]
    while work:
        node = work.pop()
        node.file = file
        if isinstance(node, Sequence):
            work += node.items
        elif isinstance(node, Mapping):
            for key, value in node.entries.values():
                key.file = file
                work.append(value)


def extend(source: Source, root: Mapping, report: Diagnostics, loading: tuple[str, ...] = ()) -> Mapping:
    """Merge a file over those that it extends; `checks` are `steps` then, unless a file has both."""
    here = os.path.abspath(os.path.join(source.folder, os.path.basename(source.file)))
    under: Mapping | None = None
    for word in _EXTENDS:
        for node in paths_of(report, root.entries[word][1]) if word in root.entries else []:
            if os.path.abspath(os.path.join(source.folder, node.text)) in (*loading, here):
                report.error("extends", f"`{shorten(node.text)}` extends itself", node)
                continue
            if len(loading) >= CHILD_DEPTH_MAX:
                report.error("limit", f"files extend each other deeper than {CHILD_DEPTH_MAX} levels", node)
                continue
            other = read_other(report, source, node)
            if other is None:
                continue
            below = extend(*other, report, (*loading, here))
            under = below if under is None else merge(under, below)
    entries = {key: entry for key, entry in root.entries.items() if key not in _EXTENDS}
    if "steps" not in entries:
        entries = {("steps" if key == "checks" else key): entry for key, entry in entries.items()}
    own = Mapping(entries, root.line, root.column, root.file)
    return own if under is None else merge(under, own)


def merge(under: Mapping, over: Mapping) -> Mapping:
    """Merge two mappings, those inside them too; for other values the upper one wins."""
    entries = dict(under.entries)
    for name, (key, value) in over.entries.items():
        below = entries.get(name)
        if below is not None and isinstance(below[1], Mapping) and isinstance(value, Mapping):
            entries[name] = (key, merge(below[1], value))
        else:
            entries[name] = (key, value)
    return Mapping(entries, over.line, over.column, over.file)
