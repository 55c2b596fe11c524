"""Makes the pages and pictures of docs/ that come from the program; `make docs` writes them, a test compares them.

cli.md              from the table of commands
native-file.md      from the front end's own tables of keys, and the limits
ir.md               from the tables of keys that only files of other systems need
compatibility.md    from the tables of the other front ends, and differences.py
json.md             from the Structs of the documents that commands print
api.md              from the OpenAPI document of the server
state-machine.md    from the core's handler table, the statuses and the orders
images/*.svg        from a run in a terminal (draw.py)
"""

from __future__ import annotations

import inspect
import sys
from functools import partial
from pathlib import Path
from typing import get_args

from command_line import cell, command_sections
from differences import DIFFERENCES, PYTHON
from documents import document_sections
from draw import NAMES, pictures
from rest_api import route_sections

from resile.api.step import STEP_OPTIONS
from resile.api.workflow import WORKFLOW_OPTIONS
from resile.core.actions import Order
from resile.core.events import Event
from resile.core.react import HANDLERS
from resile.core.transitions import TRANSITIONS
from resile.dialects.detect import tables
from resile.dialects.native.keys.ir import IR_TABLES
from resile.dialects.native.keys.steps import TABLES
from resile.dialects.reading.key_tables import Key, Table
from resile.model import limits
from resile.model.failure import FAILURE_KINDS
from resile.model.rules import Then
from resile.model.status import TERMINAL, Status

HERE = Path(__file__).parent
MARK = "<!-- made by docs/generate.py; change the program and run `make docs` -->"
STATUS_MEANING = {
    "uninitialized": "not used by Resile; kept so that the numbers agree with Torc's",
    "blocked": "waits for its needs, for an arc, or for its `when`",
    "ready": "may run; waits for a slot and its resources",
    "pending": "reserved: handed to the executor, not started yet",
    "running": "an attempt runs",
    "completed": "succeeded, possibly `recovered`",
    "failed": "no rule of the ladder is left, possibly `tolerated`",
    "canceled": "never started, because of a failure elsewhere or a cancel",
    "terminated": "killed while it ran",
    "disabled": "a remediation step that was not called",
    "pending_failed": "parked: a failure waits for judgement",
    "recovering": "waits before a retry, or a repair runs",
    "skipped": "its `when` was false, what it needs was skipped, or no arc reached it",
}


def sentence(thing: object) -> str:
    """The first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def native_file() -> str:
    """The reference of the native file."""
    lines = ["# The native file, key by key", "", MARK, ""]
    lines += [
        "YAML 1.2. An unknown key is an error. Durations: a number is seconds, a text is `500ms`, `30s`, `2m`,",
        "`1h30m`. The keys of each mapping are listed by how often people need them.",
        *_key_tables(TABLES),
    ]
    lines += ["", "## Limits", "", "| what | limit |", "|---|---|"]
    lines += [limit_row(name, value) for name, value in vars(limits).items() if name.isupper()]
    return "\n".join(lines) + "\n"


def limit_row(name: str, value: float) -> str:
    """A limit of the model in words: FILE_BYTES_MAX is `file: 32 MB at most`."""
    words = name.lower().split("_")
    text = f"{value:,.10g}"
    if "bytes" in words:
        text = f"{value / 2**20:g} MB" if value >= 2**20 else f"{value / 2**10:g} KB"
    elif "seconds" in words:
        text += " s"
    elif "characters" in words:
        text += " characters"
    suffix = " at most" if "max" in words else " by default" if "default" in words else ""
    what = " ".join(word for word in words if word not in ("bytes", "seconds", "characters", "max", "default"))
    return f"| {what} | {text}{suffix} |"


def ir_page() -> str:
    """The reference of `ir`."""
    lines = ["# The key `ir`", "", MARK, ""]
    lines += [
        "Files of other systems compile to [the native file](native-file.md), and `resile migrate`",
        "writes them as one. The key `ir`, of the workflow and of a step, has the settings that only such files need:",
        "",
        "```yaml",
        "resile: 1",
        "ir: {templates: liquid}",
        "steps:",
        "  greet:",
        "    ir: {log: 'Hello {{ \"world\" | upcase }}', tags: [fast]}",
        "```",
        *_key_tables(IR_TABLES),
    ]
    return "\n".join(lines) + "\n"


def _key_tables(known: tuple[Table, ...]) -> list[str]:
    """A section for each table of keys; a second name of a key is in that key's row."""
    lines: list[str] = []
    for each in known:
        lines += ["", f"## {each.name[:1].upper()}{each.name[1:]}", "", each.doc, ""]
        lines += ["| key | value | meaning |", "|---|---|---|"]
        for key in each.keys.values():
            if key.kind.startswith("as `"):
                continue
            others = [other.name for other in each.keys.values() if other.kind == f"as `{key.name}`"]
            names = ", ".join(f"`{name}`" for name in (key.name, *others))
            lines.append(f"| {names} | {cell(key.kind)} | {cell(key.doc)} |")
    return lines


def cli_page() -> str:
    """The reference of the command line."""
    lines = ["# The command line", "", MARK, ""]
    lines += [
        "`resile COMMAND --help` prints the same text. RUN is the number of a run, as `resile ls` lists them; STEP is",
        "the name of a step. With `--json` a command prints [one JSON document](json.md).",
        "",
        *command_sections(),
    ]
    return "\n".join(lines) + "\n"


def json_page() -> str:
    """The reference of the JSON that commands print."""
    lines = ["# The JSON of commands", "", MARK, ""]
    lines += [
        "With `--json` a command prints one document on stdout and nothing else there. Each document has a `version`,",
        "which rises when a field is removed or changes its meaning, not when one is added. Times are ISO 8601 in UTC.",
        "In the objects of `explain` and in a `failure` empty fields are left out.",
        "",
        *document_sections(),
    ]
    return "\n".join(lines) + "\n"


def api_page() -> str:
    """The reference of the REST API."""
    lines = ["# The REST API", "", MARK, "", *route_sections()]
    return "\n".join(lines) + "\n"


def state_machine() -> str:
    """The page that draws the whole state machine."""
    lines = ["# The state machine", "", MARK, "", sentence(inspect.getmodule(HANDLERS[get_args(Event)[0]])), ""]
    lines += [
        "```text",
        *DRAWING,
        "```",
        "",
        "## Statuses of a job",
        "",
        "| number | status | terminal | meaning |",
        "|---|---|---|---|",
    ]
    for status in Status:
        ends = "yes" if status in TERMINAL else ""
        lines.append(f"| {status.value} | `{status.name}` | {ends} | {STATUS_MEANING[status.name]} |")
    lines += [
        "",
        "## Transitions of a job",
        "",
        "A job changes its status in these ways and in no other.",
        "",
        "| from | to | by |",
        "|---|---|---|",
        *(f"| `{source.name}` | `{target.name}` | {cell(by)} |" for (source, target), by in TRANSITIONS.items()),
        "",
        "## Events: the core's input",
        "",
        "| event | what happened | what the core does |",
        "|---|---|---|",
    ]
    for event in get_args(Event):
        handler = HANDLERS[event]
        lines.append(f"| `{event.__name__}` | {cell(sentence(event))} | {cell(sentence(handler))} |")
    lines += ["", "## Orders: the core's output", "", "| order | meaning |", "|---|---|"]
    lines += [f"| `{order.__name__}` | {cell(sentence(order))} |" for order in get_args(Order)]
    lines += ["", "## Words of the ladder", ""]
    lines += ["| kind of failure | meaning |", "|---|---|"]
    lines += [f"| `{kind}` | {row.meaning} |" for kind, row in FAILURE_KINDS.items()]
    lines += ["", "What a rule may decide: " + ", ".join(f"`{then}`" for then in get_args(Then)) + "."]
    return "\n".join(lines) + "\n"


WHAT_BECOMES = {"refused": "refused", "label": "label", "comment": "label"}
"""Kinds of keys in the tables that say more than what a value is."""
PLACES_SHOWN = 3


def compatibility() -> str:
    """The page about the keys of other systems' files."""
    lines = ["# Files of other systems, key by key", "", MARK, ""]
    lines += [
        "Resile runs files of these systems as they are, and `resile migrate` makes native files of them. A key runs,",
        "is refused by name with its place and a hint, or is a label that only people read; any other key is an error.",
    ]
    for name, differences in DIFFERENCES.items():
        lines += ["", f"## {name.capitalize()}", "", "Where the meaning differs:", ""]
        lines += ["| key | there | here |", "|---|---|---|"]
        lines += [f"| {cell(key)} | {cell(there)} | {cell(here)} |" for key, there, here in differences]
        lines += ["", "Every key:", "", "| key | in | value | becomes | meaning, or why not |", "|---|---|---|---|---|"]
        lines += _key_rows(name)
    return "\n".join(lines + _python()) + "\n"


def _python() -> list[str]:
    """The section on workflows in Python; it must list every option."""
    for part, known in (("of `@step` and `.options`", STEP_OPTIONS), ("of `Workflow`", WORKFLOW_OPTIONS)):
        assert [name for name, _ in PYTHON[part]] == list(known), part
    lines = ["", "## Python", ""]
    lines += [
        "A file of Python runs as it is ([Python](../guides/python.md)), and `resile migrate flow.py` writes a",
        "native file whose steps call the same functions with the same arguments. The functions stay where they are:",
        "Python code has no other form. Python must find the module from the folder of the run. Values that JSON",
        "can't hold are pickles there too; the functions' own files must define their classes.",
        "",
        "| in Python | | in the native file |",
        "|---|---|---|",
    ]
    return lines + [
        f"| `{cell(name)}` | {part} | {cell(becomes)} |" for part, rows in PYTHON.items() for name, becomes in rows
    ]


def _key_rows(name: str) -> list[str]:
    """The keys of a front end, those that mean the same in several mappings once."""
    places: dict[tuple[str, str, str], tuple[Key, list[str]]] = {}
    for known in tables(name):
        for key in known.keys.values():
            places.setdefault((key.name, key.kind, key.doc), (key, []))[1].append(known.name)
    rows = []
    for key, found in places.values():
        where = ", ".join(found[:PLACES_SHOWN])
        where += f" and {len(found) - PLACES_SHOWN} more" if len(found) > PLACES_SHOWN else ""
        becomes = WHAT_BECOMES.get(key.kind, "label" if key.doc == "A label." else "runs")
        value = "" if key.kind in WHAT_BECOMES else key.kind
        said = key.doc[:1].upper() + key.doc[1:].rstrip(".") + "."
        rows.append(f"| `{key.name}` | {cell(where)} | {cell(value)} | {becomes} | {cell(said)} |")
    return rows


DRAWING = [
    "                 needs hold           room                started",
    "  blocked ------------------> ready -------> pending -----------------> running",
    "     |  when false: skipped     ^                                        |    |",
    "     |  a need failed: canceled |            wait, repair                |    | success",
    "     |                          +------------ recovering <--- failure ---+    v",
    "     |                                            |           (a rule)     completed",
    "     v                                            v",
    "  canceled, skipped                   failed, pending_failed (parked), completed (recovered)",
    "",
    "  every path --> end --> workflow_completed | workflow_failed | workflow_canceled",
]

PAGES = {
    "reference/cli.md": cli_page,
    "reference/json.md": json_page,
    "reference/api.md": api_page,
    "reference/native-file.md": native_file,
    "reference/ir.md": ir_page,
    "reference/state-machine.md": state_machine,
    "reference/compatibility.md": compatibility,
    **{f"images/{name}.svg": partial(lambda name: pictures()[name], name) for name in NAMES},
}


def main() -> int:
    """Write the pages; with --check only say which are stale."""
    check = "--check" in sys.argv[1:]
    stale = [name for name, make in PAGES.items() if not (HERE / name).exists() or (HERE / name).read_text() != make()]
    for name in stale:
        if check:
            print(f"docs/{name} is stale: run `make docs`")
        else:
            (HERE / name).write_text(PAGES[name]())
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
