"""Lists of commands: those of handlers, those after a success, and list items that extend the step before them.

    "make fix"              a command            {shell: …, claude: …}   two, one after the other
    "/fix ${error.message}" a prompt             {…any step…}            a step with all its keys

Commands run in the order in which they are written: each needs its predecessor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar, Sequence, items_of
from resile.dialects.native.context import Defaults, NativeReading, is_dangling
from resile.dialects.native.graph.routes import read_routes
from resile.dialects.native.item_names import refuse_shared_names
from resile.dialects.native.keys.failures import FOLLOW_KEYS, ON_SUCCESS
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import Table, read_mapping
from resile.dialects.reading.values import name_problem, wrong
from resile.errors import shorten
from resile.model.limits import REPAIR_DEPTH_MAX
from resile.model.rules import Origin
from resile.model.workflow import Need, Step, SuccessActions, Validate

COMMANDS_MAX = 1_000


def attach_dangling(reading: Reading, items: list[Node]) -> list[Node]:
    """Merge list items that have only `on_failure` into the step before them."""
    result: list[Node] = []
    for item in items:
        word = is_dangling(item)
        if not word or not isinstance(item, Mapping):
            result.append(item)
            continue
        where = item.entries[word][0]
        last = result[-1] if result else None
        if not isinstance(last, Mapping):
            reading.report.error("action", f"`{word}` stands alone, and there is no step before it", where)
            continue
        twice = next((key for key in item.entries if key in last.entries), "")
        if twice:
            message = f"`{twice}` stands alone, and the step before it has one"
            reading.report.error("conflict", message, item.entries[twice][0], hint="keep one of them")
            continue
        message = f"`{word}` stands alone in the list: it is taken as a key of the step before it"
        reading.report.notice("dangling", message, where, hint="indent it below that step, without the `-`")
        # Aliases may share a node, so copy it instead of changing it.
        result[-1] = Mapping({**last.entries, **item.entries}, last.line, last.column)
    return result


def read_commands(reading: NativeReading, items: list[Node], word: str, within: Defaults) -> tuple[Step, ...]:
    """Read commands as steps, in order; unnamed ones are called `word` and their number."""
    if reading.depth >= REPAIR_DEPTH_MAX or len(items) > COMMANDS_MAX:
        deep = f"handlers of handlers go no deeper than {REPAIR_DEPTH_MAX} levels"
        long = f"{len(items)} commands are more than {COMMANDS_MAX}"
        reading.report.error("limit", long if len(items) > COMMANDS_MAX else deep, items[0])
        return ()
    outer = reading.beside, reading.in_repair
    reading.depth += 1
    reading.in_repair = reading.in_repair or word == "on_failure"
    steps: list[Step] = []
    nodes: list[Mapping] = []
    names: tuple[str, ...] = ()
    for item in _parts(attach_dangling(reading, items)):
        if not isinstance(item, Mapping):
            wrong(reading, item, "a command, or a mapping with the keys of a step")
            continue
        name = _name(reading, item, f"{word}-{len(names) + 1}", names)
        reading.beside = outer[0] + names
        step = reading.readers.step(reading, name, item, item, replace(within, before=names)).step
        reading.scope.captured.update((capture.name, reading.owner) for capture in step.capture)
        steps.append(replace(step, needs=(Need((names[-1],), True),)) if names else step)
        nodes.append(item)
        names = (*names, name)
    refuse_shared_names(reading, zip(steps, nodes, strict=True))
    reading.depth -= 1
    reading.beside, reading.in_repair = outer
    return tuple(steps)


def _parts(items: list[Node]) -> Iterator[Node]:
    """Split items into mappings of one action: a text is one command, a mapping with `shell` and a prompt is two."""
    for item in items:
        if isinstance(item, Scalar) and item.value is not None:
            word = "agent" if item.text.startswith("/") else "shell"
            yield Mapping({word: (item, item)}, item.line, item.column)
            continue
        agent = _prompt_beside(item)
        if not agent or not isinstance(item, Mapping):
            yield item
            continue
        # Both get the other keys; the second captures.
        first = {key: entry for key, entry in item.entries.items() if key not in (agent, "capture")}
        second = {key: entry for key, entry in item.entries.items() if key != "shell"}
        yield Mapping(first, item.line, item.column)
        yield Mapping(second, item.line, item.column)


def _prompt_beside(item: Node) -> str:
    """The key of a prompt beside `shell`, in a mapping without a name (two steps could not share it)."""
    if not isinstance(item, Mapping) or "shell" not in item.entries or {"id", "name"} & item.entries.keys():
        return ""
    return next((word for word in ("agent", "claude") if word in item.entries), "")


def _name(reading: Reading, item: Mapping, default: str, taken: tuple[str, ...]) -> str:
    """Name of a command: its `id`, its `name`, or its number."""
    name, where = default, Mark(item.line, item.column)
    for word in ("name", "id"):
        entry = item.entries.get(word)
        if entry is not None and isinstance(entry[1], Scalar) and entry[1].value is not None:
            name, where = entry[1].text, Mark(entry[1].line, entry[1].column)
    problem = "is the name of the step that runs last" if name == "end" else name_problem(name)
    if problem:
        reading.report.error("name", f"the step name `{shorten(name)}` {problem}", where)
    elif name in taken:
        reading.report.error("duplicate", f"the step `{shorten(name)}` is here twice", where)
    return name


def read_success(
    reading: NativeReading, node: Node, origin: Origin, within: Defaults, known: Table = ON_SUCCESS
) -> SuccessActions | None:
    """Read the actions after a success: own commands, then named steps, then a jump."""
    routes: dict[str, Any] = {}
    items = items_of(node)
    if isinstance(node, Mapping):
        named = {key: entry for key, entry in node.entries.items() if key in FOLLOW_KEYS}
        routes = read_mapping(reading, Mapping(named, node.line, node.column), known)
        rest = {key: entry for key, entry in node.entries.items() if key not in named}
        items = [Mapping(rest, node.line, node.column)] if rest or not named else []
        if "commands" in routes:
            if items:
                message = "`commands` and the keys of a step both say what runs"
                reading.report.error("conflict", message, node.entries["commands"][0])
            items = items_of(routes.pop("commands"))
    is_word = isinstance(node, Scalar) and (node.value is None or isinstance(node.value, bool))
    if is_word or (isinstance(node, Sequence) and not items):
        wrong(reading, node, "a command, a step or a list of these")
        return None
    steps = read_commands(reading, items, known.name, within) if items else ()
    if not steps and not routes:
        return None
    target, calls, transitions = read_routes(reading, routes, within)
    jumps = target or transitions or "goto_js" in routes
    if "cost" in routes and not jumps:
        reading.report.error(
            "conflict", "`cost` has no meaning without a jump", node, hint="`run_cost` is for the steps"
        )
    return SuccessActions(
        steps=steps,
        validates=known is ON_SUCCESS and any(isinstance(step.action, Validate) for step in steps),
        calls=calls,
        calls_js=routes.get("run_js", ""),
        target=target,
        target_js=routes.get("goto_js", ""),
        transitions=transitions,
        cost=routes.get("cost", 1) if jumps else 0,
        run_cost=routes.get("run_cost", 0),
        origin=origin,
    )
