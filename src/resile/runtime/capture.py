"""What an attempt gives to the workflow: captured values, declared output files, and `end`'s verdict."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from resile.executors.segments import read
from resile.model.failure import Failure, LogRange
from resile.model.limits import VALUE_BYTES_MAX
from resile.model.workflow import Capture

_TRUE = frozenset({"true", "yes", "1"})
_FALSE = frozenset({"false", "no", "0", ""})


class CaptureRefused(Exception):
    """An output does not have the form that the step promised."""


def captured(folder: str, log: LogRange, captures: tuple[Capture, ...], exit_code: int | None) -> dict[str, Any]:
    """The values that an attempt's output gives; raises CaptureRefused."""
    values: dict[str, Any] = {}
    for capture in captures:
        length = log.err_length if capture.form == "stderr" else log.out_length
        if length > VALUE_BYTES_MAX and capture.form != "exit_code":
            raise CaptureRefused(f"capture {capture.name!r}: {length} bytes are more than {VALUE_BYTES_MAX}")
        data = read(folder, log, "e" if capture.form == "stderr" else "o", VALUE_BYTES_MAX)
        values[capture.name] = _value(capture, data, exit_code)
    return values


def _value(capture: Capture, data: bytes, exit_code: int | None) -> Any:
    """One output in the form that was asked for."""
    text = data.decode("utf-8", "surrogateescape")
    match capture.form:
        case "text" | "stderr":
            return text.strip()
        case "lines":
            return text.splitlines()
        case "exit_code":
            return exit_code
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
    """JSON text as its value."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CaptureRefused(f"capture {name!r}: the output is not JSON ({error})") from error


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


def missing_output(directory: Path, outputs: list[str]) -> Failure | None:
    """The failure of an attempt that did not leave the files it declared."""
    missing = [name for name in outputs if not os.path.exists(directory / name)]
    if not missing:
        return None
    names = ", ".join(repr(name) for name in missing)
    return Failure("contract", f"declared output file {names} is missing", 0, signature="contract: output file missing")


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
