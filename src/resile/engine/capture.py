"""The results of an attempt: captured values, declared output files, and the verdict of `end`."""

from __future__ import annotations

import math
import os
from typing import Any

import msgspec

from resile.executors.contract import OutputReader, Stream, output_size
from resile.languages.references import text_of
from resile.model.failure import LogRange
from resile.model.folders import create_file, make_folder, put_in_place
from resile.model.limits import MESSAGE_CHARACTERS_MAX, OUTPUT_PIECE_BYTES, VALUE_BYTES_MAX
from resile.model.workflow import Agent, Capture

_STDOUT: tuple[Stream, ...] = ("out",)
# The streams that a form of capture reads, if it reads more than stdout.
_STREAMS: dict[str, tuple[Stream, ...]] = {
    "stderr": ("err",), "combined": ("out", "err"), "exit_code": (), "success": (), "duration": ()
}  # fmt: skip
ALWAYS_THERE = ("text", "lines", "stderr", "exit_code", "combined", "success", "duration")
"""Forms that never fail; the others could fail a step a second time."""
_TRUE = frozenset({"true", "yes", "1"})
_FALSE = frozenset({"false", "no", "0", ""})
# The errors of the decoder: the text is no JSON, has invalid bytes, or has too many levels.
_NO_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


class CaptureRefused(Exception):
    """An output does not have the form that the step promised."""


def capture_output(
    output: OutputReader,
    log: LogRange | None,
    captures: tuple[Capture, ...],
    exit_code: int | None,
    seconds: float = 0.0,
) -> dict[str, Any]:
    """The values that a step captures from an attempt's output, exit code and duration; raises CaptureRefused.

    An attempt without a log printed nothing.
    """
    values: dict[str, Any] = {}
    for capture in captures:
        streams = _STREAMS.get(capture.form, _STDOUT)
        texts = [_stream(output, log, stream, capture) for stream in streams]
        data = texts[0] if len(texts) == 1 else b"\n".join(filter(None, (text.strip() for text in texts)))
        values[capture.name] = _value(capture, data, exit_code, seconds)
    return values


def capture_file(output: OutputReader, log: LogRange | None, path: str) -> str:
    """Write the whole stdout of an attempt to a file; return its path."""
    make_folder(os.path.dirname(path))
    with create_file(f"{path}.part") as file:
        start, size = 0, output_size(log, "out")
        while start < size:
            piece = output.read_output(log, "out", start, OUTPUT_PIECE_BYTES)
            file.write(piece)
            start += len(piece)
        put_in_place(file, f"{path}.part", path)
    return path


def capture_value(value: Any, captures: tuple[Capture, ...], exit_code: int | None) -> dict[str, Any]:
    """Like capture_output, for a step that returned a value and printed nothing: the value as text is its output."""
    data = text_of(value).encode("utf-8", "surrogateescape")
    found = {one.name: _value(one, b"" if one.form == "stderr" else data, exit_code) for one in captures}
    return found | {one.name: value for one in captures if one.form == "value"}


def parse_result(text: str) -> Any:
    """The result of a program: the value if its whole output or its last line is JSON, else the text."""
    for part in (text, text.rpartition("\n")[2]):
        try:
            return msgspec.json.decode(part)
        except _NO_JSON:
            continue
    return text


def _stream(output: OutputReader, log: LogRange | None, stream: Stream, capture: Capture) -> bytes:
    """The bytes that an attempt wrote to one stream; raises CaptureRefused if they are too many."""
    size = output_size(log, stream)
    if size > VALUE_BYTES_MAX:
        # Files of other systems have no `capture`: this is the value of their steps.
        is_own = capture.form == "value"
        hint = "write it to a file" if is_own else f"`capture: {{{capture.name}: file}}` takes any size"
        what = "the output" if is_own else f"capture {capture.name!r}"
        raise CaptureRefused(f"{what}: {size} bytes are more than {VALUE_BYTES_MAX}: {hint}")
    return output.read_output(log, stream)


def _value(capture: Capture, data: bytes, exit_code: int | None, seconds: float = 0.0) -> Any:
    """Convert an output to the form that the capture asks for."""
    text = data.decode("utf-8", "surrogateescape")
    match capture.form:
        case "text" | "stderr" | "combined" | "value" | "file":
            return text.strip()
        case "lines":
            return text.splitlines()
        case "exit_code":
            return exit_code
        case "success":
            return exit_code == 0
        case "duration":
            return round(seconds, 3)
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
    """Parse JSON; raw line breaks inside strings are accepted, because shells write them."""
    try:
        return msgspec.json.decode(data)
    except _NO_JSON as error:
        import json

        try:
            return json.loads(data, strict=False, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise CaptureRefused(f"capture {name!r}: the output is not JSON ({error})") from error


def _refuse_constant(word: str) -> Any:
    raise ValueError(word)


def _number(name: str, text: str) -> int | float:
    """The text as an integer if possible, else as a float; refuses infinity and `nan`, which JSON can't hold."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CaptureRefused(f"capture {name!r}: {text[:60]!r} is not a number")
    return value


def missing_outputs(directory: str, outputs: list[str]) -> str:
    """A message about declared output files that do not exist; empty if all exist."""
    # A path may be empty because a value in it is. It would mean the folder, which always exists.
    there = [bool(name.strip()) and os.path.exists(os.path.join(directory, name)) for name in outputs]
    missing = ", ".join(repr(name) for name, found in zip(outputs, there, strict=True) if not found)
    return f"declared output file {missing} is missing" if missing else ""


def excess_spending(output: OutputReader, log: LogRange, action: Agent) -> str:
    """A message if an agent's output (one JSON object) reports spending beyond its limits; else empty."""
    if not action.cost_max and not action.tokens_max:
        return ""
    report = _report(output, log)
    cost = report.get("total_cost_usd", report.get("cost_usd", 0))
    usage = report.get("usage")
    counts = usage.items() if isinstance(usage, dict) else ()
    tokens = sum(count for name, count in counts if name.endswith("tokens") and isinstance(count, int))
    if action.cost_max and isinstance(cost, int | float) and cost > action.cost_max:
        return f"the agent reports a cost of {cost}, its limit is {action.cost_max:g}"
    if action.tokens_max and tokens > action.tokens_max:
        return f"the agent reports {tokens} tokens, its limit is {action.tokens_max}"
    return ""


def reported_error(output: OutputReader, log: LogRange) -> str:
    """A message if an agent's output (one JSON object) has `is_error: true`, as that of `claude -p`; else empty."""
    report = _report(output, log)
    if report.get("is_error") is not True:
        return ""
    said = report.get("result") or report.get("subtype")
    return "the agent reports an error" + (f": {said[:MESSAGE_CHARACTERS_MAX]}" if isinstance(said, str) else "")


def _report(output: OutputReader, log: LogRange) -> dict[str, Any]:
    """The JSON object that is all of an agent's output; an empty one if it is none."""
    try:
        report = msgspec.json.decode(output.read_output(log, "out", 0, VALUE_BYTES_MAX))
    except _NO_JSON:
        return {}
    return report if isinstance(report, dict) else {}


def verdict_of(output: OutputReader, log: LogRange, values: dict[str, Any]) -> str:
    """The `workflow_status` that `end` gave: captured, or in a JSON object that is its stdout or its last line."""
    if "workflow_status" in values:
        return str(values["workflow_status"])
    data = output.read_output(log, "out", -VALUE_BYTES_MAX).strip()
    for text in (data, data.rpartition(b"\n")[2]):
        if text.startswith(b"{"):
            try:
                value = msgspec.json.decode(text)
            except _NO_JSON:
                continue
            if isinstance(value, dict) and "workflow_status" in value:
                return str(value["workflow_status"])
    return ""
