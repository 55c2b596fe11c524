"""The step types `http`, `python` and `query`, which Resile runs as programs of its own.

The readers check as much as is possible before a run: the server of a URL is fixed by the file (or one reference is the
whole URL), headers are valid, code contains no references.
"""

from __future__ import annotations

import re
from typing import Any, get_args

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe, plain
from resile.dialects.native.context import Defaults, NativeReading
from resile.dialects.native.keys.model_fields import as_model, fields_of
from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.reading import values as read
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Key, read_mapping, table
from resile.errors import shorten
from resile.languages.references import names
from resile.model.limits import PROGRAM_BYTES_MAX
from resile.model.workflow import Http, Python, Query

ENGINES: tuple[str, ...] = get_args(Query.__annotations__["engine"])
# Keep patterns as texts: compiling them at import would slow down every file, also those without such a step.
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"


def _http(reading: Reading, node: Node) -> Any:
    """A request: a url, or a mapping."""
    if isinstance(node, Scalar):
        url = _url(reading, node)
        return url if url is INVALID else Http(url)
    fields = read_mapping(reading, node, HTTP_KEYS)
    if not isinstance(node, Mapping):
        return INVALID
    if "url" not in node.entries:
        reading.report.error("value", "`http` needs `url`", node)
    if "body" in node.entries and "json" in node.entries:
        message = "a request has one body: `body` or `json`"
        reading.report.error("conflict", message, node.entries["json"][0], hint="take one of the two out")
    if "save_to" in node.entries and "envelope" in node.entries:
        message = "`save_to` and `envelope` both say what becomes of the body"
        reading.report.error("conflict", message, node.entries["envelope"][0], hint="take one of the two out")
    has_body = "body" in fields or "json" in fields or "form" in fields
    return Http(**{"method": "POST" if has_body else "GET", **fields}) if "url" in fields else INVALID


def _url(reading: Reading, node: Node) -> Any:
    """Read a URL: references may fill its path and query, or one reference may be the whole URL."""
    url = read.template(reading, node)
    if url is INVALID or reading.is_checked:
        return url
    message, hint = reading.language.check_url(url)
    if message:
        reading.report.error("value", message, node, hint=hint)
        return INVALID
    return url


def _method(reading: Reading, node: Node) -> Any:
    """The method of a request, in capitals."""
    value = read.text(reading, node)
    if value is INVALID or not re.fullmatch(r"[A-Za-z]{1,20}", value):
        return (
            INVALID if value is INVALID else read.wrong(reading, node, "a method such as GET, POST, PUT, PATCH, DELETE")
        )
    return value.upper()


def _headers(reading: Reading, node: Node) -> Any:
    """Read headers by name; only their values may contain references."""
    if not isinstance(node, Mapping):
        return read.wrong(reading, node, "a mapping of names to values")
    result: dict[str, str] = {}
    for name, (key, value) in node.entries.items():
        content = read.template(reading, value)
        if not reading.is_checked and not re.fullmatch(_TOKEN, name):
            reading.report.error("name", f"`{shorten(name)}` can't be the name of a header", key)
        elif content is not INVALID and not reading.is_checked and re.search(r"[\r\n]", content):
            reading.report.error("value", f"the header `{shorten(name)}` has more than one line", value)
        elif content is not INVALID:
            result[name] = content
    return result


def _json(reading: Reading, node: Node) -> Any:
    if isinstance(node, Scalar) and node.value is None:
        return read.wrong(reading, node, "data", "an empty request has no `json`; null is written `body: 'null'`")
    return read.read_data(reading, node)


def _python(reading: Reading, node: Node) -> Any:
    """Code: a text, or a mapping."""
    if isinstance(node, Scalar):
        source = _source(reading, node)
        return source if source is INVALID else Python(source)
    fields = read_mapping(reading, node, PYTHON_KEYS)
    if not isinstance(node, Mapping):
        return INVALID
    if len({"source", "file"} & node.entries.keys()) != 1:
        reading.report.error("value", "`python` needs `source` or `file`, one of them", node)
        return INVALID
    return Python(**fields) if "source" in fields or "file" in fields else INVALID


def _code(reading: Reading, node: Node) -> Any:
    """Read a text without references: a value must never decide what runs."""
    value = read.text(reading, node)
    if value is not INVALID and reading.language.has_references and (found := names(value)):
        hint = "give it to `main` under `inputs`"
        message = f"`${{{shorten(found[0][0])}}}` can't stand here: a value never becomes code"
        reading.report.error("value", message, node, hint=hint)
        return INVALID
    return value


def _source(reading: Reading, node: Node) -> Any:
    """Code of a bounded size."""
    source = read.non_empty(_code, "the code")(reading, node)
    if source is INVALID or reading.is_checked:
        return source
    if len(source.encode("utf-8", "surrogateescape")) > PROGRAM_BYTES_MAX:
        message = f"the code has more than {PROGRAM_BYTES_MAX} bytes"
        reading.report.error("limit", message, node, hint="put it into a file: python: {file: step.py}")
        return INVALID
    return source


def _write_http(action: Http, writer: StepWriter, _: Inherited) -> dict[str, Any]:
    """Write the request; the method only where it does not follow from the body."""
    has_body = action.body is not None or action.json is not None or action.form is not None
    method = {} if action.method == ("POST" if has_body else "GET") else {"method": action.method}
    more = {key: value for key, value in writer.fields(action, HTTP_KEYS).items() if key != "method"}
    return {"http": {"url": action.url, **method, **more}}


def _with_inputs(reading: NativeReading, _: str, node: Mapping, fields: dict[str, Any], __: Defaults) -> Python:
    """Add the `inputs` beside `python` to its action."""
    action: Python = fields["python"]
    if "inputs" not in fields:
        return action
    if action.inputs:
        hint = "keep one of them"
        reading.report.error("conflict", "`python` has `inputs` already", node.entries["inputs"][0], hint=hint)
    inputs = read.read_inputs(reading, fields["inputs"])
    return action if inputs is INVALID else replace(action, inputs=inputs)


def _write_python(action: Python, writer: StepWriter, _: Inherited) -> dict[str, Any]:
    written = writer.fields(action, PYTHON_KEYS)
    inputs = {"inputs": written.pop("inputs")} if action.inputs else {}
    return {"python": written, **inputs}


def _query(reading: Reading, node: Node) -> Any:
    """Statements for a database that we know."""
    engine = node.entries["engine"][1] if isinstance(node, Mapping) and "engine" in node.entries else None
    if isinstance(node, Mapping) and (engine is None or plain(engine) not in ENGINES):
        found = f", not {describe(engine)}" if engine is not None else ""
        message = f"`query` needs an `engine`: {' or '.join(ENGINES)}{found}"
        reading.report.error("value", message, engine or node, hint="any other database: its client, in `shell`")
        return INVALID
    return as_model(Query, "`query`")(reading, node)


HTTP_KEYS = table(
    "http", "A request; the response's body is the step's output. Statuses of 400 and above fail with exit code 22.",
    Key("url", "url", "Values in its path and query are percent-encoded. One `${…}` may be all of it, or its beginning "
        "up to a slash; else its scheme and server can't contain values.",
        _url),
    Key("method", "text", "`GET` by default, `POST` if there is a body.", _method),
    Key("headers", "mapping", "Headers by name; a value may hold no line break.", _headers),
    Key("body", "text", "The body, as text.", read.template),
    Key("json", "data", "The body, as JSON; a text that is one `${…}` keeps the type of its value.", _json),
    Key("params", "data", "The query of the url.", read.read_data),
    Key("form", "data", "The body of a form.", read.read_data),
    Key("save_to", "path", "The file for the body, of any size; the step's output is then its path. Relative to the "
        "step's folder; no value leads out of the folder it stands in.", read.non_empty(read.template, "`save_to`")),
    read.true_or_false("envelope", "`true`: the output has the status and the headers too."),
    read.true_or_false("verify", "`false`: do not check the server's certificate.", "is_verified"),
    Key("expect_status", "whole number or list", "The only statuses that count as a success; redirects among them are "
        "not followed.", lambda reading, node: read.one_or_more(read.integer(100, 599))(reading, node) or INVALID),
)  # fmt: skip
PYTHON_KEYS = table(
    "python", "Code for an interpreter of its own; `${…}` in it is refused, values come as `inputs`.",
    Key("source", "code", "The code; if it defines `main`, the output is what `main` returns.", _source),
    Key("file", "path", "The file that holds the code, relative to the workflow file.",
        read.non_empty(_code, "`file`")),
    Key("inputs", "mapping", "As `inputs` of the step.", read.read_inputs),
    Key("names", "name or list", "Parameters of `main` that take their values from everything the step sees.",
        read.one_or_more(read.non_empty(read.text, "a name"))),
    Key("places", "mapping", "Values that the code contains as data, under these names.", read.read_inputs),
    read.true_or_false("status_fails", '`false`: a returned `{"status": "error"}` does not fail the step.'),
)  # fmt: skip

HTTP = StepType(
    Key("http", "url or mapping", "Action: a request; the body of the response is its output.", _http),
    Http,
    short="url",
    write=_write_http,
    makes_commits=False,
)
PYTHON = StepType(
    Key("python", "code or mapping", "Action: Python code; values come as `inputs`, never in the code.", _python),
    Python,
    short="source",
    build=_with_inputs,
    write=_write_python,
    beside=("inputs",),
)
QUERY = StepType(
    Key(
        "query",
        "mapping",
        f"Action: statements for a database, DuckDB or PostgreSQL: {fields_of(Query)}; `engine` is "
        f"{' or '.join(ENGINES)}.",
        _query,
    ),
    Query,
)
