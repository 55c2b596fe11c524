"""Reads the file of `resile run --executor FILE`: TOML with one table, `[executor]`."""

from __future__ import annotations

import os
import re
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.context import NativeReading
from resile.dialects.native.keys.executor import read_executor
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics, did_you_mean
from resile.errors import ResileError, WorkflowError
from resile.model.executor import ExecutorSettings

BYTES_MAX = 64 * 1024
TABLE = "executor"


def read_executor_file(path: str) -> ExecutorSettings:
    """The settings in a file; raises an error with the place of each problem."""
    import tomllib

    try:
        with open(path, "rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ResileError("file", f"can't be read: {error.strerror}", where=path) from error
    if len(data) > BYTES_MAX:
        raise ResileError("file", f"has more than {BYTES_MAX} bytes", where=path)
    report = Diagnostics(path)
    try:
        text = data.decode()
        found = tomllib.loads(text)
    except UnicodeDecodeError:
        raise ResileError("syntax", "is not UTF-8", where=path) from None
    except tomllib.TOMLDecodeError as error:
        words = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        where = f"{path}:{words[1]}:{words[2]}" if words else path
        message = str(error).partition(" (at ")[0]
        raise ResileError("syntax", message, where=where, hint="the file is TOML") from None
    settings = None
    for name in found:
        if name != TABLE:
            key = Scalar(name, name, *_place_of(text, name))
            hint = did_you_mean(name, (TABLE,)) or "the file has one table, `[executor]`"
            report.error("unknown-key", f"unknown table or key `{name}`", key, hint=hint)
    if TABLE not in found:
        report.error("value", "there is no table `[executor]`", Scalar(None, "", 1, 1), hint="begin with `[executor]`")
    else:
        reading = NativeReading(Source(path, data, os.path.dirname(os.path.abspath(path))), report)
        settings = read_executor(reading, _node(text, TABLE, found[TABLE]))
    if report.errors:
        first = report.errors[0]
        count = f" (and {len(report.errors) - 1} more)" if len(report.errors) > 1 else ""
        raise WorkflowError(
            first.code, first.message + count, where=first.where, hint=first.hint, diagnostics=report.errors
        )
    assert isinstance(settings, ExecutorSettings)
    return settings


def _place_of(text: str, name: str) -> tuple[int, int]:
    """The line and column of a key or table."""
    pattern = rf"^[ \t]*(?:\[+[ \t]*)?[\"']?(?P<name>{re.escape(name)})[\"']?[ \t]*[\].=]"
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        return 1, 1
    start = match.start("name")
    return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)


def _node(text: str, name: str, value: Any) -> Node:
    """A value as a node, with the place of its key."""
    line, column = _place_of(text, name)
    if isinstance(value, dict):
        entries = {
            key: (Scalar(key, key, *_place_of(text, key)), _node(text, key, inner)) for key, inner in value.items()
        }
        return Mapping(entries, line, column)
    if isinstance(value, list):
        return Sequence([_node(text, name, item) for item in value], line, column)
    plain = value if isinstance(value, str | int | float | bool) else str(value)
    written = str(value).lower() if isinstance(value, bool) else str(value)
    return Scalar(plain, written, line, column)
