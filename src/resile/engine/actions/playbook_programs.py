"""What the tools of a playbook hand to their programs: settings with every value in place, as JSON.

    Python  main's parameters by name, out of everything the step sees; values inside the code are data as well
    Http    the url with its parameters, and what a case changed for one more attempt
    Query   statements with every value written for its place, or rows for a table

Settings that are too many for one variable of the environment are handed over in a file of the attempt.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from resile.engine.actions.programs import http_settings, packed, step_command
from resile.languages.jinja.plain_values import native, plain_text
from resile.languages.jinja.sql import render_sql
from resile.languages.references import MISSING, ValueRefused
from resile.model.limits import PROGRAM_BYTES_MAX
from resile.model.workflow import Http, Python, Query

if TYPE_CHECKING:
    from resile.engine.evaluation.jinja_scope import Texts

CONTEXT = "context"
_BODIES = ("payload", "data", "body", "json")
Keep = Callable[[bytes], bytes]


def tool_program(
    action: Http | Python | Query, name: str, folder: str, shared: str, texts: Texts, keep: Keep
) -> tuple[tuple[bytes, ...], bytes]:
    """The command of a tool, and what it is told; `keep` puts what is too long for that into a file."""
    if isinstance(action, Http):
        return step_command("http_step.py"), packed(_http(action, texts))
    if isinstance(action, Query):
        return step_command("sql_step.py"), _told(_query(action, folder, shared, texts), keep)
    return step_command("playbook_step.py"), _told(_python(action, name, folder, texts), keep)


def _told(settings: dict[str, Any], keep: Keep) -> bytes:
    """The settings, or where they are."""
    import json

    data = json.dumps(settings).encode()
    return data if len(data) <= PROGRAM_BYTES_MAX else packed({"told_in": os.fsdecode(keep(data))})


def _python(action: Python, name: str, folder: str, texts: Texts) -> dict[str, Any]:
    """A piece of code with what it asks for."""
    file = texts.text(action.file)
    if file and os.path.splitext(file)[1] not in (".py", ""):
        raise ValueRefused(f"the script {file!r} is no Python file")
    args = {**texts.args, **texts.again.get("args", {})}
    # Of code in a file nobody knows what it asks for.
    whole = CONTEXT in action.names or bool(action.file)
    context = texts.context() if whole else {}
    for wanted in action.names:
        if wanted not in args and wanted not in context and wanted != CONTEXT:
            value = texts.find(wanted)
            if value is not MISSING and not _is_undefined(value):
                context[wanted] = native(value)
    return {
        "name": name,
        "source": action.source,
        "file": _script(folder, file),
        "inputs": args,
        "context": context,
        "places": texts.data(action.places),
        "status_fails": action.status_fails,
    }


def _script(folder: str, file: str) -> str:
    """Where a script is: beside the playbook, or else as the step sees it from where the run was started."""
    beside = os.path.join(folder, file)
    return beside if file and os.path.exists(beside) else file


def _is_undefined(value: Any) -> bool:
    """Is this a step without a result?"""
    from jinja2 import Undefined

    return isinstance(value, Undefined)


def _http(action: Http, texts: Texts) -> dict[str, Any]:
    """A request, with what a case changed for this attempt."""
    from urllib.parse import urlencode

    again = texts.again
    told = http_settings(action, texts, str(again["url"]) if "url" in again else "")
    params = texts.data(action.params) if action.params is not None else {}
    if not isinstance(params, dict):
        raise ValueRefused("`params` must come to a mapping of names to values")
    # Who reads a message wants to know which address it was; a query may be long, and says more than that.
    told["shown"] = texts.hidden(told["url"].partition("?")[0].partition("#")[0])
    pairs = _pairs({**params, **again.get("params", {})})
    if pairs:
        told["url"] += ("&" if "?" in told["url"] else "?") + urlencode(pairs)
    for header, value in again.get("headers", {}).items():
        told["headers"] = [pair for pair in told["headers"] if pair[0].lower() != header.lower()]
        told["headers"].append((header, plain_text(value)))
    changed = next((again[word] for word in _BODIES if word in again), None)
    if changed is not None:
        import json

        told["body"] = json.dumps(changed, ensure_ascii=False)
    if action.form is not None and changed is None:
        told["body"] = urlencode(_pairs(texts.data(action.form)))
    return {**told, "envelope": action.envelope, "verify": action.is_verified}


def _pairs(data: Any) -> list[tuple[str, str]]:
    """Names and values for a url or a form; nothing is left out, a list is a name several times."""
    if not isinstance(data, dict):
        raise ValueRefused("a form must come to a mapping of names to values")
    return [
        (str(name), plain_text(value))
        for name, values in data.items()
        for value in (values if isinstance(values, list) else [values])
        if value is not None
    ]


def _tables(texts: Texts) -> str:
    """The file for tables of a run that names none: what a step creates is there for the next one.

    It is called by the run itself, because the folder may be left over from a run with the same number: those are
    counted anew in every store.
    """
    return f"tables-{texts.find('job')['uuid']}.duckdb"


def _query(action: Query, folder: str, shared: str, texts: Texts) -> dict[str, Any]:
    """Statements, or rows for a table."""
    file = texts.text(action.file)
    return {
        "engine": action.engine,
        "statements": render_sql(action.statements, texts.find),
        "file": _script(folder, file),
        "auth": texts.text(action.auth),
        "database": texts.text(action.database) or os.path.join(os.path.abspath(shared), _tables(texts)),
        "params": texts.data(action.params),
        "table": texts.text(action.table),
        "rows": texts.data(action.rows),
        "columns": action.columns,
        "key": list(action.key),
    }
