"""Statements and rows for databases, run for real."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from resile.languages.jinja.sql import render_sql
from resile.languages.references import ValueRefused
from tests.cli.program import Program
from tests.cluster import private_cluster
from tests.dialects.noetl.playbooks import Run, written


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """A PostgreSQL of our own, on a socket in a folder."""
    with private_cluster() as cluster:
        yield f"host={cluster.folder} user=postgres dbname=postgres"


def test_tables_live_as_long_as_the_run(tmp_path: Path) -> None:
    """What one step creates the next one finds; one set of rows is the result, several have their numbers."""
    run = Run(
        tmp_path,
        """
        workload: {who: "O'Brien; DROP TABLE people; --"}
        workflow:
          - step: start
            tool: {kind: duckdb, command: "CREATE TABLE people (id INTEGER PRIMARY KEY, name VARCHAR, extra JSON)"}
            next: fill
          - step: fill
            tool:
              kind: duckdb
              command: INSERT INTO people VALUES (1, '{{ workload.who }}', NULL), (2, {{ workload.who }}, NULL)
            next: read
          - step: read
            tool: {kind: duckdb, query: "SELECT id, name FROM people ORDER BY id"}
            next: [{step: both, args: {first: "{{ read.command_0[0].id }}", rows: "{{ read.data }}"}}]
          - step: both
            tool: {kind: duckdb, database: ":memory:", commands: ["SELECT {{ first }} AS one", "SELECT 2 AS two"]}
            next: bound
          - {step: bound, tool: {kind: duckdb, command: "SELECT ? AS x", params: ["{{ both.command_0.rows[0].one }}"]}}
        """,
    )
    evil = "O'Brien; DROP TABLE people; --"
    assert run.value("read") == [{"id": 1, "name": evil}, {"id": 2, "name": evil}]
    both = run.value("both")
    assert (both["command_0"]["rows"], both["command_1"]["rows"]) == ([{"one": 1}], [{"two": 2}])
    assert run.value("bound") == [{"x": 1}]


def test_results_go_into_tables(tmp_path: Path) -> None:
    """A sink adds a row, replaces the one with the same key, and takes a list of them; values are bound."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: {kind: duckdb, command: "CREATE TABLE t (id INTEGER PRIMARY KEY, name VARCHAR, more JSON)"}
            next: one
          - step: one
            tool: {kind: python, code: "def main(): return {'id': 1, 'name': \\"it's\\"}"}
            sink: {tool: duckdb, table: t, args: {id: "{{ result.id }}", name: "{{ result.name }}", more: {a: [1]}}}
            next: two
          - step: two
            tool: {kind: python, code: "def main(): return [{'n': 1, 'who': 'x'}, {'n': 2, 'who': 'y'}]"}
            sink: {tool: {kind: duckdb}, table: t, mode: upsert, key: id, mapping: {id: n, name: who},
                   data: "{{ result }}"}
            next: read
          - {step: read, tool: {kind: duckdb, query: "SELECT * FROM t ORDER BY id"}}
        """,
    )
    assert run.value("read") == [{"id": 1, "name": "x", "more": '{"a": [1]}'}, {"id": 2, "name": "y", "more": None}]


def test_a_statement_that_is_wrong_fails_its_step(tmp_path: Path) -> None:
    """What the database says is the failure, and a case can try again."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: {kind: duckdb, command: "SELECT FROM WHERE"}
            case: [{when: "event.name == 'call.error'", then: {retry: {max_attempts: 2, delay: 0}}}]
        """,
        code=1,
    )
    assert run.message().startswith("exit code 1: ParserException: ")
    assert run.document["jobs"][0]["attempts"] == 2


@pytest.mark.slow
def test_postgres_in_the_same_way(tmp_path: Path, dsn: str) -> None:
    """A credential is the name of a variable that says where the database is; statements run one after the other."""
    run = Run(
        tmp_path,
        """
        workload: {auth: pg_local, t: resile_test_people}
        workflow:
          - step: start
            tool:
              kind: postgres
              auth: "{{ workload.auth }}"
              command: |
                DROP TABLE IF EXISTS public.{{ workload.t }};
                CREATE TABLE public.{{ workload.t }} (id INT PRIMARY KEY, body JSONB);
            sink: {tool: postgres, auth: pg_local, table: "public.{{ workload.t }}", args: {id: 1, body: {a: "it's"}}}
            next: read
          - step: read
            tool:
              kind: postgres
              auth: pg_local
              command: SELECT body->>'a' AS a FROM {{ workload.t }}; DROP TABLE {{ workload.t }}
        """,
        PG_LOCAL_DSN=dsn,
    )
    assert run.value("read") == [{"a": "it's"}]


PLACES = (
    "SELECT '{{ v }}'",
    "SELECT E'{{ v }}'",
    "SELECT e'a\\\\'\n'{{ v }}'",
    "SELECT 'x' || '{{ v }}'",
    "SELECT $$ {{ v }} $$",
    "SELECT $tag${{ v }}{{ v }}$tag$",
    "SELECT _e.x FROM (VALUES ('\\')) AS _e(x) WHERE x = '\\' OR x = '{{ v }}'",
    'SELECT 1 AS "a{{ v }}"',
    "SELECT 1 WHERE 'q' = {{ v }}",
    "SELECT 1 WHERE 1 = 1 OR 'a' LIKE {{ v }}",
    "SELECT x FROM (VALUES ({{ v }}, '{{ v }}')) AS t(x, y)",
    "SELECT /* /* {{ v }} */ {{ v }} */ 1 -- {{ v }}\n",
    "SELECT 1 - {{ v }}::text::int",
    "DO $do$ BEGIN PERFORM '{{ v }}'; END $do$",
    "SELECT '{{ v }}' = %s",
)
STROKES = (
    "plain", "it's", "'", "''", "\\", "\\'", "\\\\'", '"', "$$", "$tag$", "$do$", "$", "tag$", "*/", "/*", "*", "/",
    "--", "-", ";", "\n", "\r", "%s", "%", "%%", "{{", "ä", "表", "\u2019", "\u02bc", "\x01", "\x85", "canary",
    "current_user", "); DROP TABLE canary; --", "'; DROP TABLE canary; --", "*/; DROP TABLE canary; --",
    "$$; DROP TABLE canary; --", "DROP TABLE canary",
)  # fmt: skip


@pytest.mark.slow
def test_no_value_becomes_a_statement_of_postgres(dsn: str) -> None:
    """In every place each pair of strokes is read as that value, or refused: by us, or by the database as a value."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True, client_encoding="utf8") as connection:
        connection.execute("DROP TABLE IF EXISTS canary")
        connection.execute("CREATE TABLE canary (id INT)")
        for text in PLACES:
            for value in (first + second for first in STROKES for second in ("", *STROKES)):
                params = [value] if "%s" in text else None
                try:
                    statement = render_sql(text, lambda _, value=value: value, has_params=params is not None)
                except ValueRefused:
                    continue
                try:
                    done = connection.execute(statement.encode(), params)
                    row = done.fetchone() if done.description else None
                except (psycopg.DataError, psycopg.errors.InvalidName):
                    continue
                if text in PLACES[:2]:
                    assert row == (value,)
                elif text == PLACES[2]:
                    assert row == ("a\\" + value,)
                elif text == PLACES[4]:
                    assert row == (f" {value} ",)
                elif "= %s" in text:
                    assert row == (True,)
        assert connection.execute("SELECT count(*) FROM canary").fetchone() == (0,)


def test_a_database_that_nothing_names(tmp_path: Path) -> None:
    """A credential without its variable is said by name."""
    run = Run(tmp_path, "workflow: [{step: start, tool: {kind: postgres, auth: pg_x, command: select 1}}]", code=1)
    assert run.message() == "exit code 2: nothing says where PostgreSQL is: set PG_X_DSN"


TABLES = """
workflow:
  - {step: start, tool: {kind: duckdb, command: "CREATE TABLE t AS SELECT 1 AS x"}, next: wait}
  - {step: wait, tool: {kind: shell, cmds: ["%s"]}, next: read}
  - {step: read, tool: {kind: duckdb, query: "SELECT x FROM t"}}
"""


def test_no_run_finds_the_tables_of_another(tmp_path: Path) -> None:
    """Runs of two stores have the same number and share a folder, and each of them begins without tables."""
    for store in ("one.db", "two.db"):
        run = Run(tmp_path, TABLES % "true", RESILE_DB=str(tmp_path / store), RESILE_OUTPUT_DIR=str(tmp_path / "out"))
        assert (run.id, run.value("read")) == ("1", [{"x": 1}])


def test_a_run_that_goes_on_finds_its_own_tables(tmp_path: Path) -> None:
    """What a step created before the engine was killed is there for the step that runs after."""
    program = Program(tmp_path)
    reached, go = program.gate("reached"), program.gate("go")
    program.write(written(TABLES % "echo > reached; read line < go"))
    with program.start("run", "flow.yaml") as started:
        reached.wait()
        started.send(signal.SIGKILL)
        started.end()
    go.open()
    assert program.json("resume", "1")["outputs"]["read"] == [{"x": 1}]
