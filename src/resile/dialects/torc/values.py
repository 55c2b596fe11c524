"""Readers of single values in a Torc file: each takes a node, reports its problems, and returns a value.

Texts that may have parameters stay nodes: they are filled in once for each expansion, and problems are reported at
their positions.
"""

from __future__ import annotations

import math
import re
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe, plain
from resile.dialects.native.nodes import is_null, items_of, walk
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Table, read_mapping
from resile.dialects.reading.values import text, wrong
from resile.errors import shorten
from resile.model.limits import DURATION_SECONDS_MAX
from resile.model.patterns import Pattern, PatternRefused, compile_pattern

EXIT_CODES_MIN, EXIT_CODES_MAX = -(2**31), 2**31 - 1
_EXIT_CODE_MAX, _SIGNAL_MAX = 255, 64

_NUMBER = r"(\d{1,9}(?:\.\d{1,9})?)"
_DATE, _TIME = ("".join(f"(?:{_NUMBER}{unit})?" for unit in units) for units in ("YMWD", "HMS"))
_PERIOD = re.compile(f"P{_DATE}(?:T{_TIME})?", re.ASCII)
_PERIOD_SECONDS = (31_557_600.0, 2_629_800.0, 604_800.0, 86_400.0, 3_600.0, 60.0, 1.0)
_WALLTIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?", re.ASCII)
# A repeated group inside another takes exponential time in Python's backtracking engine; Torc's engine does not
# backtrack.


def named_text(reading: Reading, node: Node) -> Any:
    """Read a text as its node."""
    return INVALID if text(reading, node) is INVALID else node


def texts(reading: Reading, node: Node) -> Any:
    """Read one text or a list of texts, as their nodes."""
    return tuple(item for item in items_of(node) if named_text(reading, item) is not INVALID)


def commands(reading: Reading, node: Node) -> Any:
    """Read commands, none of them empty."""
    found = texts(reading, node)
    for item in found:
        if not item.text.strip():
            reading.report.error("value", "the command is empty", item)
    return found


def period(reading: Reading, node: Node) -> Any:
    """Read an ISO 8601 duration, as seconds."""
    found = _PERIOD.fullmatch(node.text) if isinstance(node, Scalar) and isinstance(node.value, str) else None
    if found is None or not any(found.groups()):
        return wrong(reading, node, "an ISO 8601 duration", "`PT30M` is half an hour, `PT1H30M`, `P1DT2H`")
    seconds = sum(float(part) * unit for part, unit in zip(found.groups(), _PERIOD_SECONDS, strict=True) if part)
    return _check_bounds(reading, node, seconds)


def walltime(reading: Reading, node: Node) -> Any:
    """Read a time in Slurm's format (`30`, `30:00`, `04:00:00`, `1-12`, `1-12:00:00`), as seconds."""
    found = _WALLTIME.fullmatch(node.text) if isinstance(node, Scalar) and node.value is not None else None
    if found is None:
        return wrong(reading, node, "a time such as `04:00:00` or `1-12:00:00`")
    days, *parts = found.groups()
    numbers = [int(part) for part in parts if part is not None]
    # Without days one number is minutes and two are minutes and seconds; with days the first is hours.
    units = (3_600, 60, 1) if days is not None or len(numbers) == 3 else (60, 1)
    seconds = sum(number * unit for number, unit in zip(numbers, units, strict=False))
    return _check_bounds(reading, node, float(seconds + 86_400 * int(days or 0)))


def _check_bounds(reading: Reading, node: Node, seconds: float) -> Any:
    """Check that a time is neither zero nor beyond the limit."""
    if 0 < seconds <= DURATION_SECONDS_MAX:
        return seconds
    most = f"longer than {DURATION_SECONDS_MAX / 86_400:.0f} days"
    reading.report.error("value", f"{describe(node)} is {most if seconds else 'no time at all'}", node)
    return INVALID


def exit_codes(reading: Reading, node: Node) -> Any:
    """Read exit codes, any 32-bit integers as in Torc; those that no failure can have are left out, with a warning."""
    codes: list[int] = []
    for item in items_of(node):
        value = plain(item)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not EXIT_CODES_MIN <= value <= EXIT_CODES_MAX:
            wrong(reading, item, "an exit code: a whole number of 32 bits")
        elif value and -_SIGNAL_MAX <= value <= _EXIT_CODE_MAX:
            codes.append(value)
        else:
            hint = f"codes are 1 to {_EXIT_CODE_MAX}; -N is the end by the signal N, -1 by any signal"
            reading.report.warning("never", f"no failure has the exit code {value}", item, hint=hint)
    return tuple(codes)


def data(reading: Reading, node: Node) -> Any:
    """Read any data that JSON can represent."""
    for part in walk(node):
        if isinstance(part, Scalar) and isinstance(part.value, float) and not math.isfinite(part.value):
            reading.report.error("value", f"JSON can't hold the number {part.value}", node)
            return INVALID
    return plain(node)


def options(reading: Reading, node: Node) -> Any:
    """Read options of a batch system; a value is text, a number, or true for an option without one."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of options to values")
    for _, value in node.entries.values():
        if not _has_value(value):
            wrong(reading, value, "text, a number, true or false")
    return {name: value for name, (_, value) in node.entries.items() if _has_value(value)}


def parameters(reading: Reading, node: Node) -> Any:
    """Read parameters: names, and texts that describe their values."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of names to values")
    result: dict[str, Node] = {}
    for name, (key, value) in node.entries.items():
        if not name or set(name) & set("{}:$"):
            reading.report.error("name", f"`{shorten(name)}` can't be the name of a parameter", key)
        elif _has_value(value):
            result[name] = value
        else:
            hint = 'a list is written as text: "[1, 2, 3]"' if isinstance(value, Sequence) else ""
            wrong(reading, value, 'values as text: "1:10", "[a,b]" or one value', hint)
    return result


def _has_value(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is not None


def read_pattern(reading: Reading, source: str, node: Scalar) -> Pattern | None:
    """Compile a regular expression for names."""
    try:
        return compile_pattern(source, by_line=False)
    except PatternRefused as problem:
        reading.report.error("value", f"{describe(node)} is no regular expression: {problem}", node)
        return None


def without_nulls(node: Mapping) -> Mapping:
    """Remove keys with a null value, which mean the same as missing keys."""
    entries = {name: entry for name, entry in node.entries.items() if not is_null(entry[1])}
    return node if len(entries) == len(node.entries) else Mapping(entries, node.line, node.column)


def read_list(
    reading: Reading, node: Node | None, known: Table, *required: str
) -> list[tuple[Mapping, dict[str, Any]]]:
    """Read the entries of a section by a table; report entries without required keys and leave them out."""
    if node is None:
        return []
    if not isinstance(node, Sequence):
        wrong(reading, node, "a list")
        return []
    result: list[tuple[Mapping, dict[str, Any]]] = []
    for item in node.items:
        if not isinstance(item, Mapping):
            wrong(reading, item, f"{known.name}: a mapping")
            continue
        entry = without_nulls(item)
        fields = read_mapping(reading, entry, known)
        for word in required:
            if word not in entry.entries:
                reading.report.error("value", f"{known.name} needs `{word}`", item)
        if all(word in fields for word in required):
            result.append((entry, fields))
    return result


def read_named(
    reading: Reading, node: Node | None, known: Table, what: str, *required: str
) -> dict[str, tuple[Mapping, dict[str, Any]]]:
    """Read the entries of a section by name, as `read_list` does; report a name that is empty or taken."""
    result: dict[str, tuple[Mapping, dict[str, Any]]] = {}
    for entry, fields in read_list(reading, node, known, "name", *required):
        if is_free_name(reading, result, fields["name"], what):
            result[fields["name"].text] = (entry, fields)
    return result


def is_free_name(reading: Reading, taken: dict[str, Any], name: Scalar, what: str) -> bool:
    """Is this name free? Report one that is empty or taken."""
    if not name.text.strip():
        reading.report.error("name", f"the name of {what} is empty", name)
    elif name.text in taken:
        reading.report.error("duplicate", f"{what} `{shorten(name.text)}` is here twice", name)
    return bool(name.text.strip()) and name.text not in taken
