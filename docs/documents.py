"""The tables of json.md: the fields of every document that a command prints, read off its Struct."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, UnsetType

from resile.commands.documents.answers import (
    AllocationList,
    CancelResult,
    CheckReport,
    Configuration,
    DatabaseCheck,
    ErrorDocument,
    Graph,
    JudgementResult,
    LogExport,
    LogList,
    Migration,
    ParkedFailures,
    Pruned,
    Rehearsal,
    ResetResult,
    RunMetrics,
    SubmittedRun,
    Versions,
    WrittenFile,
)
from resile.commands.documents.changes import Changes
from resile.commands.documents.dead_letters import (
    DeadLetter,
    DeadLetterDocument,
    DeadLetterList,
    LetterExport,
    LetterStatistics,
    PurgeResult,
    RedrivePreview,
    RedriveResult,
)
from resile.commands.documents.plan import RunPlan
from resile.commands.documents.recovery import Recovered
from resile.commands.documents.resources import RunResources
from resile.commands.documents.runs import Event, RunDocument, RunList
from resile.commands.documents.tokens import NewTokenDocument, RevokedToken, TokenList
from resile.explain.report import Explanation

# Every document, by the commands that print it.
DOCUMENTS: dict[str, type[Struct]] = {
    "run, resume, rerun, status RUN, judge --resume": RunDocument,
    "run --dry-run": RunPlan,
    "run --cached --dry-run": Changes,
    "rerun --changed --dry-run": Changes,
    "ls, status": RunList,
    "explain": Explanation,
    "parked": ParkedFailures,
    "judge": JudgementResult,
    "cancel": CancelResult,
    "reset": ResetResult,
    "recover, watch --recover": Recovered,
    "logs": LogList,
    "logs --export": LogExport,
    "metrics": RunMetrics,
    "resources": RunResources,
    "slurm status, slurm cancel": AllocationList,
    "dlq list": DeadLetterList,
    "dlq show": DeadLetterDocument,
    "dlq stats": LetterStatistics,
    "dlq retry": RedriveResult,
    "dlq retry --dry-run": RedrivePreview,
    "dlq export FILE": LetterExport,
    "dlq purge": PurgeResult,
    "rehearse": Rehearsal,
    "check": CheckReport,
    "migrate": Migration,
    "init": WrittenFile,
    "graph": Graph,
    "submit": SubmittedRun,
    "token create": NewTokenDocument,
    "token ls": TokenList,
    "token revoke": RevokedToken,
    "prune": Pruned,
    "config": Configuration,
    "db check": DatabaseCheck,
    "version": Versions,
    "any command that ends with an error": ErrorDocument,
}
# JSON Lines: an object of this kind on each line.
LINES: dict[str, type[Struct]] = {"events list, events follow": Event, "dlq export": DeadLetter}
PLAIN: dict[Any, str] = {str: "text", int: "integer", float: "number", bool: "bool", NoneType: "null", Any: "any value"}


def kind_of(hint: Any) -> str:
    """A type in words; another Struct is a link to its section."""
    if hint in PLAIN:
        return PLAIN[hint]
    arguments = [argument for argument in get_args(hint) if argument is not UnsetType]
    match get_origin(hint):
        case origin if origin is list or origin is tuple:
            return f"list of {kind_of(arguments[0])}"
        case origin if origin is dict:
            return f"object of {kind_of(arguments[1])} by name"
        case origin if origin is Literal:
            return ", ".join(f"`{value}`" if value else "empty" for value in arguments)
        case origin if origin in (Union, UnionType):
            return " or ".join(dict.fromkeys(kind_of(argument) for argument in arguments))
        case _:
            return f"[{hint.__name__}](#{hint.__name__.lower()})"


def structs_in(hint: Any) -> Iterator[type[Struct]]:
    """The Structs that a type names."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        yield hint
    for argument in get_args(hint):
        yield from structs_in(argument)


def document_sections() -> list[str]:
    """What each command prints, then a section for each kind of object."""
    lines = ["| command | prints |", "|---|---|"]
    lines += [f"| `{command}` | {kind_of(kind)} |" for command, kind in DOCUMENTS.items() if "error" not in command]
    lines += [f"| `{command}` | {kind_of(kind)} on each line |" for command, kind in LINES.items()]
    lines += [f"| {command} | {kind_of(kind)} |" for command, kind in DOCUMENTS.items() if "error" in command]
    found = list(dict.fromkeys([*DOCUMENTS.values(), *LINES.values()]))
    for kind in found:
        hints = get_type_hints(kind)
        inner = dict.fromkeys(inner for hint in hints.values() for inner in structs_in(hint))
        found += [kind for kind in inner if kind not in found]
    for kind in found:
        hints = get_type_hints(kind)
        about = " ".join((inspect.getdoc(kind) or "").split())
        lines += ["", f"## {kind.__name__}", "", about, "", "| field | value |", "|---|---|"]
        lines += [f"| `{name}` | {kind_of(hints[name])} |" for name in kind.__struct_fields__]
    return lines
