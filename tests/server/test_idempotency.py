"""Idempotency keys of calls whose server died before it could answer."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from resile.server.access.tokens import local_user
from resile.server.requests.idempotency import call_name

from . import flows
from .service import API, Api, Server

# Reserves a key as a server does, and dies.
DEAD_SERVER = """
import sys
from resile.store.lease import boot_seconds
from resile.store.open import open_store
db, key, digest, at = sys.argv[1:]
assert open_store(db).server_tables().begin_call(key, digest, float(at), boot_seconds()) is None
"""


def begin(server: Server, path: str, body: Any, key: str) -> str:
    """Let a server that dies begin this call; the name of the call."""
    where, _, query = (API + path).partition("?")
    data = b"" if body is None else msgspec.json.encode(body)
    digest = hashlib.sha256(b"\0".join((where.encode(), query.encode(), data))).hexdigest()
    owned, at = f"{local_user()}:{key}", time.time()
    words = [sys.executable, "-c", DEAD_SERVER, server.db, owned, digest, repr(at)]
    subprocess.run(words, env=server.env, check=True, timeout=60)
    return call_name(owned, at)


def test_a_call_whose_server_died_is_carried_out_once(serve: Callable[..., Server]) -> None:
    """At once on its machine: what it had done is found and answered as the first answer; another body is refused."""
    server = serve()
    api, body = server.api, {"text": flows.HELLO}
    call = begin(server, "/runs", body, "made")
    made = api.start(flows.HELLO, key=call)
    other = api.post("/runs", {"text": flows.FAILS}, Idempotency_Key="made")
    assert (other.status, other.code) == (422, "idempotency_key_reused")
    for replayed in (None, "true"):
        answer = api.post("/runs", body, Idempotency_Key="made")
        assert (answer.status, answer.json["run"]) == (201, made)
        assert answer.headers.get("idempotent-replayed") == replayed
    begin(server, "/runs", body, "not made")
    assert api.post("/runs", body, Idempotency_Key="not made").json["run"] == made + 1


def test_a_new_run_of_another_is_made_once(serve: Callable[..., Server]) -> None:
    """A server died after it had made the run that `as_new` asks for: the same call again finds that run."""
    server = serve()
    api = server.api
    first = api.finish(flows.HELLO)
    path, body = f"/runs/{first}/rerun", {"as_new": True}
    call = begin(server, path, body, "again")
    made = api.start(flows.HELLO, key=call)
    for replayed in (None, "true"):
        answer = api.post(path, body, Idempotency_Key="again")
        assert (answer.status, answer.json["run"]) == (201, made)
        assert answer.headers["location"] == f"{API}/runs/{made}"
        assert answer.headers.get("idempotent-replayed") == replayed
    assert api.post(path, body, Idempotency_Key="another").json["run"] == made + 1
    assert api.post(path, body).json["run"] == made + 2


def test_a_request_that_was_left_is_not_left_again(serve: Callable[..., Server]) -> None:
    """A retry that the engine has carried out already is answered from its result, and nothing runs again."""
    server = serve()
    api = server.api
    run = api.finish(flows.FAILS)
    failed = next(job for job in api.get(f"/runs/{run}/jobs").json["items"] if job["status"] == "failed")
    path = f"/jobs/{failed['key']}/retry/1?max_retries=2"
    call = begin(server, path, None, "again")
    asked = {"job": failed["id"], "epoch": 1, "attempts_max": 2, "by": "ann", "call": call}
    words = "import sys, time, msgspec\nfrom resile.store.open import open_store\nstore = open_store(sys.argv[1])\n"
    words += "run = int(sys.argv[2])\nstore.server_tables().enqueue(run, time.time())\n"
    words += "store.request(run, time.time(), 'retry', msgspec.json.decode(sys.argv[3]))\n"
    argv = [sys.executable, "-c", words, server.db, str(run), msgspec.json.encode(asked).decode()]
    subprocess.run(argv, env=server.env, check=True, timeout=60)
    answer = api.post(path, Idempotency_Key="again")
    assert (answer.status, answer.json.get("attempt_id")) == (200, 2), answer.body
    api.wait_for(run)
    history = api.get(f"/runs/{run}/jobs/{failed['id']}").json["history"]
    assert [one["attempt"] for one in history] == [1, 2]
    assert api.post(path, Idempotency_Key="again").headers["idempotent-replayed"] == "true"
    refused = api.post(path)
    assert (refused.status, refused.code) == (422, "retries_exhausted")


def test_a_secret_is_not_shown_again_after_a_day(serve: Callable[..., Server], tmp_path: Path) -> None:
    """The key is free by then: the answer to the new call is repeated, and not the secret of the day before."""
    token_file = tmp_path / "tokens"
    token_file.write_text("filed admin s3cret\n")
    server = serve("--token-file", str(token_file))
    admin, body = Api(server.port, "s3cret"), {"name": "ci", "role": "operator"}
    made = admin.post("/tokens", body, Idempotency_Key="daily")
    assert made.status == 201
    with closing(sqlite3.connect(server.db)) as db, db:
        assert db.execute("UPDATE calls SET at = at - 90000").rowcount == 1
    for replayed in (None, "true"):
        answer = admin.post("/tokens", body, Idempotency_Key="daily")
        assert (answer.code, answer.headers.get("idempotent-replayed")) == ("token_exists", replayed)
