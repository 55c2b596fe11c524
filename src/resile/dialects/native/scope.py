"""The steps of one scope: a list or a mapping becomes drafts, and drafts become connected steps.

    named_steps, phase_steps -> read_drafts -> settle: fold foreach (foreach) -> edges (graph/edges)
                                             -> references by name (graph/routes)

The workflow is one scope, and so are the steps that run for each item of a fan-out. Names are visible in their scope
and in the scopes inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe
from resile.dialects.native.context import Defaults, NativeReading, StepDraft, is_dangling
from resile.dialects.native.graph.ancestors import Ancestors
from resile.dialects.native.graph.edges import connect, read_needs
from resile.dialects.native.graph.routes import called_only, called_steps, check_routes
from resile.dialects.native.item_names import refuse_shared_names
from resile.dialects.native.keys.fanout import PHASE
from resile.dialects.native.keys.steps import STEP
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import name_problem
from resile.errors import shorten
from resile.model.limits import STEPS_MAX
from resile.model.workflow import Shell, Step

Named = tuple[str, Node, Node]
"""A step's name, the node that gives it, and the step itself."""
_OWN = frozenset(("shell", "needs", "reads", "outputs"))
_needs, _paths = STEP.keys["needs"].read, STEP.keys["outputs"].read

Shared = tuple[tuple[str, int], ...]
"""Keys that steps share, each with the identity of its node."""


def named_steps(reading: NativeReading, steps: Node, word: str, unnamed: str = "step") -> Iterable[Named]:
    """The named steps of a list or mapping under the key `word`."""
    if isinstance(steps, Scalar):
        reading.report.error("type", f"`{word}` must be a list or a mapping, not {describe(steps)}", steps)
        return ()
    count = len(steps.items if isinstance(steps, Sequence) else steps.entries)
    if count == 0:
        reading.report.error("value", f"`{word}` is empty", steps, hint="there must be at least one step")
    if count > STEPS_MAX and not reading.is_checked:
        reading.report.error("limit", f"{count} steps are more than {STEPS_MAX}", steps)
        return ()
    return _steps_of_list(reading, steps, unnamed) if isinstance(steps, Sequence) else _steps_of_mapping(reading, steps)


def phase_steps(reading: NativeReading, node: Node, word: str, unnamed: str) -> Iterable[Named]:
    """The steps of a phase: a list, or a mapping with that list under `commands`."""
    commands: Node | None = node
    if isinstance(node, Mapping):
        commands = read_mapping(reading, node, PHASE).get("commands")
        if commands is None:
            reading.report.error("value", f"`{word}` needs a list of steps, or `commands`", node)
            return ()
    if isinstance(commands, Mapping):
        reading.report.error("type", f"`{word}` must be a list of steps, not a mapping", commands)
        return ()
    return named_steps(reading, commands, word, unnamed) if commands is not None else ()


def read_drafts(reading: NativeReading, named: Iterable[Named], within: Defaults) -> dict[str, StepDraft]:
    """Read all steps, by name, in the order of the file."""
    report = reading.report
    drafts: dict[str, StepDraft] = {}
    known: dict[Shared, Step] = {}
    for name, key, node in named:
        problem = name_problem(name)
        if problem:
            report.error("name", f"the step name `{shorten(name)}` {problem}", key)
        if not isinstance(node, Mapping):
            hint = "write {shell: …}" if isinstance(node, Scalar) and node.value is not None else ""
            report.error("type", f"a step must be a mapping, not {describe(node)}", node, hint=hint)
            continue
        place = key if isinstance(key, Scalar) else node
        reading.owner = name
        if reading.is_checked:
            draft = _read_expansion(reading, name, node, place, within, known)
        else:
            draft = reading.readers.step(reading, name, node, place, within)
        first = drafts.get(name)
        if first is not None:
            where = f"{first.key.line}:{first.key.column}"
            report.error("duplicate", f"the step `{shorten(name)}` is here twice; the first is at {where}", place)
            continue
        drafts[name] = draft
    reading.owner = ""
    return drafts


def _read_expansion(
    reading: NativeReading, name: str, node: Mapping, key: Scalar | Mapping, within: Defaults, known: dict[Shared, Step]
) -> StepDraft:
    """Read a step that a front end may have expanded from one entry of its file.

    Such steps share the nodes of all keys but the command, needs and outputs, so one step is read and copied: `known`
    has one for each set of shared keys.
    """
    entries = node.entries
    shared = tuple([(word, id(value)) for word, (_, value) in entries.items() if word not in _OWN])
    model = known.get(shared)
    command = entries["shell"][1] if "shell" in entries else None
    if model is None or not isinstance(command, Scalar) or name == "end" or "\n" in command.text.strip():
        draft = reading.readers.step(reading, name, node, key, within)
        if command is not None and name != "end":
            known[shared] = draft.step
        return draft
    step = replace(
        model,
        name=name,
        action=Shell(command.text, within.program),
        reads=tuple([path for path, _ in _paths(reading, entries["reads"][1])]) if "reads" in entries else (),
        outputs=tuple([path for path, _ in _paths(reading, entries["outputs"][1])]) if "outputs" in entries else (),
        origin=reading.origin(key),
    )
    return StepDraft(
        step, node, key, read_needs(reading, *_needs(reading, entries["needs"][1])) if "needs" in entries else ()
    )


def settle(reading: NativeReading, drafts: dict[str, StepDraft], is_list: bool) -> tuple[Step, ...]:
    """Connect the steps of the current scope by edges, and report unresolved or impossible references."""
    scope = reading.scope
    if any(draft.foreach is not None or draft.fanout for draft in drafts.values()):
        from resile.dialects.native.foreach import fold

        drafts = fold(reading, drafts, is_list)
    refuse_shared_names(reading, [(draft.step, draft.node) for draft in drafts.values()])
    scope.drafts = drafts
    scope.called = called_steps(scope, drafts)
    steps = connect(reading, drafts, is_list, called_only(drafts, scope.called))
    scope.ancestors = Ancestors(steps, is_list)
    return check_routes(reading, steps, scope.ancestors) if scope.named or scope.called else steps


def _steps_of_mapping(reading: Reading, steps: Mapping) -> Iterator[Named]:
    """The steps of a mapping, named by their keys."""
    for name, (key, node) in steps.entries.items():
        if isinstance(node, Mapping):
            for word in ("id", "name"):
                if word in node.entries:
                    message = f"in a mapping of steps the key is the name: `{shorten(name)}`"
                    reading.report.error("conflict", message, node.entries[word][0], hint=f"take `{word}` out")
        yield name, key, node


def _steps_of_list(reading: Reading, steps: Sequence, unnamed: str) -> Iterator[Named]:
    """The steps of a list, named by `id`, else by `name`, else by their position."""
    items = steps.items
    if any(is_dangling(item) for item in items):
        from resile.dialects.native.failures.commands import attach_dangling

        items = attach_dangling(reading, items)
    for number, node in enumerate(items, 1):
        name, key = f"{unnamed}-{number}", node
        if isinstance(node, Mapping):
            for word in ("id", "name"):
                entry = node.entries.get(word)
                if entry is not None and isinstance(entry[1], Scalar) and entry[1].value is not None:
                    name, key = entry[1].text, entry[1]
                    break
            if "id" in node.entries and "name" in node.entries:
                where = node.entries["name"][0]
                reading.report.warning("conflict", "`name` changes nothing where there is an `id`", where)
        yield name, key, node
