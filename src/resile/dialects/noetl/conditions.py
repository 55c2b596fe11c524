"""Conditions of a playbook in the native tree, and what a condition says about failures.

A condition is a mapping of the tree, `{jinja: text}` or `{case: number}`, with those `besides` it that must hold too.
"""

from __future__ import annotations

from collections.abc import Sequence

from resile.dialects.formats.nodes import Mark
from resile.dialects.native.nodes import Part
from resile.dialects.reading.diagnostics import Place
from resile.languages.jinja.templates import condition_text, names_in

NOWHERE = Mark(0, 0)
"""The place of what the playbook does not say itself."""


def condition_of(text: str, at: Place, *besides: Part) -> Part:
    """Build a condition that is a template."""
    return Part(at, jinja=text, besides=list(besides) or None)


def condition_of_case(which: str | int, at: Place) -> Part:
    """Build the condition that a case, or a retry of this name, came true."""
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
    """Build a condition that holds where none of these does."""
    return Part(NOWHERE, none=True, besides=list(conditions))


def is_about_error(when: str) -> bool:
    """Is a condition about failures, and about nothing else?"""
    return "call.error" in when or "error" in names_in(condition_text(when))


def is_about_failure(when: str) -> bool:
    """Is a condition of an arc about the failure of its step?"""
    return "step.failed" in when or is_about_error(when)


def mentions_error(when: str) -> bool:
    """Does a condition name an error, or a value that both successes and failures have?"""
    return is_about_error(when) or bool({"success", "status_code"} & names_in(condition_text(when)))
