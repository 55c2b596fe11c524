"""What an attempt gives to the workflow: captured values, declared output files, and `end`'s verdict."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from resile.executors.local.segments import Stream, read
from resile.languages.references import text_of
from resile.model.failure import LogRange
from resile.model.limits import VALUE_BYTES_MAX
from resile.model.workflow import Agent, Capture

_BOTH: tuple[Stream, Stream] = ("o", "e")
_TRUE = frozenset({"true", "yes", "1"})
_FALSE = frozenset({"false", "no", "0", ""})


class CaptureRefused(Exception):
    """An output does not have the form that the step promised."""


def captured(
    folder: str, log: LogRange | None, captures: tuple[Capture, ...], exit_code: int | None, seconds: float = 0.0
) -> dict[str, Any]:
    """The values that an attempt gives by its output, its exit code and the time it took; raises CaptureRefused.

    One without a log printed nothing.
    """
    values: dict[str, Any] = {}
    for capture in captures:
        match capture.form:
            case "exit_code" | "success":
                data = b""
            case "duration":
                values[capture.name] = round(seconds, 3)
                continue
            case "stderr":
                data = _stream(folder, log, "e", capture.name)
            case "combined":
                both = (_stream(folder, log, stream, capture.name).strip() for stream in _BOTH)
                data = b"\n".join(filter(None, both))
            case _:
                data = _stream(folder, log, "o", capture.name)
        values[capture.name] = _value(capture, data, exit_code)
    return values


def captured_of(value: Any, captures: tuple[Capture, ...], exit_code: int | None) -> dict[str, Any]:
    """The same of a command that returned a value and printed nothing: the text that stands for it is its output."""
    data = text_of(value).encode("utf-8", "surrogateescape")
    found = {one.name: _value(one, b"" if one.form == "stderr" else data, exit_code) for one in captures}
    return found | {one.name: value for one in captures if one.form == "value"}


def returned(text: str) -> Any:
    """What a program returned: JSON where all of its output or its last line is some, else the text."""
    for part in (text, text.rpartition("\n")[2]):
        try:
            return msgspec.json.decode(part)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            continue
    return text


def _stream(folder: str, log: LogRange | None, stream: Stream, name: str) -> bytes:
    """What an attempt wrote to one stream; raises CaptureRefused where it is too much."""
    if log is None:
        return b""
    length = log.err_length if stream == "e" else log.out_length
    if length > VALUE_BYTES_MAX:
        raise CaptureRefused(f"capture {name!r}: {length} bytes are more than {VALUE_BYTES_MAX}")
    return read(folder, log, stream, VALUE_BYTES_MAX)


def _value(capture: Capture, data: bytes, exit_code: int | None) -> Any:
    """One output in the form that was asked for."""
    text = data.decode("utf-8", "surrogateescape")
    match capture.form:
        case "text" | "stderr" | "combined" | "value":
            return text.strip()
        case "lines":
            return text.splitlines()
        case "exit_code":
            return exit_code
        case "success":
            return exit_code == 0
        case "duration":
            return 0.0
        case "json":
            return _json(capture.name, data)
        case "number":
            return _number(capture.name, text.strip())
        case "bool":
            word = text.strip().lower()
            if word not in _TRUE and word not in _FALSE:
                raise CaptureRefused(f"capture {capture.name!r}: {word[:60]!r} is neither true nor false")
            return word in _TRUE


def _json(name: str, data: bytes) -> Any:
    """JSON text as its value; shells put line breaks into texts as they are, so these are taken."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        import json

        try:
            return json.loads(data, strict=False, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise CaptureRefused(f"capture {name!r}: the output is not JSON ({error})") from error


def _no_number(word: str) -> Any:
    """Infinity and its like are no JSON."""
    raise ValueError(word)


def _number(name: str, text: str) -> int | float:
    """A whole number where it is one, else a fraction."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError as error:
        raise CaptureRefused(f"capture {name!r}: {text[:60]!r} is not a number") from error


def missing_outputs(directory: str, outputs: list[str]) -> str:
    """What is wrong with the files that a step declared; empty where all are there."""
    missing = ", ".join(repr(name) for name in outputs if not os.path.exists(os.path.join(directory, name)))
    return f"declared output file {missing} is missing" if missing else ""


def overspent(folder: str, log: LogRange, action: Agent) -> str:
    """What an agent spent beyond its limits, where its output (one JSON object) reports it."""
    if not action.cost_max and not action.tokens_max:
        return ""
    try:
        report = msgspec.json.decode(read(folder, log, "o", VALUE_BYTES_MAX))
    except msgspec.DecodeError:
        return ""
    if not isinstance(report, dict):
        return ""
    cost = report.get("total_cost_usd", report.get("cost_usd", 0))
    usage = report.get("usage") or {}
    tokens = sum(count for name, count in usage.items() if name.endswith("tokens") and isinstance(count, int))
    if action.cost_max and isinstance(cost, int | float) and cost > action.cost_max:
        return f"the agent reports a cost of {cost}, its limit is {action.cost_max:g}"
    if action.tokens_max and tokens > action.tokens_max:
        return f"the agent reports {tokens} tokens, its limit is {action.tokens_max}"
    return ""


def verdict_of(folder: str, log: LogRange, values: dict[str, Any]) -> str:
    """`workflow_status` as `end` gave it: captured, or in a JSON object on its stdout or on its last line."""
    if "workflow_status" in values:
        return str(values["workflow_status"])
    data = read(folder, log, "o", VALUE_BYTES_MAX).strip()
    for text in (data, data.rpartition(b"\n")[2]):
        if text.startswith(b"{"):
            try:
                value = msgspec.json.decode(text)
            except msgspec.DecodeError:
                continue
            if isinstance(value, dict) and "workflow_status" in value:
                return str(value["workflow_status"])
    return ""
