"""The names of the items of maps: the map's own name, or its `scope`, and the place in the input."""

from __future__ import annotations

from collections.abc import Iterable

from resile.dialects.formats.nodes import Mapping
from resile.dialects.reading.context import Reading
from resile.errors import shorten
from resile.model.workflow import FanOut, Step


def refuse_shared_names(reading: Reading, steps: Iterable[tuple[Step, Mapping]]) -> None:
    """Refuse two maps whose items have the same names: the dead letters of one would take the place of the other's."""
    maps = [(step.name, step.action.scope, node) for step, node in steps if isinstance(step.action, FanOut)]
    for name, scope, node in maps:
        settings = node.entries["map"][1] if "map" in node.entries else None
        if not isinstance(settings, Mapping) or "scope" not in settings.entries:
            continue
        other = next((one for one, its_scope, _ in maps if one != name and (its_scope or one) == scope), "")
        if other:
            message = f"the items of `{shorten(other)}` have the scope `{shorten(scope)}` already"
            reading.report.error("duplicate", message, settings.entries["scope"][1], hint="give it another name")
