"""The message for a reference whose first name the workflow knows and whose path finds nothing.

    ${m.verison}   -> `m` has no `verison`; it has: version

A reference whose first name the workflow does not know belongs to the shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from resile.languages.references import MISSING
from resile.model.workflow import Step

NAMES_MAX = 8
NAME_CHARACTERS_MAX = 40

Key = str | int


def problem_with(path: Sequence[Key], find: Callable[[Sequence[Key]], Any]) -> str:
    """What is wrong with a path without a value; empty if not even its beginning has one."""
    for count in range(len(path) - 1, 0, -1):
        value = find(path[:count])
        if value is not MISSING:
            return f"`{_reference_of(path[:count])}` {_absence(value, path[count], path[0])}"
    return ""


def capturers(steps: Sequence[Step]) -> dict[str, str]:
    """The step that captures each name, itself or in a handler of its own."""
    found: dict[str, str] = {}
    work = [(step, step.name) for step in steps]
    while work:
        step, owner = work.pop()
        found |= {capture.name: owner for capture in step.capture}
        repairs = [rule.repair.steps for rule in step.rules if rule.repair is not None]
        inner = [*repairs, step.on_success.steps if step.on_success is not None else ()]
        work += [(one, owner) for some in inner for one in some]
    return found


def _reference_of(path: Sequence[Key]) -> str:
    """A path in the syntax of references."""
    text = str(path[0])
    for key in path[1:]:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", key) else f"['{key}']"
    return text


def _absence(value: Any, key: Key, root: Key) -> str:
    """Why a value has nothing under a key, and which keys it has."""
    if isinstance(value, dict):
        names = [str(name)[:NAME_CHARACTERS_MAX] for name in value]
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        return f"has no `{key}`; " + (f"it has: {', '.join(names[:NAMES_MAX])}{more}" if names else "it is empty")
    if isinstance(value, list):
        if isinstance(key, int) or key.isdecimal():
            return f"has no `[{key}]`; it has {len(value)} {'entry' if len(value) == 1 else 'entries'}"
        return f"is a list and has no `{key}`; its entries are `[0]`, `[1]` …"
    if isinstance(value, str):
        is_json = value[:1] in ("{", "[") and root not in ("item", "inputs")
        return f"is a text and has no `{key}`" + ("; capture it as `json` to look into it" if is_json else "")
    kind = "null" if value is None else "true or false" if isinstance(value, bool) else "a number"
    return f"is {kind} and has no `{key}`"
