"""Parameters: lists of values, all combinations of them, and texts with values filled in.

    "1:3"  "0.0:1.0:0.5"  "10:0:-5"  "[1,2,'x']"  "adam"        one list of values each
    product: every combination, in the order of the file, the last parameter fastest; zip: the n-th of each together
    {i}  {i:03d}  {lr:.4f}      filled in, any number of formats in one text; `${i}` belongs to the shell

Formats: `0Nd` for whole numbers, `.Nf` for others; a number of the other kind is printed plainly, as in Torc.
"""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import product
from math import prod
from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Scalar, describe
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.errors import shorten
from resile.model.limits import NAME_CHARACTERS_MAX, STEPS_MAX

Value = int | float | str

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_REAL = re.compile(r"[+-]?(?:[0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_QUOTED = re.compile(r"(['\"]).*\1", re.DOTALL)
_FORMAT = re.compile(r"0([0-9]{1,4})d|\.([0-9]{1,4})f", re.ASCII)


class Combinations(Struct, frozen=True):
    """The parameters of one entry: their names, and one tuple of values for each expansion."""

    names: tuple[str, ...] = ()
    rows: tuple[tuple[Value, ...], ...] = ((),)


NONE = Combinations()


def values_of(text: str) -> list[Value]:
    """Parse the values of a parameter; raises ValueError with the problem."""
    text = text.strip()
    # Torc accepts braces around a range.
    if text.startswith("{") and text.endswith("}") and "," not in text:
        text = text[1:-1].strip()
    if text.startswith("[") and text.endswith("]"):
        return _parse_list(text[1:-1])
    if ":" in text:
        return _parse_range(text)
    return [_parse_value(text)]


def _parse_value(text: str) -> Value:
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) else text


def _parse_list(inner: str) -> list[Value]:
    """Parse the values of a list, which commas separate."""
    if not inner.strip():
        raise ValueError("is an empty list, and nothing would run")
    parts = [part.strip() for part in inner.split(",")]
    if len(parts) > STEPS_MAX:
        raise ValueError(f"has more than {STEPS_MAX} values")
    if "" in parts:
        raise ValueError("has a comma with nothing beside it")
    # A quoted number is text.
    return [part[1:-1] if _QUOTED.fullmatch(part) else _parse_value(part) for part in parts]


def _parse_range(text: str) -> list[Value]:
    """Parse `start:end` or `start:end:step`, both ends included."""
    parts = [part.strip() for part in text.split(":")]
    whole = all(_WHOLE.fullmatch(part) for part in parts)
    if len(parts) > 3 or not (whole or all(_REAL.fullmatch(part) for part in parts)):
        raise ValueError("is no range: `start:end` or `start:end:step` in numbers")
    start, end, step = (Decimal(part) for part in (*parts, "1")[:3])
    if not step:
        raise ValueError("has a step of zero")
    count = (end - start) / step
    if count < 0:
        raise ValueError("is an empty range, and nothing would run")
    if count >= STEPS_MAX:
        raise ValueError(f"has more than {STEPS_MAX} values")
    # Multiply instead of adding, so that rounding errors do not accumulate.
    found = [start + number * step for number in range(int(count) + 1)]
    return [int(value) for value in found] if whole else [float(value) for value in found]


def read_combinations(
    reading: Reading, node: Mapping, fields: dict[str, Any], shared: dict[str, Scalar]
) -> Combinations | None:
    """Read the parameter values of an entry, one row for each expansion; None after a report."""
    own: dict[str, Scalar] = fields.get("parameters", {})
    used: tuple[Scalar, ...] = fields.get("use_parameters", ())
    if own and used:
        message = "`use_parameters` changes nothing here: `parameters` of its own replace the shared ones, as in Torc"
        reading.report.warning("conflict", message, node.entries["use_parameters"][0], hint="keep one of them")
    for name in used:
        if name.text not in shared:
            hint = did_you_mean(name.text, shared, "parameters") or "declare it under `parameters` of the workflow"
            reading.report.error("unknown-parameter", f"there is no shared parameter {describe(name)}", name, hint=hint)
    chosen = own or {name.text: shared[name.text] for name in used if name.text in shared}
    if chosen:
        return _combine(reading, node, chosen, fields.get("parameter_mode", "product"))
    if "parameter_mode" in fields:
        place = node.entries["parameter_mode"][0]
        reading.report.error("conflict", "`parameter_mode` has no meaning without parameters", place)
    return NONE


def _combine(reading: Reading, node: Mapping, chosen: dict[str, Scalar], mode: str) -> Combinations | None:
    """Combine these parameters: all combinations, or the n-th value of each together."""
    lists: dict[str, list[Value]] = {}
    for name, written in chosen.items():
        try:
            lists[name] = values_of(written.text)
        except ValueError as problem:
            hint = "a range that falls has a negative step" if "empty range" in str(problem) else ""
            reading.report.error("value", f"{describe(written)} {problem}", written, hint=hint)
    if len(lists) < len(chosen):
        return None
    sizes = {name: len(values) for name, values in lists.items()}
    if mode == "zip":
        if len(set(sizes.values())) > 1:
            found = ", ".join(f"`{shorten(name)}` has {size}" for name, size in sizes.items())
            reading.report.error("value", f"zip needs lists of one length: {found}", node.entries["parameter_mode"][0])
            return None
        return Combinations(tuple(lists), tuple(zip(*lists.values(), strict=True)))
    total = prod(sizes.values())
    if total > STEPS_MAX:
        reading.report.error("limit", f"these parameters have {total} combinations, more than {STEPS_MAX}", node)
        return None
    return Combinations(tuple(lists), tuple(product(*lists.values())))


class Filler:
    """Fills the values of one entry's parameters into its texts."""

    def __init__(self, reading: Reading, combinations: Combinations) -> None:
        self._reading = reading
        self._place = {name: number for number, name in enumerate(combinations.names)}
        words = "|".join(re.escape(name) for name in sorted(self._place, key=len, reverse=True))
        self._hole = re.compile(rf"(?<!\$)\{{({words})(?::([^{{}}]*))?\}}") if words else None

    def template_of(self, node: Scalar) -> Template:
        """Split a text into a template; report an unknown format."""
        pieces: list[str | tuple[int, str]] = []
        at = 0
        for hole in self._hole.finditer(node.text) if self._hole is not None else ():
            form = hole[2] or ""
            self._check(form, hole[0], node)
            pieces += [node.text[at : hole.start()], (self._place[hole[1]], form)]
            at = hole.end()
        return Template(node, (*pieces, node.text[at:]))

    def _check(self, form: str, hole: str, node: Scalar) -> None:
        """Report a format that Torc does not have, or that is too wide."""
        found = _FORMAT.fullmatch(form)
        report = self._reading.report
        if form and found is None:
            hint = "formats are `0Nd` for whole numbers and `.Nf` for others"
            message = f"`{shorten(hole)}`: the format is not known, the value is printed plainly"
            report.warning("format", message, node, hint=hint)
        elif found is not None and int(found[1] or found[2]) > NAME_CHARACTERS_MAX:
            report.error("limit", f"`{shorten(hole)}` is wider than {NAME_CHARACTERS_MAX} characters", node)


class Template(Struct, frozen=True):
    """A text in pieces: literals, and holes with the number of a parameter and a format."""

    node: Scalar
    pieces: tuple[str | tuple[int, str], ...]

    def fill(self, row: tuple[Value, ...], *, escape: bool = False) -> str:
        """Fill in the values of one row; `escape` them if the text is a pattern."""
        if len(self.pieces) == 1:
            return self.node.text
        quote = re.escape if escape else str
        return "".join(
            piece if isinstance(piece, str) else quote(format_value(row[piece[0]], piece[1])) for piece in self.pieces
        )


def format_value(value: Value, form: str) -> str:
    """Format a value; ignore a format for another kind of value."""
    found = _FORMAT.fullmatch(form) if form else None
    if found is not None and isinstance(value, int) and found[1] is not None:
        return format(value, f"0{min(int(found[1]), NAME_CHARACTERS_MAX)}d")
    if found is not None and isinstance(value, float) and found[2] is not None:
        return format(value, f".{min(int(found[2]), NAME_CHARACTERS_MAX)}f")
    if not isinstance(value, float):
        return str(value)
    # No exponent, and no needless `.0`.
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
