"""Reads the items in a text: JSON, JSON Lines or plain lines, distinguished by their first line.

    read_texts(file, form, json_path) -> each item as JSON on one line

    form "lines"    JSON Lines, by the file's name
    form "json"     JSON; or JSON Lines, where the first line is a value and there is more after it
    form "output"   the output of a command or a step: JSON or JSON Lines where it begins with `[` or `{` (one object
                    in one line is one item), JSON Lines where the first line is a quoted text, else one text a line

For a `json_path`, JSON Lines are the list of their lines. A path of plain names, with or without `[*]` at its end, is
followed in the stream; any other path needs the whole text in memory. If a path names one array, its elements are the
items. A path that leads nowhere is refused; a wildcard, slice or filter that finds nothing gives no items. Blank lines
are no items.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, assert_never

from resile.executors.programs.items.scan import ObjectFound, elements, shown_path
from resile.executors.programs.items.text import (
    ItemsRefused,
    check_item,
    decode,
    encode,
    is_json,
    kind_of,
    size_error,
)
from resile.model.limits import ITEM_BYTES_MAX, ITEMS_WHOLE_BYTES_MAX

if TYPE_CHECKING:
    from jsonpath import JSONPath
    from jsonpath.function_extensions import FilterFunction
    from jsonpath.segments import JSONPathSegment

Form = Literal["lines", "json", "output"]
Shape = Literal["nothing", "document", "lines", "plain"]

LINES_ENDINGS = (".jsonl", ".ndjson")
CLOCKS_APART_SECONDS = 1.0
"""The most by which the clock may be ahead of a file system's timestamps."""
_BLANK = b" \t\r\n"
_MARK = b"\xef\xbb\xbf"
_PLAIN_PATH = re.compile(r"\$((?:\.[A-Za-z_][A-Za-z0-9_-]*)*)(\[\*\])?")


def form_of(path: str) -> Form:
    """How to read a file, by its name."""
    return "lines" if path.lower().endswith(LINES_ENDINGS) else "json"


def open_input(path: str, folder: str, directory: str, since: float | None = None) -> BinaryIO:
    """Open the file of a path: in the folder of the workflow's file, else in the directory of the step.

    A file in that directory that was written after `since`, by a step of the same run, takes precedence.
    """
    places = (os.path.join(folder, path), os.path.join(directory, path))
    is_new = since is not None and _modified_at(places[1]) >= since - CLOCKS_APART_SECONDS
    for place in reversed(places) if is_new else places:
        try:
            if not stat.S_ISREG(os.stat(place).st_mode):
                raise ItemsRefused(f"{path} is not a file")
            return open(place, "rb")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise ItemsRefused(f"can't read {path}: {getattr(error, 'strerror', error)}") from error
    looked = " and in ".join(dict.fromkeys(os.path.abspath(place) for place in (folder, directory)))
    raise ItemsRefused(f"there is no file {path} (looked for in {looked})")


def _modified_at(path: str) -> float:
    """When a file was last written; minus infinity if it does not exist."""
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):
        return -inf


def read_texts(file: BinaryIO, form: Form, json_path: str) -> Iterator[bytes]:
    """Each item of a seekable file, as JSON on one line."""
    start = len(_MARK) if file.read(len(_MARK)) == _MARK else 0
    file.seek(start)
    shape = _shape(file, form, json_path)
    file.seek(start)
    match shape:
        case "nothing":
            if json_path or form == "json":
                raise ItemsRefused("it is empty")
        case "plain":
            yield from _plain_lines(file)
        case "lines":
            yield from _json_lines(file, json_path)
        case "document":
            yield from _document(file, json_path)
        case _:
            assert_never(shape)


def is_plain(json_path: str) -> bool:
    """Does a path consist of plain names only, so that it can be followed in the stream?"""
    return not json_path or _PLAIN_PATH.fullmatch(json_path) is not None


def _shape(file: BinaryIO, form: Form, json_path: str) -> Shape:
    """The shape of a text, by its first line and whether there is more."""
    if form == "lines":
        return "lines"
    line = read = b""
    while not line and (read := file.readline(ITEM_BYTES_MAX)):
        line = read.strip(_BLANK)
    if not line:
        return "nothing"
    may_be_plain = form == "output" and not json_path
    if may_be_plain and line[:1] not in (b"[", b"{"):
        if line[:1] == b'"' and is_json(line):
            return "lines"
        # A query that found nothing prints only `null`.
        return "document" if line == b"null" and not _has_more(file) else "plain"
    if (len(read) == ITEM_BYTES_MAX and not read.endswith(b"\n")) or not is_json(line):
        return "document"
    one_object = may_be_plain and line.startswith(b"{")
    return "lines" if one_object or _has_more(file) else "document"


def _has_more(file: BinaryIO) -> bool:
    return any(piece.strip(_BLANK) for piece in iter(lambda: file.readline(ITEM_BYTES_MAX), b""))


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(number, text) of each line that is not blank."""
    number = index = 0
    while line := file.readline(ITEM_BYTES_MAX + 1):
        number += 1
        if len(line) > ITEM_BYTES_MAX and not line.endswith(b"\n"):
            size = len(line)
            while (more := file.readline(ITEM_BYTES_MAX)) and not more.endswith(b"\n"):
                size += len(more)
            raise size_error(index, size + len(more.rstrip(b"\r\n")))
        if line.strip(_BLANK):
            yield number, line
            index += 1


def _plain_lines(file: BinaryIO) -> Iterator[bytes]:
    for _, line in _lines(file):
        yield encode(line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape"))


def _json_lines(file: BinaryIO, json_path: str) -> Iterator[bytes]:
    """The items of JSON Lines: each line, or what a path finds in the list of lines."""
    if not is_plain(json_path):
        _check_size(file)
        found = select([decode(text) for text in _check_items("line", _lines(file))], json_path)
        yield from map(encode, found)
        return
    if names := _names(json_path):
        raise ItemsRefused(f"nothing is there under {shown_path(names[:1])}: JSON Lines are an array")
    yield from _check_items("line", _lines(file))


def _check_items(noun: str, numbered: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """Each text, checked to be a JSON value; errors name it by its noun and number."""
    for number, text in numbered:
        try:
            item = check_item(text.strip(_BLANK))
        except ItemsRefused as problem:
            raise ItemsRefused(f"{noun} {number}: {problem.message}") from problem
        yield item


def _document(file: BinaryIO, json_path: str) -> Iterator[bytes]:
    """The items of one JSON document."""
    start = file.tell()
    if is_plain(json_path):
        try:
            yield from _check_items("item", enumerate(elements(file.read, _names(json_path))))
            return
        except ObjectFound:
            # Nothing was yielded yet: there is an object instead of the array. A wildcard selects its values.
            if not json_path.endswith("[*]"):
                raise ItemsRefused(f"{json_path or '$'} is an object, not an array") from None
            file.seek(start)
    _check_size(file)
    yield from (check_item(encode(value)) for value in select(decode(file.read()), json_path))


def _names(json_path: str) -> tuple[str, ...]:
    found = _PLAIN_PATH.fullmatch(json_path or "$")
    assert found is not None
    return tuple(found[1].split(".")[1:])


def _check_size(file: BinaryIO) -> None:
    """Refuse a text that must be in memory as a whole and is too large for that."""
    start = file.tell()
    size = file.seek(0, 2) - start
    file.seek(start)
    if size > ITEMS_WHOLE_BYTES_MAX:
        limit = f"it has {size} bytes, at most {ITEMS_WHOLE_BYTES_MAX} are searched with such a json_path"
        raise ItemsRefused(f"{limit}: one like $.a.b[*] is followed in a text of any size")


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
        environment = JSONPathEnvironment(strict=True)
        environment.function_extensions |= _pattern_functions()
        path = environment.compile(json_path)
    except JSONPathError as error:
        # Only the first line: the others draw the position.
        raise ItemsRefused(f"json_path `{json_path}` is no JSONPath: {error.args[0]}") from error
    assert isinstance(path, JSONPath)
    return path


def _pattern_functions() -> dict[str, FilterFunction]:
    """The functions `match` and `search` of paths, with patterns that can't take for ever."""
    from jsonpath import JSONPathError
    from jsonpath.function_extensions import Match, Search

    from resile.model.patterns import PatternRefused, compile_pattern

    def compile_once(_: object, pattern: str) -> Any:
        """The compiled pattern, in place of the library's."""
        try:
            return compile_pattern(pattern, by_line=False)
        except PatternRefused as problem:
            raise JSONPathError(f"the pattern `{pattern}` is refused: {problem}", token=None) from problem

    replaced = {"check_cache": compile_once}
    return {"match": type("Match", (Match,), replaced)(), "search": type("Search", (Search,), replaced)()}


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
