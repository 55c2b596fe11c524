"""Credentials of a playbook: from the environment or a file of credentials, as headers, databases and secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from resile.executors.programs.sql_step import secret_statement
from resile.model.workflow import DatabaseSecret, Query, Secret
from tests.cli.program import Program
from tests.dialects.noetl.playbooks import Run, errors, step, workflow, written


class _Echo(BaseHTTPRequestHandler):
    """Answers a request with its own headers, apart from the usual ones."""

    def do_GET(self) -> None:
        """Answer with the headers in which a credential can be."""
        usual = ("host", "user-agent", "accept", "accept-encoding", "connection")
        own = {name: value[::-1] for name, value in self.headers.items() if name.lower() not in usual}
        body = json.dumps(own).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """A server that shows the headers of a request, each value backwards, because a secret would be masked."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


REQUEST = """
workload: {api: %s, path: projects/1/secrets/openai/versions/1}
workflow:
  - step: start
    tool: {kind: http, url: "{{ api }}", auth: %s}
"""


@pytest.mark.parametrize(
    ("auth", "env", "headers"),
    [
        ("{openai: {type: bearer, provider: secret_manager, key: '{{ path }}', oauth_credential: g}}",
         {"OPENAI_TOKEN": "t-1234"}, {"Authorization": "Bearer t-1234"}),
        ("{openai: {key: k}}", {"OPENAI_TOKEN": "t-1234"}, {"Authorization": "Bearer t-1234"}),
        ("{a: {type: api_key, key: k, header: X-One}, b: {type: basic, key: k}, c: {type: header, name: X-Two, "
         "value: 'run {{ execution_id }}'}}",
         {"A_KEY": "k-1234", "B_USERNAME": "u-1234", "B_PASSWORD": "p-1234"},
         {"X-One": "k-1234", "Authorization": "Basic dS0xMjM0OnAtMTIzNA==", "X-Two": "run 1"}),
        ("{source: credential, type: bearer, key: my-api}", {"MY_API_TOKEN": "t-1234"},
         {"Authorization": "Bearer t-1234"}),
        ("{tool: basic, source: credential, key: b, username: ann}", {"B_PASSWORD": "p-1234"},
         {"Authorization": "Basic YW5uOnAtMTIzNA=="}),
    ],
)  # fmt: skip
def test_credentials_by_their_names_become_headers(
    tmp_path: Path, server: str, auth: str, env: dict[str, str], headers: dict[str, str]
) -> None:
    """Each credential of `auth` adds its header, with the value of its variable."""
    run = Run(tmp_path, REQUEST % (server, auth), **env)
    assert {name: value[::-1] for name, value in run.value("start")["data"].items()} == headers


def test_a_file_of_credentials(tmp_path: Path, server: str) -> None:
    """`--credentials` gives the secrets that the playbook declares, the environment overrides it, steps see no more."""
    program = Program(tmp_path)
    (tmp_path / "creds.yaml").write_text("openai: {token: 0123}\nother: {token: never-seen}\n")
    text = """
    workload: {api: SERVER}
    workflow:
      - {step: start, tool: {kind: http, url: "{{ api }}", auth: {openai: {type: bearer}}}, next: look}
      - step: look
        tool: {kind: shell, cmds: ['env > seen']}
    """
    program.write(written(text.replace("SERVER", server)))
    refused = program.call("run", "flow.yaml", code=2).stderr
    assert "secret 'openai.token' is not in the environment (variable OPENAI_TOKEN)" in refused
    assert "export OPENAI_TOKEN=… before the run, or add --credentials FILE with `openai: {token: …}`" in refused
    document = program.json("run", "flow.yaml", "--credentials", "creds.yaml")
    assert document["outputs"]["start"]["data"]["Authorization"] == "3210 reraeB"
    assert "RESILE_CREDENTIALS" not in (tmp_path / "seen").read_text()
    assert "never-seen" not in (tmp_path / "seen").read_text()
    program.env["OPENAI_TOKEN"] = "of-env"
    document = program.json("rerun", "1", "--credentials", "creds.yaml")
    assert document["outputs"]["start"]["data"]["Authorization"] == "vne-fo reraeB"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [", "the credentials are no YAML"),
        ("- a", "the credentials must map names to their fields"),
        ("a: hush-hush", "the credentials must map names to their fields"),
        (None, "the credentials can't be read: No such file or directory"),
    ],
)
def test_a_file_of_credentials_that_is_none(tmp_path: Path, content: str | None, said: str) -> None:
    """A file that can't be used is an error before anything runs, and its text is not shown."""
    program = Program(tmp_path)
    program.write(written("workflow: [{step: start, tool: {kind: shell, cmds: ['touch ran']}}]"))
    if content is not None:
        (tmp_path / "creds.yaml").write_text(content)
    told = program.call("run", "flow.yaml", "--credentials", "creds.yaml", code=2).stderr
    assert said in told
    assert "creds.yaml" in told
    assert "hush-hush" not in told
    assert not (tmp_path / "ran").exists()


def test_where_a_database_is(tmp_path: Path) -> None:
    """The fields of a credential become the connection string of its database, and its password is masked."""
    (tmp_path / "creds.yaml").write_text(
        'pg_local: {db_host: 127.0.0.1, db_port: 1, db_user: ann, db_password: "it\'s", db_name: d}\n'
    )
    program = Program(tmp_path)
    text = """
    workload: {auth: pg_local}
    workflow:
      - {step: start, tool: {kind: shell, cmds: ['echo "$PG_LOCAL_DSN" > seen', "echo it\\\\'s"]}, next: ask}
      - {step: ask, tool: {kind: postgres, auth: "{{ workload.auth }}", command: select 1}}
    """
    program.write(written(text))
    document = program.json("run", "flow.yaml", "--credentials", "creds.yaml", code=1)
    assert (tmp_path / "seen").read_text() == "host='127.0.0.1' port='1' dbname='d' user='ann' password='it\\'s'\n"
    assert document["outputs"]["start"] == "***"
    assert 'connection to server at "127.0.0.1", port 1 failed' in document["first_failure"]["message"]


def test_the_database_of_a_mapping() -> None:
    """A postgres tool takes the one database of its credentials, by the name of the credential."""
    for auth in ("{pg: {type: postgres, key: pg_local}}", "{source: credential, tool: postgres, key: pg_local}",
                 "{pg_local: {}, store: {type: hmac, key: h}}"):  # fmt: skip
        found = workflow(f"workflow: [{{step: start, tool: {{kind: postgres, auth: {auth}, command: select 1}}}}]")
        action = found.steps[0].action
        assert isinstance(action, Query)
        assert (action.auth, action.secrets) == ("pg_local", ())
        assert found.secrets == {
            "pg_local.dsn": Secret(env="PG_LOCAL_DSN", is_optional=True),
            "pg_local.password": Secret(env="PG_LOCAL_PASSWORD", is_optional=True),
        }
    two = "{a: {type: postgres}, b: {type: postgres}}"
    assert errors(f"workflow: [{{step: start, tool: {{kind: postgres, auth: {two}, command: select 1}}}}]") == [
        ("`auth` names 2 databases, and a postgres tool needs one", 1, 55)
    ]


def test_the_secrets_of_duckdb() -> None:
    """Each credential of a duckdb tool is a secret of DuckDB, with its values from the environment."""
    text = """
    workload: {pg: pg_k8s}
    workflow:
      - step: start
        tool:
          kind: duckdb
          auth:
            pg_db: {source: credential, tool: postgres, key: "{{ workload.pg }}"}
            store: {source: credential, type: hmac, key: gcs-local, scope: "gs://{{ workload.pg }}", secret_name: g}
            s3: {service: s3}
          command: select 1
    """
    action = step(text).action
    assert isinstance(action, Query)
    assert action.secrets == (
        DatabaseSecret("pg_db", "postgres", "pg_k8s"),
        DatabaseSecret("g", "gcs", "gcs-local", "gs://{{ workload.pg }}"),
        DatabaseSecret("s3", "s3", "s3"),
    )
    assert workflow(text).secrets == {
        "pg_k8s.dsn": Secret(env="PG_K8S_DSN"),
        "gcs-local.key_id": Secret(env="GCS_LOCAL_KEY_ID"),
        "gcs-local.secret_key": Secret(env="GCS_LOCAL_SECRET_KEY"),
        "s3.key_id": Secret(env="S3_KEY_ID"),
        "s3.secret_key": Secret(env="S3_SECRET_KEY"),
    }


@pytest.mark.parametrize(
    ("secret", "env", "statement"),
    [
        ({"name": "g", "kind": "gcs", "credential": "gcs-local", "scope": "gs://b"},
         {"GCS_LOCAL_KEY_ID": "i'd", "GCS_LOCAL_SECRET_KEY": "s"},
         "CREATE OR REPLACE SECRET g (TYPE 'gcs', KEY_ID 'i''d', SECRET 's', SCOPE 'gs://b')"),
        ({"name": "a b", "kind": "postgres", "credential": "pg", "scope": ""},
         {"PG_DSN": "host='h' port='1' user='u' password='it\\'s'"},
         "CREATE OR REPLACE SECRET \"a b\" (TYPE 'postgres', HOST 'h', PORT '1', USER 'u', PASSWORD 'it''s')"),
        ({"name": "p", "kind": "postgres", "credential": "pg", "scope": ""},
         {"PG_DSN": "postgresql://u:p%40@h:5/d?sslmode=require"},
         "CREATE OR REPLACE SECRET p (TYPE 'postgres', HOST 'h', PORT '5', DATABASE 'd', USER 'u', PASSWORD 'p@')"),
    ],
)  # fmt: skip
def test_the_statement_of_a_secret(secret: dict[str, str], env: dict[str, str], statement: str) -> None:
    """The values of a secret are quoted, whatever they hold."""
    assert secret_statement(secret, env) == statement


def test_duckdb_gets_its_secrets_before_the_statements(tmp_path: Path) -> None:
    """Without the extension that knows such a secret the step fails and names it, and no value is shown."""
    text = """
    workflow:
      - step: start
        tool: {kind: duckdb, auth: {g: {type: gcs, key: h}}, command: "COPY (SELECT 1) TO 'written.csv'"}
    """
    env = {
        "H_KEY_ID": "id-1234",
        "H_SECRET_KEY": "hush-hush",
        "HOME": "/dev/null",
    }
    run = Run(tmp_path, text, code=1, **env)
    assert "httpfs" in run.message()
    assert "hush-hush" not in json.dumps(run.document)
    assert not (tmp_path / "written.csv").exists()


def test_a_step_that_fetches_a_secret(tmp_path: Path, server: str) -> None:
    """Templates that name a `secrets` step get the value, which is stored nowhere."""
    text = """
    workload: {api: %s}
    workflow:
      - step: start
        tool: {kind: secrets, provider: google, project_id: p, secret_name: projects/1/secrets/my.key/versions/1}
        next: ask
      - step: ask
        tool: {kind: http, url: "{{ api }}", headers: {X-Key: "{{ start.secret_value }}"}}
        next: call
      - step: call
        tool: {kind: python, args: {k: "{{ start.data.secret_value }}"}, code: "def main(k): return len(k)"}
    """
    run = Run(tmp_path, text % server, MY_KEY_SECRET_VALUE="hush-hush")
    assert run.value("ask")["data"] == {"X-Key": "hsuh-hsuh"}
    assert run.value("call") == 9
    assert b"hush-hush" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    del run.program.env["MY_KEY_SECRET_VALUE"]
    assert "MY_KEY_SECRET_VALUE" in run.program.call("run", "flow.yaml", code=2).stderr


def test_nothing_follows_from_a_secret() -> None:
    """A `secrets` step whose value would be stored is refused."""
    tool = "tool: {kind: secrets, name: k}"
    message = "the value of a `secrets` tool is never stored, so nothing can follow from it"
    assert errors(f"workflow: [{{step: start, {tool}, vars: {{k: '{{{{ result.secret_value }}}}'}}}}]") == [
        (message, 1, 39)
    ]
    assert errors("workflow: [{step: start, tool: {kind: secrets}}]") == [("a secrets tool needs `secret_name`", 1, 32)]
