"""The settings of the programs that run the tools of a playbook, with every value in place.

Python  main's parameters by name, from everything the step sees; values inside the code are data as well
Http    the URL with its parameters, and the changes that a case made for a further attempt
Query   statements with every value written for its position, or rows for a table
"""

from __future__ import annotations

import os
from typing import Any

from resile.languages.contract import Program, render_data, render_text
from resile.languages.jinja.plain_values import IN_END, plain_text
from resile.languages.jinja.scope import JinjaNames, as_data
from resile.languages.jinja.sql import render_sql
from resile.languages.program_settings import http_settings
from resile.languages.references import MISSING, ValueRefused
from resile.model.workflow import Http, Python, Query

CONTEXT = "context"
_BODIES = ("payload", "data", "body", "json")


def tool_program(action: Http | Python | Query, name: str, folder: str, shared: str, names: JinjaNames) -> Program:
    """The program of a tool; `folder` is the playbook's, `shared` one for all steps of the run."""
    match action:
        case Http():
            return Program("http", _http(action, names))
        case Query():
            return Program("sql", _query(action, folder, shared, names), may_use_file=True)
        case Python():
            return Program("playbook", _python(action, name, folder, names), may_use_file=True)


def _python(action: Python, name: str, folder: str, names: JinjaNames) -> dict[str, Any]:
    """The settings of Python code, with the values it uses."""
    file = render_text(action.file, names)
    if file and os.path.splitext(file)[1] not in (".py", ""):
        raise ValueRefused(f"the script {file!r} is no Python file")
    args = {**names.args, **names.scope.repeat_settings(names.job).get("args", {})}
    # The names that code in a file uses are not known here.
    whole = CONTEXT in action.names or bool(action.file)
    context = names.scope.context(names.job, names.find) if whole else {}
    for wanted in action.names:
        if wanted not in args and wanted not in context and wanted != CONTEXT:
            value = as_data(names.find(wanted))
            if value is not MISSING or IN_END.get():
                context[wanted] = None if value is MISSING else value
    return {
        "name": name,
        "source": action.source,
        "file": _script(folder, file),
        "inputs": args,
        "context": context,
        "places": render_data(action.places, names),
        "status_fails": action.status_fails,
    }


def _script(folder: str, file: str) -> str:
    """The path of a script: beside the playbook, else relative to the directory of the run."""
    beside = os.path.join(folder, file)
    return beside if file and os.path.exists(beside) else file


def _http(action: Http, names: JinjaNames) -> dict[str, Any]:
    """The settings of a request, with the changes that a case made for this attempt."""
    from urllib.parse import urlencode

    again = names.scope.repeat_settings(names.job)
    settings = http_settings(action, names, str(again["url"]) if "url" in again else "")
    params = render_data(action.params, names) if action.params is not None else {}
    if not isinstance(params, dict):
        raise ValueRefused("`params` must come to a mapping of names to values")
    # Messages show the url without its query.
    settings["shown"] = names.scope.run.redact(settings["url"].partition("?")[0].partition("#")[0])
    pairs = _pairs({**params, **again.get("params", {})})
    if pairs:
        settings["url"] += ("&" if "?" in settings["url"] else "?") + urlencode(pairs)
    for header, value in again.get("headers", {}).items():
        settings["headers"] = [pair for pair in settings["headers"] if pair[0].lower() != header.lower()]
        settings["headers"].append((header, plain_text(value)))
    changed = next((again[word] for word in _BODIES if word in again), None)
    if changed is not None:
        import json

        settings["body"] = json.dumps(changed, ensure_ascii=False)
    if action.form is not None and changed is None:
        settings["body"] = urlencode(_pairs(render_data(action.form, names)))
    return {**settings, "envelope": action.envelope, "verify": action.is_verified}


def _pairs(data: Any) -> list[tuple[str, str]]:
    """Names and values for a URL or a form; nothing is omitted, a list repeats its name."""
    if not isinstance(data, dict):
        raise ValueRefused("a form must come to a mapping of names to values")
    return [
        (str(name), plain_text(value))
        for name, values in data.items()
        for value in (values if isinstance(values, list) else [values])
        if value is not None
    ]


def _query(action: Query, folder: str, shared: str, names: JinjaNames) -> dict[str, Any]:
    """The settings of statements, or of rows for a table."""
    # The steps of a run that names no database share one. Its name has the run's uuid: a folder may be left over from
    # a run with the same number, because every store counts runs anew.
    tables = os.path.join(os.path.abspath(shared), f"tables-{names.find('job')['uuid']}.duckdb")
    params = render_data(action.params, names)
    has_params = action.engine == "postgres" and params is not None
    return {
        "engine": action.engine,
        "statements": render_sql(action.statements, names.find, has_params=has_params),
        "file": _script(folder, render_text(action.file, names)),
        "auth": render_text(action.auth, names),
        "database": render_text(action.database, names) or tables,
        "params": params,
        "table": render_text(action.table, names),
        "rows": render_data(action.rows, names),
        "columns": action.columns,
        "key": list(action.key),
        "secrets": [
            {"name": one.name, "kind": one.kind, "credential": one.credential, "scope": render_text(one.scope, names)}
            for one in action.secrets
        ],
    }
