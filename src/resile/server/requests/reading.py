"""Converts the raw parts of a request (query, body, cursors) to the declared types, and names what does not fit.

Unknown fields, wrong types and values out of their range are 422, a body that is no JSON is 400.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from resile.server.declarations import Items, NoQuery, Page
from resile.server.problems import Problem

BODY_BYTES_MAX = 32 * 2**20
QUERY_FIELDS_MAX = 100
T = TypeVar("T")
S = TypeVar("S", bound=Struct)


def read_query(text: bytes, declared: type[Struct] | None) -> Struct:
    """The parameters of a query as its declared type."""
    kind = declared or NoQuery
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=QUERY_FIELDS_MAX,
            encoding="utf-8",
            errors="strict",
        )
    except ValueError as error:
        raise Problem("malformed_request", "the query is not valid UTF-8, or has too many parameters") from error
    lists = _lists_of(kind)
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in lists:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Problem("invalid_field", f"query: `{name}` is given twice")
        else:
            found[name] = value
    return _convert(found, kind, "query", strict=False)


@cache
def _lists_of(kind: type[Struct]) -> frozenset[str]:
    """The parameters that may be given several times."""
    fields = msgspec.inspect.type_info(kind)
    assert isinstance(fields, msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in fields.fields if isinstance(field.type, msgspec.inspect.ListType))


def read_body(data: bytes, kind: type[S]) -> S:
    """A JSON body as its declared type."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise Problem("malformed_json", f"the body is not valid JSON: {error}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise Problem("malformed_json", "the body is not valid JSON: it is not UTF-8, or nested too deeply") from error
    return _convert(found, kind, "body", strict=True)


def _convert(found: Any, kind: type[S], part: str, *, strict: bool) -> S:
    """Decoded data as its declared type; raises a Problem that names what does not fit."""
    try:
        return msgspec.convert(found, kind, strict=strict)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Problem("invalid_field", f"{part}: {error}", hint="the OpenAPI document has every field") from error


def cursor_of(page: Page) -> int:
    """The place at which a page begins: a number that the list gave out before, 0 for the first page."""
    if not page.cursor:
        return 0
    try:
        text = urlsafe_b64decode(page.cursor.encode("ascii") + b"==").decode("ascii")
        mark, _, number = text.partition(":")
        if mark != "after" or not number.isdigit() or len(number) > 18 or _write(int(number)) != page.cursor:
            raise ValueError(text)
    except ValueError as error:
        raise Problem("invalid_field", "query: `cursor` is none that this list has given") from error
    return int(number)


def _write(place: int) -> str:
    return urlsafe_b64encode(f"after:{place}".encode()).decode().rstrip("=")


def page_by(found: Iterable[tuple[int, T]], page: Page) -> Items[T]:
    """A page of the first items of a stream, which gives each item with its place and begins where the page does."""
    listed = list(islice(found, page.limit + 1))
    more = len(listed) > page.limit
    listed = listed[: page.limit]
    return Items([item for _, item in listed], _write(listed[-1][0]) if more else None)


def page_of(found: Iterable[T], page: Page) -> Items[T]:
    """A page of a list that is made anew for each request: places count its items."""
    return page_by(_skip(found, cursor_of(page)), page)


def _skip(found: Iterable[T], start: int) -> Iterator[tuple[int, T]]:
    yield from islice(((number, item) for number, item in enumerate(found, 1)), start, None)
