"""Finds the language of a workflow's texts, and imports it with the first workflow that uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resile.languages.native import NATIVE

if TYPE_CHECKING:
    from resile.languages.contract import Language
    from resile.model.workflow import Condition, Templates, Workflow


def language_named(templates: Templates) -> Language[Any]:
    """The language of this name."""
    if templates == "dollar":
        return NATIVE
    if templates == "liquid":
        from resile.languages.liquid.language import LIQUID

        return LIQUID
    from resile.languages.jinja.language import JINJA

    return JINJA


def language_of(workflow: Workflow) -> Language[Any]:
    """The language of a workflow's texts."""
    return language_named(workflow.templates)


def language_of_condition(condition: Condition, workflow: Workflow) -> Language[Any]:
    """The language that decides a condition: Jinja if the condition is in Jinja, else that of its workflow."""
    return language_named("jinja") if condition.language in ("jinja", "case") else language_of(workflow)
