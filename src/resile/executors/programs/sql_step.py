"""Runs statements on a database, or inserts rows into a table, as the program of a `duckdb` or `postgres` step.

    RESILE_STEP (JSON): engine, statements or file, params, auth, database, secrets; or table, rows, columns, key
    stdout: the rows of the one statement that returned some, as a JSON list of objects; several under `command_N`
    exit: 0 done, 1 the database refused, 2 there is no way to reach it

The environment gives the database: `<AUTH>_DSN` (in capitals), else for PostgreSQL the usual PG variables. Rows for a
table are bound as parameters and never become part of a statement. `secrets` are those of DuckDB, whose values are in
the environment too.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

EXIT_REFUSED = 1
EXIT_NO_DATABASE = 2
# Names in a connection string, and those of DuckDB.
_DSN_PARTS = {"host": "HOST", "port": "PORT", "dbname": "DATABASE", "user": "USER", "password": "PASSWORD"}


class NoDatabase(Exception):
    """There is no way to reach the database."""


def main() -> int:
    """Run the statements; return the exit code."""
    step: dict[str, Any] = json.loads(os.environ.pop("RESILE_STEP"))
    if "settings_file" in step:
        with open(step["settings_file"], "rb") as opened:
            step = json.loads(opened.read())
    try:
        results = list(_postgres(step) if step["engine"] == "postgres" else _duckdb(step))
    except (NoDatabase, ImportError) as problem:
        return _complain(str(problem), EXIT_NO_DATABASE)
    except Exception as error:
        return _complain(f"{type(error).__name__}: {error}", EXIT_REFUSED)
    print(json.dumps(_shape_result(results), ensure_ascii=False, default=str))
    return 0


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"{' '.join(message.split())}\n")
    return code


def _shape_result(results: list[tuple[list[dict[str, Any]] | None, int]]) -> Any:
    """Shape the result: the rows if exactly one statement returned some, else each statement's rows or row count."""
    with_rows = [rows for rows, _ in results if rows is not None]
    if len(with_rows) == 1:
        return with_rows[0]
    shaped: dict[str, Any] = {"status": "success"}
    for number, (rows, count) in enumerate(results):
        shaped[f"command_{number}"] = {"rows": rows or [], "row_count": count}
    return shaped


def _statements(step: dict[str, Any]) -> str:
    """The statements of a step or of its file."""
    if not step["file"]:
        return str(step["statements"])
    try:
        with open(step["file"], encoding="utf-8") as opened:
            return opened.read()
    except OSError as error:
        raise NoDatabase(f"can't read {step['file']}: {error.strerror}") from error


def _postgres(step: dict[str, Any]) -> Iterator[tuple[list[dict[str, Any]] | None, int]]:
    """Run the statements on PostgreSQL; yield each statement's rows and row count."""
    try:
        import psycopg  # type: ignore[import-not-found, unused-ignore]
        from psycopg.rows import dict_row  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise NoDatabase("postgres steps need the package psycopg: pip install 'resile[postgres]'") from error
    # The values in the statements are escaped for UTF-8 and for quotes in which a backslash is a character like any.
    with psycopg.connect(_dsn(step), autocommit=True, row_factory=dict_row, client_encoding="utf8") as connection:
        cursor = connection.cursor()
        cursor.execute("SET standard_conforming_strings = on")
        for text, values in _inserts(step, "%s") if step["table"] else [(_statements(step), step["params"])]:
            cursor.execute(text.encode(), values)
            more: bool | None = True
            while more:
                rows = cursor.fetchall() if cursor.description is not None else None
                yield rows, max(cursor.rowcount, 0)
                more = cursor.nextset()


def _dsn(step: dict[str, Any]) -> str:
    """The connection string of PostgreSQL."""
    name = _variable(step["auth"], "dsn") if step["auth"] else ""
    if name and name in os.environ:
        return os.environ[name]
    if "PGHOST" in os.environ or "PGSERVICE" in os.environ or "PGDATABASE" in os.environ:
        return ""
    raise NoDatabase(f"nothing says where PostgreSQL is: set {name or 'PGHOST'}")


def _variable(credential: str, field: str) -> str:
    """The environment variable for a field of a credential."""
    return "".join(c if c.isalnum() else "_" for c in f"{credential}_{field}").upper()


def secret_statement(secret: dict[str, str], env: Mapping[str, str]) -> str:
    """The statement that gives DuckDB a secret."""
    parts = {"TYPE": secret["kind"]}
    if secret["kind"] == "postgres":
        dsn = env[_variable(secret["credential"], "dsn")]
        parts |= {_DSN_PARTS[name]: value for name, value in _parts_of(dsn) if name in _DSN_PARTS}
    else:
        parts |= {"KEY_ID": env[_variable(secret["credential"], "key_id")]}
        parts |= {"SECRET": env[_variable(secret["credential"], "secret_key")]}
    if secret["scope"]:
        parts["SCOPE"] = secret["scope"]
    listed = ", ".join(f"{name} '{value.replace(chr(39), chr(39) * 2)}'" for name, value in parts.items())
    return f"CREATE OR REPLACE SECRET {_quote_name(secret['name'])} ({listed})"


def _parts_of(dsn: str) -> Iterator[tuple[str, str]]:
    """The parts of a connection string, which is a URL or words of the form name=value."""
    if "://" not in dsn:
        import shlex

        words = shlex.shlex(dsn, posix=True)
        words.whitespace_split, words.commenters, words.escapedquotes = True, "", "'"
        for word in words:
            name, _, value = word.partition("=")
            yield name, value
        return
    from urllib.parse import parse_qsl, unquote, urlsplit

    url = urlsplit(dsn)
    given = {"host": url.hostname, "port": url.port, "dbname": url.path.lstrip("/"), "user": url.username}
    for name, part in {**given, "password": url.password}.items():
        if part:
            yield name, unquote(str(part))
    yield from parse_qsl(url.query)


def _duckdb(step: dict[str, Any]) -> Iterator[tuple[list[dict[str, Any]] | None, int]]:
    """Run the statements on DuckDB; yield each statement's rows and row count."""
    try:
        import duckdb  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise NoDatabase("duckdb steps need the package duckdb: pip install 'resile[duckdb]'") from error
    with duckdb.connect(step["database"]) as connection:
        for secret in step["secrets"]:
            connection.execute(secret_statement(secret, os.environ))
        if step["table"]:
            for text, values in _inserts(step, "?"):
                connection.execute(text, values)
                yield None, 1
            return
        for statement in connection.extract_statements(_statements(step)):
            # Only queries return rows; for everything else DuckDB returns one row with a count.
            asks = statement.type == duckdb.StatementType.SELECT
            done = connection.execute(statement, step["params"] or None)
            rows = done.fetchall() if done.description else []
            names = [column[0] for column in done.description or []]
            if asks:
                yield [dict(zip(names, row, strict=True)) for row in rows], len(rows)
            else:
                yield None, int(rows[0][0]) if rows and names == ["Count"] else 0


def _inserts(step: dict[str, Any], mark: str) -> Iterator[tuple[str, list[Any]]]:
    """One statement for each row: insert it, or replace the row with the same key."""
    rows = step["rows"] if isinstance(step["rows"], list) else [step["rows"]]
    for row in rows:
        if not isinstance(row, dict) or not row:
            raise NoDatabase(f"a row for {step['table']!r} must be a mapping of columns to values")
        if step["columns"]:
            row = {column: row.get(field) for column, field in step["columns"].items()}
        columns = ", ".join(_quote_name(name) for name in row)
        text = f"INSERT INTO {'.'.join(_quote_name(part) for part in step['table'].split('.'))} ({columns})"
        text += f" VALUES ({', '.join([mark] * len(row))})"
        if step["key"]:
            rest = [name for name in row if name not in step["key"]]
            changes = ", ".join(f"{_quote_name(name)} = EXCLUDED.{_quote_name(name)}" for name in rest)
            keys = ", ".join(_quote_name(name) for name in step["key"])
            text += f" ON CONFLICT ({keys}) DO " + (f"UPDATE SET {changes}" if rest else "NOTHING")
        yield text, [json.dumps(value) if isinstance(value, dict | list) else value for value in row.values()]


def _quote_name(name: str) -> str:
    """Quote the name of a table or a column, unless it is plain, so that SQL folds its case as usual."""
    if name.isidentifier() and name.isascii():
        return name
    return '"' + name.replace('"', '""') + '"'


if __name__ == "__main__":
    sys.exit(main())
