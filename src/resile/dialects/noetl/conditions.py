"""Conditions of a playbook in the native tree, and tests whether they concern failures.

A condition is a mapping of the tree, `{jinja: text}` or `{case: number}`; its `besides` must hold too.
"""

from __future__ import annotations

from collections.abc import Sequence

from resile.dialects.formats.nodes import Mark
from resile.dialects.native.nodes import Part
from resile.dialects.reading.diagnostics import Place
from resile.languages.jinja.templates import condition_text, names_in

NOWHERE = Mark(0, 0)
"""The position of nodes that are not in the playbook."""


def condition_of(text: str, at: Place, *besides: Part) -> Part:
    """Build a condition that is a template."""
    return Part(at, jinja=text, besides=list(besides) or None)


def condition_of_case(which: str | int, at: Place) -> Part:
    """Build the condition that a case fired, or a retry of this name."""
    return Part(at, case=str(which))


def text_of(condition: Part) -> str:
    """The template of a condition, or the number of its case."""
    return str(condition.get("jinja", condition.get("case", "")))


def all_of(conditions: Sequence[Part]) -> Part | None:
    """Join conditions into one; None for an empty list."""
    if not conditions:
        return None
    first, *rest = conditions
    return first.replace(besides=[*first.get("besides", ()), *rest] or None)


def none_of(conditions: Sequence[Part]) -> Part:
    """Build a condition that holds if none of these does."""
    return Part(NOWHERE, none=True, besides=list(conditions))


def is_about_error(when: str) -> bool:
    """Is a condition only about failures?"""
    return "call.error" in when or "error" in names_in(condition_text(when))


def is_about_failure(when: str) -> bool:
    """Is a condition of an arc about the failure of its step?"""
    return "step.failed" in when or is_about_error(when)


def mentions_error(when: str) -> bool:
    """Does a condition name an error, or a value that both successes and failures have?"""
    return is_about_error(when) or bool({"success", "status_code"} & names_in(condition_text(when)))
