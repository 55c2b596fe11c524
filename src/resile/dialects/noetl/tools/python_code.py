"""Python code in a playbook: the names that it needs, and the templates in it.

A `{{ ... }}` in code is a template if it uses only names that the playbook defines. The code gets its value as data
under a generated name; the value never becomes code. Any other `{{ ... }}` belongs to Python. The workload may contain
code: it is read from there when the file is loaded, and a run can't change it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar, Sequence
from resile.dialects.noetl.tools.keys import SCRIPT, SCRIPT_SOURCE
from resile.dialects.noetl.values import BUILT_IN, NoetlReading, find_in_workload, template
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import non_empty, text, wrong
from resile.errors import shorten
from resile.languages.jinja.templates import is_one_output, names_in, problem
from resile.model.limits import SCRIPT_BYTES_MAX

if TYPE_CHECKING:
    import ast

_TEMPLATE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_DOTTED = re.compile(r"\{\{\s*[A-Za-z_]\w*(?:\.\w+)+\s*\}\}")
CONTEXT = "context"


def read_code(reading: NoetlReading, fields: dict[str, Any], node: Node) -> dict[str, Any] | None:
    """Read the code of a python tool, as keys of a native step; None after a report."""
    given = [word for word in ("code", "code_b64", "script") if word in fields]
    if len(given) != 1:
        message = (
            "a python tool needs `code` or `script`" if not given else f"`{given[0]}` and `{given[1]}` are both code"
        )
        reading.report.error("value", message, node)
        return None
    status_fails = fields.get("result_status", "fail") == "fail"
    file, place = read_script(reading, fields["script"]) if "script" in fields else ("", fields[given[0]])
    if file:
        return {"python": {"file": file, "status_fails": status_fails}}
    if place is None:
        return None
    source = non_empty(text, "the code")(reading, place)
    if source is not INVALID and "code_b64" in fields:
        source = _decode(reading, source, place)
    return None if source is INVALID else compile_code(reading, source, place, status_fails)


def _decode(reading: NoetlReading, source: str, node: Node) -> Any:
    """Decode code that is written in base64."""
    import base64
    import binascii

    try:
        return base64.b64decode(source, validate=True).decode()
    except (binascii.Error, ValueError):
        return wrong(reading, node, "code in base64")


def read_script(reading: NoetlReading, node: Node) -> tuple[str, Node | None]:
    """Read `script`: the path of its file, or the node of its inline code; neither after a report."""
    fields = read_keys(reading, node, SCRIPT)
    source: Node | None = fields.get("source")
    about = read_keys(reading, source, SCRIPT_SOURCE) if source is not None else {}
    kind = about.get("type", "file")
    if kind == "inline" and "code" in about:
        if isinstance(node, Mapping) and "uri" in node.entries:
            message = "`uri` changes nothing beside inline code"
            reading.report.warning("no-effect", message, node.entries["uri"][0], hint="take `uri` out")
        return "", about["code"]
    if "code" in about:
        message = "`code` is for a source of the type `inline`"
        reading.report.error("conflict", message, about["code"], hint="take it out, or say `type: inline`")
    if kind not in ("file", "inline"):
        message = f"a script of the type `{shorten(str(kind))}` is not run: text from outside never becomes code"
        reading.report.error("not-run", message, source, hint="fetch the file before, and say `type: file`")
        return "", None
    if kind == "inline" or "uri" not in fields:
        reading.report.error("value", "a script needs `uri`, or `source` with `type: inline` and `code`", node)
        return "", None
    return str(fields["uri"]), None


def compile_code(reading: NoetlReading, source: str, node: Node, status_fails: bool = True) -> dict[str, Any] | None:
    """Build the action that runs code, with its templates as values and the names it needs; None after a report."""
    if is_one_output(source):
        value = find_in_workload(reading, source)
        if value is None:
            message = f"`{shorten(source.strip())}` is no code: a value never decides on what runs"
            reading.report.error("value", message, node, hint="write the code out, or keep it in the workload as text")
            return None
        source = value
    if len(source.encode("utf-8", "surrogateescape")) > SCRIPT_BYTES_MAX:
        reading.report.error("limit", f"the code has more than {SCRIPT_BYTES_MAX} bytes", node)
        return None
    places: dict[str, Any] = {}
    source = _take_templates_out(reading, source, node, places)
    if '\\"' in source and isinstance(_parse(source), Exception):
        plain = source.replace('\\"', '"')
        if not isinstance(_parse(plain), Exception):
            message = 'the code is Python only without the backslashes before its quotes: `\\"` is read as `"`'
            reading.report.warning("python", message, node, hint="take the backslashes out")
            source = plain
    names = _names_for(reading, source, node)
    if names is None:
        return None
    return {"python": {"source": source, "names": names, "places": places, "status_fails": status_fails}}


def _take_templates_out(reading: NoetlReading, source: str, node: Node, places: dict[str, Any]) -> str:
    """Replace each template in code by a name, and put its value under that name into `places`."""
    if "{{" not in source:
        return source
    prefix = "value"
    while prefix in source:
        prefix += "_"

    def name_for(found: re.Match[str]) -> str:
        """Choose the name for one template; leave text that belongs to Python."""
        written = found[0]
        names = names_in(written) if not problem(written) else frozenset()
        if not names or not names <= reading.known | BUILT_IN:
            if names and _DOTTED.fullmatch(written):
                (name,) = names
                message = (
                    f"nothing in this playbook is called `{shorten(name)}`, so `{shorten(written)}` stays in the code"
                )
                hint = did_you_mean(name, [*reading.known, *BUILT_IN])
                reading.report.warning("unknown-name", message, node, hint=hint)
            return written
        # The `x` keeps one name from being a prefix of another.
        name = f"{prefix}{len(places)}x"
        places[name] = written
        return name

    return _TEMPLATE.sub(name_for, source)


def _parse(source: str) -> ast.Module | Exception:
    """Parse code; return the error if it does not parse."""
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return error


def _names_for(reading: NoetlReading, source: str, node: Node) -> tuple[str, ...] | None:
    """Find the parameters of `main`, and `context` if the code names it; None if the code does not parse."""
    import ast

    tree = _parse(source)
    if isinstance(tree, Exception):
        line = getattr(tree, "lineno", None) or 0
        said = getattr(tree, "msg", None) or str(tree)
        place = Mark(node.line + line, 1) if isinstance(node, Scalar) and line and "\n" in node.text else node
        reading.report.error("python", f"the code does not parse: {said} (its line {line})", place)
        return None
    used = [part for part in ast.walk(tree) if isinstance(part, ast.Name)]
    functions = [part for part in tree.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    mains = [part for part in functions if part.name == "main"]
    if mains:
        arguments = mains[-1].args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    elif not any(part.id == "result" and isinstance(part.ctx, ast.Store) for part in used):
        hint = "def main(…): return …, or result = …"
        reading.report.error("python", "the code has no `main` and leaves no `result`", node, hint=hint)
        return None
    else:
        names = sorted({part.id for part in used if isinstance(part.ctx, ast.Load)} & (reading.known | BUILT_IN))
    if any(part.id == CONTEXT for part in used):
        names.append(CONTEXT)
    return tuple(dict.fromkeys(names))


def statements_of(reading: NoetlReading, node: Node) -> Any:
    """Read SQL: a text, or a list of texts."""
    if isinstance(node, Sequence):
        parts = [template(reading, item) for item in node.items]
        return INVALID if INVALID in parts else ";\n".join(part.rstrip().rstrip(";") for part in parts)
    if isinstance(node, Mapping):
        return wrong(reading, node, "statements")
    return non_empty(template, "the statement")(reading, node)
