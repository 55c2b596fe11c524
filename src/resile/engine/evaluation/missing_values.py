"""What to say of a reference whose name the workflow knows and whose path leads nowhere.

    ${m.verison}   -> `m` has no `verison`; it has: version

A name that nobody knows belongs to the shell and is none of this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from resile.core.state import State
from resile.languages.references import MISSING
from resile.model.workflow import Step

NAMES_MAX = 8
NAME_CHARACTERS_MAX = 40

Key = str | int


def lack_of(path: Sequence[Key], find: Callable[[Sequence[Key]], Any]) -> str:
    """What is wrong with a path that has no value; empty where not even its beginning has one."""
    for count in range(len(path) - 1, 0, -1):
        value = find(path[:count])
        if value is not MISSING:
            return f"`{written(path[:count])}` {_lacks(value, path[count], path[0])}"
    return ""


def capturer(state: State, scope: int, name: str, known: dict[int, dict[str, str]]) -> str:
    """The step of a scope that captures a name, or whose handler does; `known` keeps what was looked up once."""
    steps = state.plan_of(scope).steps
    # Texts may hold very many names that are the shell's own, and workflows very many steps.
    if id(steps) not in known:
        known[id(steps)] = _captured_by(steps)
    return known[id(steps)].get(name, "")


def _captured_by(steps: Sequence[Step]) -> dict[str, str]:
    """Every name that is captured, with the step that does."""
    found: dict[str, str] = {}
    work = [(step, step.name) for step in steps]
    while work:
        step, owner = work.pop()
        found |= {capture.name: owner for capture in step.capture}
        repairs = [rule.repair.steps for rule in step.rules if rule.repair is not None]
        inner = [*repairs, step.on_success.steps if step.on_success is not None else ()]
        work += [(one, owner) for some in inner for one in some]
    return found


def written(path: Sequence[Key]) -> str:
    """A path as a reference has it."""
    text = str(path[0])
    for key in path[1:]:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", key) else f"['{key}']"
    return text


def _lacks(value: Any, key: Key, root: Key) -> str:
    """Why a value has nothing under a key, and what it has instead."""
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
