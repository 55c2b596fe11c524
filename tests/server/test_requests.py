"""Requests that are wrong: each is answered with its status and a code, and changes nothing."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from . import flows
from .service import API, Api, Server

_CHUNKED = (
    b"POST /api/v1/check HTTP/1.1\r\nHost: {own}\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def _read_all(client: socket.socket) -> bytes:
    """What the server sends until the connection ends."""
    answer = bytearray()
    with suppress(ConnectionError):
        while part := client.recv(65_536):
            answer += part
    return bytes(answer)


def test_a_wrong_method_names_the_right_ones(api: Api) -> None:
    """405 with `Allow`."""
    answer = api.call("PUT", f"{API}/runs")
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", "GET, POST")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/nothing", "no_such_path"),
        ("/runs/99999", "no_such_run"),
        ("/runs/abc", "no_such_path"),
        ("/runs/99999999999999999999", "no_such_path"),
        ("/runs/99999/jobs/1/attempts/1/stdout", "no_such_run"),
        ("/runs/99999/events/stream", "no_such_run"),
        ("/failure_handlers/7", "no_such_failure_handler"),
        ("/workflows/99999/failure_handlers", "no_such_run"),
    ],
)
def test_what_does_not_exist_is_not_found(api: Api, path: str, code: str) -> None:
    """404 with the code of what is missing."""
    answer = api.get(path)
    assert (answer.status, answer.code) == (404, code)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/runs?nope=1", "nope"),
        ("/runs?limit=0", "limit"),
        ("/runs?limit=1001", "limit"),
        ("/runs?limit=x", "limit"),
        ("/runs?limit=1&limit=2", "limit"),
        ("/runs?cursor=garbage", "cursor"),
        ("/runs?cursor=YWZ0ZXI6eA", "cursor"),
        ("/runs?status=gone", "status"),
        ("/runs?label=team", "label"),
        ("/runs?since=yesterday", "since"),
        ("/runs/1/events?after=-1", "after"),
        ("/jobs", "workflow_id"),
        ("/version?x=1", "x"),
    ],
)
def test_a_wrong_parameter_is_named(api: Api, path: str, name: str) -> None:
    """An unknown one, a wrong type, a value out of its range, one that is given twice, a garbage cursor: 422."""
    answer = api.get(path)
    assert (answer.status, answer.code) == (422, "invalid_field")
    assert f"`{name}`" in answer.json["detail"] or f"$.{name}`" in answer.json["detail"]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({}, "text"),
        ({"text": 1}, "text"),
        ({"text": "x", "txet": "y"}, "txet"),
        ({"text": "x", "max_parallel": 0}, "max_parallel"),
        ({"text": "x", "labels": {"a": 1}}, "labels"),
        ([], "object"),
    ],
)
def test_a_wrong_field_is_named(api: Api, body: object, name: str) -> None:
    """As for parameters."""
    answer = api.post("/runs", body)
    assert (answer.status, answer.code) == (422, "invalid_field")
    assert name in answer.json["detail"]


def test_a_body_that_is_no_json_is_malformed(api: Api) -> None:
    """400, also for an empty one where a body is needed."""
    for body in (b"{", b"", b"\xff", b"[" * 100_000):
        answer = api.post("/runs", body)
        assert (answer.status, answer.code) == (400, "malformed_json"), body[:10]


def test_another_content_type_is_refused(api: Api) -> None:
    """415; JSON with a charset is JSON."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", ""):
        answer = api.post("/check", b"{}", Content_Type=kind)
        assert (answer.status, answer.code) == (415, "wrong_content_type"), kind
    assert api.post("/check", {"text": "resile: 1"}, Content_Type="application/json; charset=utf-8").status == 200


def test_a_body_that_is_too_large_is_not_read(api: Api) -> None:
    """413 as soon as the length is known, and for one without a length when it is exceeded."""
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=60)
    connection.putrequest("POST", f"{API}/runs")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(33 * 2**20))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize(
    ("head", "rest"),
    [
        (b"GET /healthz HTTP/1.1\r\nX: ", b"y" * 60_000),
        (b"GET /healthz HTTP/1.1\r\n", b"X: y\r\n" * 10_000),
        (b"GET /", b"y" * 60_000),
        (_CHUNKED + b"2\r\n{}\r\n0\r\nX: ", b"y" * 60_000),
        (_CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 10_000),
        (_CHUNKED + b"2;", b"y" * 60_000),
    ],
    ids=["header", "headers", "path", "trailer", "trailers", "chunk-extension"],
)
def test_a_head_that_never_ends_is_refused(api: Api, head: bytes, rest: bytes) -> None:
    """400, and the connection is closed long before the client has sent a hundred such parts."""
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as client:
        with suppress(ConnectionError):
            client.sendall(head.replace(b"{own}", f"127.0.0.1:{api.port}".encode()))
            for _ in range(100):
                client.sendall(rest)
        answer = _read_all(client)
    assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
    assert api.get("/version").status == 200


@pytest.mark.parametrize("others", [b"Host: evil\r\nHost: {own}\r\n", b"Host: {own}\r\nhost: evil\r\n"])
def test_a_request_with_two_hosts_is_malformed(api: Api, others: bytes) -> None:
    """400, whichever of them is the server's own name."""
    hosts = others.replace(b"{own}", f"127.0.0.1:{api.port}".encode())
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 400 ")


def test_a_large_body_may_be_followed_by_another_request(api: Api) -> None:
    """Only heads are small: the next request on the connection is read, too, although it comes at once."""
    body = b'{"text": "' + b"x" * 300_000 + b'"}'
    own = f"Host: 127.0.0.1:{api.port}\r\n".encode()
    first = b"POST /api/v1/check HTTP/1.1\r\n" + own + b"Content-Type: application/json\r\n"
    second = b"GET /healthz HTTP/1.1\r\n" + own + b"Connection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as client:
        client.sendall(first + f"Content-Length: {len(body)}\r\n\r\n".encode() + body + second)
        answer = _read_all(client)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.endswith(b'{"status":"ok"}')


def test_requests_may_come_before_the_answer_to_the_first(api: Api) -> None:
    """The server answers fifty requests that come at once, and closes the connection if there are thousands."""
    request = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\n\r\n".encode()
    last = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as client:
        client.sendall(request * 49 + last)
        assert _read_all(client).count(b"HTTP/1.1 200 ") == 50
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as client:
        with suppress(ConnectionError):
            for _ in range(100):
                client.sendall(request * 1_000)
        answers = _read_all(client)
    assert b"HTTP/1.1 400 " in answers
    assert answers.count(b"HTTP/1.1 200 ") < 2_000
    assert api.get("/version").status == 200


def test_a_workflow_with_errors_is_refused_with_all_of_them(api: Api) -> None:
    """422 with the places; nothing is written."""
    before = api.get("/runs?limit=1").json["items"]
    text = "resile: 1\nsteps:\n  a: {shel: x}\n  b: {shell: x, needs: [c]}\n"
    answer = api.post("/runs", {"text": text, "file": "release.yaml"})
    assert (answer.status, answer.code) == (422, "invalid_workflow")
    errors = answer.json["errors"]
    assert {"file", "line", "column", "code", "message", "hint"} == errors[0].keys()
    assert {(error["file"], error["line"]) for error in errors} == {("release.yaml", 3), ("release.yaml", 4)}
    assert api.get("/runs?limit=1").json["items"] == before


@pytest.mark.parametrize("name", ["../x.yaml", "/etc/x", "a/../../x", "", "a//b", "a\nb", "x" * 300])
def test_files_stay_in_the_run_s_own_folder(api: Api, name: str) -> None:
    """A name from outside never leads elsewhere."""
    answer = api.post("/runs", {"text": flows.HELLO, "files": {name: "x"}})
    assert (answer.status, answer.code) == (422, "bad_file_name")


def test_python_is_not_compiled_by_a_server(api: Api) -> None:
    """Compiling would run it."""
    answer = api.post("/runs", {"text": "open('/nowhere', 'w')", "file": "flow.py"})
    assert (answer.status, answer.code) == (422, "invalid_workflow")


def test_wrong_inputs_and_directories_are_refused(api: Api) -> None:
    """422 each."""
    assert api.post("/runs", {"text": flows.HELLO, "inputs": {"x": 1}}).code == "input_unknown"
    assert api.post("/runs", {"text": flows.WAITS}).code == "input_missing"
    assert api.post("/runs", {"text": flows.HELLO, "directory": "relative"}).code == "no_such_directory"
    assert api.post("/runs", {"text": flows.HELLO, "directory": "/no/such/folder"}).code == "no_such_directory"


def test_check_reads_a_text_and_runs_nothing(api: Api) -> None:
    """Findings as `resile check` has them."""
    fine = api.post("/check", {"text": flows.HELLO}).json
    assert (fine["dialect"], fine["steps"], fine["diagnostics"]) == ("native", 2, [])
    wrong = api.post("/check", {"text": "resile: 1\nsteps: {a: {}}"}).json
    assert wrong["diagnostics"][0]["severity"] == "error"
    child = {"text": "resile: 1\nsteps: {a: {workflow: child.yaml}}", "files": {"child.yaml": flows.HELLO}}
    assert api.post("/check", child).json["diagnostics"] == []


def test_check_reads_no_file_of_the_machine(api: Api, tmp_path: Path) -> None:
    """A viewer can't read files by letting a workflow take them in: not by path, and not through a link."""
    (tmp_path / "private.yaml").write_text("root:x:0:0\nother: y\n")
    for name in (str(tmp_path / "private.yaml"), "../private.yaml", "/etc/passwd"):
        answer = api.post("/check", {"text": f"resile: 1\nsteps: {{a: {{workflow: {name}}}}}"})
        assert ":x:0" not in answer.body.decode()
        assert any("outside of the folder" in found["message"] for found in answer.json["diagnostics"]), name
        visor = f"version: '1.0'\nextends: {name}\nchecks: {{a: {{type: command, exec: 'true'}}}}"
        assert ":x:0" not in api.post("/check", {"text": visor}).body.decode()


def test_an_idempotency_key_gives_the_first_answer_again(api: Api) -> None:
    """The same request once; another body under the key is refused; 4xx answers are kept, too."""
    body = {"text": flows.HELLO, "labels": {"once": "yes"}}
    first = api.post("/runs", body, Idempotency_Key="key-1")
    again = api.post("/runs", body, Idempotency_Key="key-1")
    assert first.status == again.status == 201
    assert (first.body, first.headers["location"]) == (again.body, again.headers["location"])
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert len(api.get("/runs?label=once:yes").json["items"]) == 1
    other = api.post("/runs", {"text": flows.FAILS}, Idempotency_Key="key-1")
    assert (other.status, other.code) == (422, "idempotency_key_reused")
    refused = api.post("/runs/99999/cancel", Idempotency_Key="key-2")
    assert api.post("/runs/99999/cancel", Idempotency_Key="key-2").headers["idempotent-replayed"] == "true"
    assert refused.code == "no_such_run"
    assert api.post("/check", {"text": ""}, Idempotency_Key="k" * 256).code == "invalid_field"


@pytest.mark.slow
def test_an_unexpected_error_shows_no_internals(serve: Callable[..., Server]) -> None:
    """The database is gone: a problem without a path or a traceback, and the log says why."""
    server = serve()
    (server.folder / "resile.db").rename(server.folder / "elsewhere.db")
    answer = server.api.get("/runs")
    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert str(server.folder) not in answer.body.decode()
    assert server.api.call("GET", "/readyz").status == 503
    assert server.api.call("GET", "/healthz").json == {"status": "ok"}
    assert "store:" in server.log()
