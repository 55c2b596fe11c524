"""Writes single values of the model: durations, sizes, backoffs, conditions; without defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from resile.dialects.native.keys.failures import BACKOFF, read_backoff
from resile.dialects.native.keys.fanout import CIRCUIT_BREAKER, read_breaker, read_item_backoff
from resile.dialects.native.keys.ir import IR, read_memory_file
from resile.dialects.native.keys.model_fields import read_cases
from resile.dialects.native.step_types.commands import read_mode
from resile.dialects.native.writer.yaml import Block
from resile.dialects.reading import values as readers
from resile.dialects.reading.durations import duration_seconds, memory_bytes
from resile.dialects.reading.key_tables import Key, Table
from resile.languages.references import is_one_reference
from resile.model.rules import Backoff, Transition
from resile.model.workflow import Condition, Need

_UNITS = (("h", 3_600), ("m", 60), ("s", 1))
WHOLE_MAX = 1e15
_SIZES = (("g", 1024**3), ("m", 1024**2), ("k", 1024))


def duration(seconds: float) -> str | float:
    """A duration in the largest unit that gives a whole number, or else in seconds."""
    for unit, size in _UNITS:
        if seconds and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    text = f"{round(seconds * 1_000)}ms"
    return text if seconds and duration_seconds(text, zero=True) == seconds else setting(seconds)


def setting(number: float) -> float:
    """A number of a setting, without a fraction where it has none; in data 1.0 stays what it is."""
    return int(number) if number.is_integer() and abs(number) < WHOLE_MAX else number


def size(count: int) -> str | int:
    """A size in the largest unit that gives a whole number."""
    for unit, unit_size in _SIZES:
        if count and count % unit_size == 0:
            text = f"{count // unit_size}{unit}"
            return text if memory_bytes(text) == count else count
    return count


def written_fields(value: msgspec.Struct, known: Table, *only: str) -> dict[str, Any]:
    """Write the fields of a model value that differ from their defaults, by the rows of its table.

    `only` names the fields to write, in their order; without it, those for which the table has a row.
    """
    rows: dict[str, Key] = {}
    for row in (*known.keys.values(), *known.under_ir.values()):
        rows.setdefault(row.field or row.name, row)
    fields, defaults = value.__struct_fields__, value.__struct_defaults__
    default_of = dict(zip(fields[len(fields) - len(defaults) :], defaults, strict=True))
    written: dict[str, Any] = {}
    for field in only or [field for field in fields if field in rows]:
        content, default = getattr(value, field), default_of.get(field, msgspec.NODEFAULT)
        # A mutable field has a factory instead of a default; an empty value is its default.
        if content if callable(getattr(default, "factory", None)) else content != default:
            row = rows[field]
            if row.read not in _WRITERS and isinstance(content, float) and row.read is not readers.read_data:
                content = setting(content)
            written[row.name] = _WRITERS.get(row.read, plain)(content)
    return written


def plain(value: Any) -> Any:
    """Write a value as it is: a tuple as a list, a Struct as a mapping of its fields."""
    if isinstance(value, msgspec.Struct):
        return {key: content for key, content in msgspec.to_builtins(value).items() if key != "type"}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def short_form(written: dict[str, Any], short: str) -> Any:
    """Write a mapping that has only the key `short` as the value of that key."""
    return written[short] if written.keys() == {short} else written


def backoff(wait: Backoff) -> Any:
    """Write a backoff; a fixed one is just its duration."""
    if wait == Backoff("fixed", wait.initial_seconds):
        return duration(wait.initial_seconds)
    written: dict[str, Any] = {"type": wait.kind, "initial": duration(wait.initial_seconds)}
    if wait.kind == "linear" and wait.increment_seconds != wait.initial_seconds:
        written["increment"] = duration(wait.increment_seconds)
    if wait.kind == "exponential" and wait.multiplier != 2.0:
        written["multiplier"] = setting(wait.multiplier)
    if wait.delay_seconds_max != Backoff().delay_seconds_max:
        written["max_delay"] = duration(wait.delay_seconds_max)
    return written | written_fields(wait, BACKOFF, "jitter", "jitter_of")


def condition(asked: Condition) -> Any:
    """Write a condition: just its text if the text implies the language."""
    besides = {"besides": [condition(other) for other in asked.besides]} if asked.besides else {}
    is_plain = asked.source in ("true", "false") or is_one_reference(asked.source)
    shown = "value" if is_plain else "js"
    if asked.language == "none":
        return {"none": True, **besides}
    if asked.language == "case":
        return {"case": asked.source, **besides}
    if asked.language != shown or besides:
        return {asked.language: asked.source, **besides}
    return {"true": True, "false": False}.get(asked.source, asked.source)


def need(wanted: Need) -> Any:
    """Write a need: a name, names joined by `|`, or a mapping if that is not enough."""
    marks = {key: True for key in ("skip_satisfies", "failure_satisfies") if getattr(wanted, key)}
    if marks or any(name != name.strip() for name in wanted.any_of):
        names = list(wanted.any_of) if len(wanted.any_of) > 1 else wanted.any_of[0]
        return {"any_of": names, **marks}
    return "|".join(wanted.any_of)


def one_or_list(values: tuple[Any, ...]) -> Any:
    """Write a list of one as its only item."""
    return values[0] if len(values) == 1 else list(values)


def routes(target: str, target_js: str, transitions: tuple[Transition, ...]) -> dict[str, Any]:
    """Write the targets of a jump."""
    written: dict[str, Any] = {}
    if target:
        written["goto"] = target
    if target_js:
        written["goto_js"] = target_js
    if transitions:
        written["transitions"] = [{"when": each.when, "to": each.to} for each in transitions]
    return written


def under_ir(written: Block, known: Table) -> Block:
    """Move the keys that a table has under `ir` there."""
    below = {key: value for key, value in written.items() if key in known.under_ir}
    if not below:
        return written
    made = Block({key: value for key, value in written.items() if key not in below})
    made.notes = written.notes
    made[IR] = below
    return made


_WRITERS: dict[Any, Callable[[Any], Any]] = {
    readers.duration: duration,
    readers.duration_or_zero: duration,
    readers.memory: size,
    readers.condition: condition,
    read_backoff: backoff,
    read_item_backoff: backoff,
    read_breaker: lambda breaker: written_fields(breaker, CIRCUIT_BREAKER),
    read_memory_file: lambda file: short_form(plain(file), "path"),
    read_mode: "{:o}".format,
    read_cases: lambda cases: [{"when": one.when} | ({"on_failure": True} if one.on_failure else {}) for one in cases],
}
"""Writers of the values of a key, by its reader; other values are written as they are."""
