"""Evaluates `json_path` on a document in memory.

If a path names one array, its elements are the items. A path that leads nowhere is refused; a wildcard, slice or filter
that finds nothing gives no items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resile.executors.programs.items.text import ItemsRefused, kind_of

if TYPE_CHECKING:
    from jsonpath import JSONPath
    from jsonpath.segments import JSONPathSegment


def select(document: Any, json_path: str) -> list[Any]:
    """The items that a path finds in a document."""
    path = compile_path(json_path)
    found = _find(path, len(path.segments), document)
    if not found:
        return _no_items(path, document)
    if path.singular_query() or (len(found) == 1 and isinstance(found[0], list) and not _picks(path.segments[-1])):
        if not isinstance(found[0], list):
            raise ItemsRefused(f"{json_path} is {kind_of(found[0])}, not an array")
        return found[0]
    return found


def compile_path(json_path: str) -> JSONPath:
    """Compile a path according to RFC 9535."""
    from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError

    try:
        path = JSONPathEnvironment(strict=True).compile(json_path)
    except JSONPathError as error:
        # Only the first line: the others draw the position.
        raise ItemsRefused(f"json_path `{json_path}` is no JSONPath: {error.args[0]}") from error
    assert isinstance(path, JSONPath)
    return path


def _find(path: JSONPath, count: int, document: Any) -> list[Any]:
    """The values that the first `count` segments of a path find."""
    from jsonpath import JSONPathError

    if not isinstance(document, dict | list):
        # Avoid the library here: it would parse a text as JSON.
        return [] if count else [document]
    try:
        return _prefix(path, count).findall(document)
    except JSONPathError as error:
        raise ItemsRefused(f"json_path `{path}`: {error.args[0]}") from error


def _prefix(path: JSONPath, count: int) -> JSONPath:
    """The path of the first `count` segments of a path."""
    from jsonpath import JSONPath

    return JSONPath(env=path.env, segments=path.segments[:count])


def _picks(segment: JSONPathSegment) -> bool:
    """Does a segment search (wildcard, slice or filter)? Others name a value that must exist."""
    from jsonpath.selectors import IndexSelector, NameSelector

    return not all(isinstance(selector, IndexSelector | NameSelector) for selector in segment.selectors)


def _no_items(path: JSONPath, document: Any) -> list[Any]:
    """Return no items if a segment of the path searched and found nothing; refuse a path that leads nowhere."""
    before = [document]
    for count, segment in enumerate(path.segments, 1):
        found = _find(path, count, document)
        if not found:
            if _picks(segment) and any(isinstance(value, dict | list) for value in before):
                break
            raise ItemsRefused(f"nothing is there under {_prefix(path, count)}")
        before = found
    return []
