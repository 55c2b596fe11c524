"""Detects the dialect of a file: each front end recognises the shape of its files.

    FRONT_ENDS   name -> recognise(root) -> the reason, or an empty text; its module has TABLES and compile_NAME

`detect` asks every front end. If none recognises the file, it is no workflow file; if several do, the caller must
choose (`--dialect`). The module of a front end is imported only for its files. Files that are not YAML are recognised
by their endings and reach their front end as text, without a root.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar, Sequence, describe

if TYPE_CHECKING:
    from resile.dialects.reading.context import Source
    from resile.dialects.reading.diagnostics import Diagnostics
    from resile.dialects.reading.key_tables import Table
    from resile.model.workflow import Workflow

ENDINGS = {".kdl": "torc", ".json5": "torc"}
"""Endings of files that are not YAML, with their dialects."""

_PRODIGY_ACTIONS = (
    "shell", "claude", "analyze", "foreach", "write_file", "goal_seek", "validate", "test", "on_failure"
)  # fmt: skip
_VISOR_KEYS = ("type", "exec", "depends_on", "on_fail", "forEach", "fail_if", "prompt")


def _prodigy(root: Node) -> str:
    """A list of steps, a mapping that holds one, or a map with a template."""
    if isinstance(root, Sequence):
        return _prodigy_list(root, "it is a list of steps")
    if not isinstance(root, Mapping) or "resile" in root.entries:
        return ""
    if _text(root, "mode") == "mapreduce":
        return "it says `mode: mapreduce`"
    section = _value(root, "map")
    if isinstance(section, Mapping) and "agent_template" in section.entries:
        return "its `map` has an `agent_template`"
    for key in ("commands", "tasks"):
        listed = _value(root, key)
        if isinstance(listed, Sequence):
            has_it = f"it has a list `{key}`"
            if not listed.items:
                return has_it
            # No other system has `commands` at the top: the Prodigy front end reports typing errors in them.
            found = _prodigy_list(listed, f"`{key}` is a list of steps")
            return found or (has_it if key == "commands" else "")
    steps = _value(root, "steps")
    return _prodigy_list(steps, "`steps` is a list of steps") if isinstance(steps, Sequence) else ""


def _prodigy_list(node: Sequence, what: str) -> str:
    """Are these steps of Prodigy? The first one with an action decides."""
    for item in node.items:
        if isinstance(item, Mapping):
            action = next((key for key in _PRODIGY_ACTIONS if key in item.entries), "")
            if action:
                return f"{what} with `{action}`"
            if "name" in item.entries and not {"tool", "next", "command", "type"} & item.entries.keys():
                return what
        elif isinstance(item, Scalar) and isinstance(item.value, str) and item.text.startswith("/"):
            return f"{what} with slash commands"
    return ""


def _visor(root: Node) -> str:
    """Steps or checks by name, each of a type."""
    if not isinstance(root, Mapping) or "resile" in root.entries:
        return ""
    for key in ("steps", "checks"):
        section = _value(root, key)
        if isinstance(section, Mapping) and (
            "version" in root.entries or "id" in root.entries or _has_visor_types(section)
        ):
            return f"it has `{key}` by name" + (" and a `version`" if "version" in root.entries else "")
    # A file may have only parts that other files extend or test.
    if "version" in root.entries and {"extends", "include", "tests", "imports"} & root.entries.keys():
        return "it has a `version` and parts of a Visor file"
    return ""


def _has_visor_types(section: Mapping) -> bool:
    steps = [value for _, value in section.entries.values() if isinstance(value, Mapping)]
    return any(key in step.entries for step in steps for key in _VISOR_KEYS)


def _torc(root: Node) -> str:
    """A list of jobs."""
    jobs = _value(root, "jobs")
    if isinstance(jobs, Sequence) and isinstance(root, Mapping) and "resile" not in root.entries:
        return "it has a list `jobs`"
    return ""


def _noetl(root: Node) -> str:
    """A playbook: by its `apiVersion`, or by a `workflow` that is a list of steps with tools."""
    version = _text(root, "apiVersion")
    if version.startswith("noetl.io/"):
        return f"it says `apiVersion: {version}`"
    workflow = _value(root, "workflow")
    if isinstance(workflow, Sequence) and isinstance(root, Mapping) and "resile" not in root.entries:
        for item in workflow.items:
            if isinstance(item, Mapping) and {"tool", "next", "step"} & item.entries.keys():
                return "its `workflow` is a list of steps with tools and arcs"
    return ""


FRONT_ENDS: dict[str, Callable[[Node], str]] = {
    "native": lambda root: "it has the key `resile`" if _value(root, "resile") is not None else "",
    "prodigy": _prodigy,
    "visor": _visor,
    "torc": _torc,
    "noetl": _noetl,
}
NAMES = tuple(FRONT_ENDS)


def detect(root: Node, report: Diagnostics) -> tuple[str, str]:
    """The dialect of a file and the reason; two empty texts after a report."""
    found = [(name, why) for name, recognise in FRONT_ENDS.items() if (why := recognise(root))]
    if len(found) == 1:
        return found[0]
    if found:
        between = " or ".join(f"{name} ({why})" for name, why in found)
        hint = f"say which: --dialect {' or --dialect '.join(name for name, _ in found)}"
        report.error("ambiguous", f"this file could be {between}", root, hint=hint)
        return "", ""
    hint = "a native file is a mapping that starts with `resile: 1`; `--dialect NAME` says whose another one is"
    report.error("dialect", f"this is not a workflow file: {describe(root)} without `resile: 1`", root, hint=hint)
    return "", ""


def looks_native(root: Node, name: str) -> bool:
    """Could a file of another system be meant as a native one that lacks its first line? It has `steps`, or is a list.

    The `version` of a Visor file makes it clear.
    """
    if name == "native":
        return False
    if not isinstance(root, Mapping):
        return True
    return "steps" in root.entries and not (name == "visor" and "version" in root.entries)


def module_of(name: str) -> Any:
    """The module of a front end, or None if this installation lacks it."""
    import importlib

    try:
        return importlib.import_module(f"resile.dialects.{name}.compile")
    except ModuleNotFoundError as error:
        if error.name != f"resile.dialects.{name}":
            raise
        return None


def compile_with(name: str, source: Source, root: Node | None, report: Diagnostics) -> Workflow | None:
    """Compile a file with its front end."""
    module = module_of(name)
    if module is None:
        report.error("dialect", f"files of {name} are not run by this version", root or Mark(1, 1))
        return None
    if root is not None and name != "prodigy" and not isinstance(root, Mapping):
        report.error("type", f"a file of {name} is a mapping, not {describe(root)}", root)
        return None
    workflow: Workflow | None = getattr(module, f"compile_{name}")(source, root, report)
    return workflow


def tables(name: str) -> tuple[Table, ...]:
    """The tables of keys of a front end."""
    module = module_of(name)
    return getattr(module, "TABLES", ()) if module is not None else ()


def _value(root: Node, key: str) -> Node | None:
    entry = root.entries.get(key) if isinstance(root, Mapping) else None
    return None if entry is None else entry[1]


def _text(root: Node, key: str) -> str:
    value = _value(root, key)
    return value.text if isinstance(value, Scalar) and isinstance(value.value, str) else ""
