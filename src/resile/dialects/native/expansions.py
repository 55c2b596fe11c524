"""Fast reading of steps that a front end expands from one entry of its file.

Such steps share the nodes of all keys but the command, needs and outputs, so one step is read and copied.
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Scalar
from resile.dialects.native.context import Defaults, NativeReading, StepDraft
from resile.dialects.native.graph.needs import read_needs
from resile.dialects.native.keys.steps import STEP
from resile.model.workflow import Shell, Step

_OWN = frozenset(("shell", "needs", "outputs"))
_needs, _outputs = STEP.keys["needs"].read, STEP.keys["outputs"].read

Shared = tuple[tuple[str, int], ...]
"""Keys that steps share, each with the identity of its node."""


def read_expansion(
    reading: NativeReading, name: str, node: Mapping, key: Scalar | Mapping, within: Defaults, known: dict[Shared, Step]
) -> StepDraft:
    """Read a step, or copy it from `known`, which has one step for each set of shared keys."""
    entries = node.entries
    shared = tuple([(word, id(value)) for word, (_, value) in entries.items() if word not in _OWN])
    model = known.get(shared)
    command = entries["shell"][1] if "shell" in entries else None
    if model is None or not isinstance(command, Scalar) or name == "end":
        draft = reading.readers.step(reading, name, node, key, within)
        if command is not None and name != "end":
            known[shared] = draft.step
        return draft
    step = replace(
        model,
        name=name,
        action=Shell(command.text, within.program),
        outputs=tuple([path for path, _ in _outputs(reading, entries["outputs"][1])]) if "outputs" in entries else (),
        origin=reading.origin(key),
    )
    return StepDraft(
        step, node, key, read_needs(reading, *_needs(reading, entries["needs"][1])) if "needs" in entries else ()
    )
