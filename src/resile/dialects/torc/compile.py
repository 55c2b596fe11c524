"""The Torc front end: a mapping with a list of jobs becomes a native tree, which the native front end reads.

    YAML, JSON, JSON5, KDL --parse--> tree of the user's file --lower--> native tree --compile_part--> Workflow

`lower` reports all errors of a file, in Torc's words, so the native front end repeats no check.
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, describe
from resile.dialects.native.compile import compile_part
from resile.dialects.native.context import NativeReading
from resile.dialects.reading.context import Reading, Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.torc.keys import TABLES
from resile.dialects.torc.lower import Lowering
from resile.dialects.torc.values import without_nulls
from resile.model.workflow import Workflow

NAME = "torc"
__all__ = ["TABLES", "compile_torc"]


def compile_torc(source: Source, root: Node | None, report: Diagnostics) -> Workflow | None:
    """Compile a Torc file; return None if it has an error. JSON5 and KDL come as text, without a root."""
    tree = root if root is not None else _parse(source, report)
    if tree is not None and not isinstance(tree, Mapping):
        report.error("type", f"a Torc file is a mapping, not {describe(tree)}", tree)
    if not isinstance(tree, Mapping):
        return None
    native = Lowering(Reading(source, report), without_nulls(tree)).lower()
    if report.errors:
        return None
    reading = NativeReading(source, Diagnostics(source.file))
    reading.is_checked = True
    reading.errexit = False
    workflow = compile_part(reading, native)
    report.errors += reading.report.errors
    # The jobs that parameters make from one job share its command: report a warning about it once.
    report.warnings += dict.fromkeys(found for found in reading.report.warnings if found.code == "tolerated")
    return None if workflow is None else replace(workflow, dialect=NAME)


def _parse(source: Source, report: Diagnostics) -> Node | None:
    """Parse a file that is not YAML."""
    if source.file.lower().endswith(".kdl"):
        from resile.dialects.torc.kdl_workflow import parse_kdl

        return parse_kdl(source.data, report)
    from resile.dialects.formats.json5 import parse_json5

    return parse_json5(source.data, report)
