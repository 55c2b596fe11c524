"""Single values of the model as the native file writes them: durations, sizes, waits, conditions, limits left out."""

from __future__ import annotations

from typing import Any

import msgspec

from resile.dialects.native.ir import IR
from resile.dialects.native.writer.yaml import Block
from resile.dialects.reading.durations import duration_seconds, memory_bytes
from resile.dialects.reading.key_tables import Table
from resile.languages.references import is_one_reference
from resile.model.rules import Backoff, Transition
from resile.model.workflow import Condition, Need

_UNITS = (("h", 3_600), ("m", 60), ("s", 1))
_SIZES = (("g", 1024**3), ("m", 1024**2), ("k", 1024))


def duration(seconds: float) -> str | float:
    """A duration in the largest unit that gives a whole number, or else in seconds."""
    for unit, size in _UNITS:
        if seconds and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    text = f"{round(seconds * 1_000)}ms"
    return text if seconds and duration_seconds(text, zero=True) == seconds else seconds


def size(count: int) -> str | int:
    """A size in the largest unit that gives a whole number."""
    for unit, unit_size in _SIZES:
        if count and count % unit_size == 0:
            text = f"{count // unit_size}{unit}"
            return text if memory_bytes(text) == count else count
    return count


def changed_fields(struct: msgspec.Struct, **names: str) -> dict[str, Any]:
    """The fields of a model value that are not as they would be without saying, under the names of the file."""
    fields, defaults = struct.__struct_fields__, struct.__struct_defaults__
    written: dict[str, Any] = {}
    for field, default in zip(fields[len(fields) - len(defaults) :], defaults, strict=True):
        value = getattr(struct, field)
        # What can change has no default but something that makes one, and is empty then.
        if field in names and (value if callable(getattr(default, "factory", None)) else value != default):
            written[names[field]] = list(value) if isinstance(value, tuple) else value
    return written


def backoff(wait: Backoff) -> Any:
    """A wait; a fixed one is just its duration."""
    if wait == Backoff("fixed", wait.initial_seconds):
        return duration(wait.initial_seconds)
    written: dict[str, Any] = {"type": wait.kind, "initial": duration(wait.initial_seconds)}
    if wait.kind == "linear" and wait.increment_seconds != wait.initial_seconds:
        written["increment"] = duration(wait.increment_seconds)
    if wait.kind == "exponential" and wait.multiplier != 2.0:
        written["multiplier"] = wait.multiplier
    if wait.delay_seconds_max != Backoff().delay_seconds_max:
        written["max_delay"] = duration(wait.delay_seconds_max)
    return written | changed_fields(wait, jitter="jitter", jitter_of="jitter_of")


def condition(asked: Condition) -> Any:
    """A condition: the text alone where its shape says how it is asked."""
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
    """What a step waits for: a name, names with `|` between them, or a mapping where that says too little."""
    if wanted.skip_satisfies or any(name != name.strip() for name in wanted.any_of):
        names = list(wanted.any_of) if len(wanted.any_of) > 1 else wanted.any_of[0]
        return {"any_of": names, **({"skip_satisfies": True} if wanted.skip_satisfies else {})}
    return "|".join(wanted.any_of)


def one_or_list(values: tuple[Any, ...]) -> Any:
    """A list of one is just that one."""
    return values[0] if len(values) == 1 else list(values)


def routes(target: str, target_js: str, transitions: tuple[Transition, ...]) -> dict[str, Any]:
    """Where to go back to."""
    written: dict[str, Any] = {}
    if target:
        written["goto"] = target
    if target_js:
        written["goto_js"] = target_js
    if transitions:
        written["transitions"] = [{"when": each.when, "to": each.to} for each in transitions]
    return written


def under_ir(written: Block, known: Table) -> Block:
    """The mapping with the keys that a table has under `ir` put there."""
    below = {key: value for key, value in written.items() if key in known.under_ir}
    if not below:
        return written
    made = Block({key: value for key, value in written.items() if key not in below})
    made.notes = written.notes
    made[IR] = below
    return made
