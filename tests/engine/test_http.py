"""`http` steps against a real server: what goes over the wire, what comes back, and what is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from resile.dialects.compile import compile_text
from tests.engine.conftest import Place, statuses

HOSTILE = "a b/../c?x=1&y=$(touch pwned)#f%41\"'`\u00e9"


class Server(ThreadingHTTPServer):
    """Answers on a port of its own and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers: dict[str, Callable[[_Handler], None]] = {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.release = threading.Event()

    def paths(self) -> list[str]:
        """Method and path of each request, in order."""
        return [f"{method} {path}" for method, path, _, _ in self.asked]


class _Handler(BaseHTTPRequestHandler):
    """Hands each request to the answer that the test has for its path."""

    server: Server

    def _serve(self) -> None:
        """Remember, then answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, headers, body))
        if self.path in self.server.answers:
            self.server.answers[self.path](self)
        else:
            self.answer(200, b"hello")

    do_GET = do_POST = do_PUT = _serve

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """One whole answer."""
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in a thread of this process."""
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.release.set()
        running.shutdown()
        thread.join()


def _run(place: Place, steps: str, *words: str, head: str = "", **env: str) -> tuple[int, dict[str, Any]]:
    """Run steps with loopback out of any proxy's way."""
    return place.run(f"resile: 1\n{head}\nsteps:\n{steps}", *words, env={"no_proxy": "*", **env})


def test_the_answer_is_the_output(place: Place, server: Server) -> None:
    """The body is stdout, as any step's output, and the status is on stderr."""
    code, document = _run(place, f"  a: {{http: '{server.url}/x', capture: {{out: text, err: stderr}}}}\n")
    assert (code, document["outputs"]) == (0, {"out": "hello", "err": "HTTP 200 OK"})
    assert server.paths() == ["GET /x"]


def test_values_reach_the_server_as_data(place: Place, server: Server) -> None:
    """Whatever a value holds, path, query, header, body and JSON arrive as they were meant."""
    from urllib.parse import parse_qs, unquote, urlsplit

    code, _ = _run(
        place,
        f"""
  a:
    http:
      url: '{server.url}/p/${{inputs.v}}/q?k=${{inputs.v}}&z=1'
      headers: {{X-V: '${{inputs.v}}'}}
      body: 'b ${{inputs.v}}'
  b:
    needs: [a]
    http:
      url: '{server.url}/j'
      method: put
      json: {{v: '${{inputs.v}}', n: '${{inputs.n}}', t: 'n=${{inputs.n}}', l: [true, 1.5]}}
""",
        "--input",
        f"v={HOSTILE}",
        head="inputs: {v: x, n: {type: json, default: [1, {k: null}]}}",
    )
    assert code == 0
    (method, path, headers, body), (put, _, json_headers, sent) = server.asked
    parts = urlsplit(path)
    assert (method, put) == ("POST", "PUT")
    assert [unquote(part) for part in parts.path.split("/")] == ["", "p", HOSTILE, "q"]
    assert parse_qs(parts.query) == {"k": [HOSTILE], "z": ["1"]}
    assert headers["x-v"].encode("latin-1").decode() == HOSTILE
    assert (headers["content-type"], body.decode()) == ("text/plain; charset=utf-8", f"b {HOSTILE}")
    assert json_headers["content-type"] == "application/json"
    value = {"v": HOSTILE, "n": [1, {"k": None}], "t": 'n=[1,{"k":null}]', "l": [True, 1.5]}
    assert msgspec.json.decode(sent) == value
    assert not (place.folder / "pwned").exists()


def test_a_bad_status_is_retried_until_it_is_good(place: Place, server: Server) -> None:
    """Each attempt is a request, and the rules of the ladder see exit code 22."""
    answers = iter((503, 500, 200))
    server.answers["/x"] = lambda handler: handler.answer(next(answers), b"body")
    code, document = _run(
        place,
        f"  a: {{http: '{server.url}/x', failure_handler: h}}\n",
        head="failure_handlers: {h: {rules: [{exit_codes: 22, max_retries: 5}]}}",
    )
    assert (code, document["jobs"][0]["attempts"], server.paths()) == (0, 3, ["GET /x"] * 3)


def test_a_handler_hears_what_the_server_said(place: Place, server: Server) -> None:
    """The message names the status and the url without its query; the body is there as `error.stdout`."""
    server.answers["/x/1?key=hush"] = lambda handler: handler.answer(404, b"no such thing")
    code, document = _run(
        place,
        f"""
  a:
    http: '{server.url}/x/${{inputs.n}}?key=hush'
    on_failure: "echo ${{error.message}} / ${{error.stdout}} / ${{error.exit_code}} > said"
""",
        head="inputs: {n: 1}",
    )
    assert (code, document["jobs"][0]["recovered"]) == (0, True)
    message = f"exit code 22: HTTP 404 Not Found from {server.url}/x/${{inputs.n}}"
    assert place.text("said") == f"{message} / no such thing / 22\n"


def test_only_expected_statuses_are_a_success(place: Place, server: Server) -> None:
    """An expected 404 or redirect is taken as it is, and a 200 that was not expected fails."""
    server.answers["/gone"] = lambda handler: handler.answer(404)
    server.answers["/moved"] = lambda handler: handler.answer(302, Location="/x")
    code, document = _run(
        place,
        f"""
  gone: {{http: {{url: '{server.url}/gone', expect_status: 404}}}}
  moved: {{http: {{url: '{server.url}/moved', expect_status: [302]}}}}
  made: {{http: {{url: '{server.url}/made', expect_status: [201, 202]}}}}
""",
    )
    assert code == 1
    assert statuses(document) == {"gone": "completed", "moved": "completed", "made": "failed", "end": "completed"}
    message = f"exit code 22: HTTP 200 OK from {server.url}/made, expected 201 or 202"
    assert document["first_failure"]["message"] == message
    assert sorted(server.paths()) == ["GET /gone", "GET /made", "GET /moved"]


def test_redirects_stay_on_the_web_and_keep_keys_at_home(place: Place, server: Server) -> None:
    """A redirect is followed with its headers on the same server, without them elsewhere, and never to a file."""
    secret = place.folder / "secret"
    secret.write_text("inside")
    other = server.url.replace("127.0.0.1", "localhost")
    server.answers["/near"] = lambda handler: handler.answer(302, Location="/x")
    server.answers["/far"] = lambda handler: handler.answer(307, Location=f"{other}/x")
    server.answers["/file"] = lambda handler: handler.answer(302, Location=f"file://{secret}")
    server.answers["/loop"] = lambda handler: handler.answer(302, Location="/loop")
    steps = "".join(
        f"  {name}: {{http: {{url: '{server.url}/{name}', headers: {{Cookie: k}}, body: b}}, on_failure: true}}\n"
        for name in ("near", "far", "file", "loop")
    )
    code, document = _run(place, steps, "--max-parallel", "1")
    assert code == 0
    went = [(method, path, headers.get("cookie"), body) for method, path, headers, body in server.asked]
    assert went[:5] == [
        ("POST", "/near", "k", b"b"),
        ("GET", "/x", "k", b""),
        ("POST", "/far", "k", b"b"),
        ("POST", "/x", None, b"b"),
        ("POST", "/file", "k", b"b"),
    ]
    assert server.paths()[5:] == ["POST /loop", *["GET /loop"] * 10]
    message = f"exit code 7: no answer from {server.url}/file: a redirect from http to file is not followed"
    assert document["first_failure"]["message"] == message


def test_no_answer_and_half_an_answer_fail(place: Place, server: Server) -> None:
    """A refused connection and one that ends early are exit code 7, each with its reason."""

    def half(handler: _Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        handler.wfile.write(b"half")

    server.answers["/half"] = half
    steps = f"  half: {{http: '{server.url}/half', on_failure: 'echo ${{error.message}} > half'}}\n"
    steps += "  none: {http: 'http://127.0.0.1:1/', on_failure: 'echo ${error.message} > none'}\n"
    assert _run(place, steps)[0] == 0
    assert place.text("half") == f"exit code 7: the answer of {server.url}/half broke off 6 bytes before its end\n"
    assert place.text("none") == "exit code 7: no answer from http://127.0.0.1:1/: Connection refused\n"


def test_a_long_answer_is_whole(place: Place, server: Server) -> None:
    """An answer of more than 16 MB is kept whole."""
    server.answers["/big"] = lambda handler: handler.answer(200, b"x" * (16 * 1024 * 1024 + 1))
    code, document = _run(place, f"  a: {{http: '{server.url}/big', capture: {{err: stderr}}}}\n")
    assert (code, document["outputs"]["err"]) == (0, "HTTP 200 OK")
    assert (place.state / "output" / "job_stdio" / "job_wf1_j1_r1_a1.o").stat().st_size == 16 * 1024 * 1024 + 1


def test_an_answer_saved_to_a_file(place: Place, server: Server) -> None:
    """The file has the whole body and the output is its path; no file comes of a status that fails the step."""
    server.answers["/big"] = lambda handler: handler.answer(200, b"x" * (5 * 1024 * 1024))
    server.answers["/no"] = lambda handler: handler.answer(404, b"no")
    steps = f"  a: {{http: {{url: '{server.url}/big', save_to: sub/got}}, capture: path}}\n"
    steps += f"  b: {{http: {{url: '{server.url}/no', save_to: none}}, on_failure: true}}\n"
    code, document = _run(place, steps)
    assert (code, document["outputs"]["path"]) == (0, str(place.folder / "sub" / "got"))
    assert (place.folder / "sub" / "got").read_bytes() == b"x" * (5 * 1024 * 1024)
    assert not (place.folder / "none").exists()


@pytest.mark.parametrize(
    ("path", "value", "saved"),
    [
        ("out/${inputs.v}", "f", "work/out/f"),
        ("${inputs.v}", "s/../f", "work/f"),
        ("../up/${inputs.v}", "f", "up/f"),
        ("${raw:inputs.v}", "../up/f", "up/f"),
        ("${raw:inputs.v}", "{root}/abs/f", "abs/f"),
        ("out/${inputs.v}", "../f", None),
        ("${inputs.v}", "../f", None),
        ("${inputs.v}", "/nowhere/f", None),
        ("${inputs.v}/f", "link", None),
    ],
)
def test_a_value_keeps_a_saved_body_in_the_folder(
    place: Place, server: Server, path: str, value: str, saved: str | None
) -> None:
    """Unless the file itself, or a raw value, leads elsewhere; the step fails before it asks the server."""
    root, work = place.folder, place.folder / "work"
    work.mkdir()
    (root / "up").mkdir()
    (work / "link").symlink_to(root / "up")
    steps = f"  a: {{http: {{url: '{server.url}/x', save_to: '{path}'}}, working_dir: work, capture: path}}\n"
    value = value.replace("{root}", str(root))
    code, document = _run(place, steps, "--input", f"v={value}", head="inputs: {v: x}")
    found = {name for name in ("work/out/f", "work/f", "up/f", "abs/f", "f") if (root / name).exists()}
    if saved is None:
        folder = work / "out" if path.startswith("out") else work
        assert (code, found, server.asked) == (1, set(), [])
        assert document["first_failure"]["message"] == (
            f"the value of `${{inputs.v}}`, {value!r}, leads out of the folder {folder}; "
            "`${raw:inputs.v}` may lead anywhere"
        )
    else:
        assert (code, found, (root / saved).read_bytes()) == (0, {saved}, b"hello")
        assert os.path.realpath(document["outputs"]["path"]) == str(root / saved)


@pytest.mark.parametrize(("base", "is_taken"), [("URL", True), ("URL/", True), ("URL?a=", False), ("ftp://x", False)])
def test_a_value_may_be_the_beginning_of_a_url(place: Place, server: Server, base: str, is_taken: bool) -> None:
    """One value up to a slash is the server and its folder; it may hold no query, and must be an http url."""
    server.answers["/x/a%2Fb"] = lambda handler: handler.answer(200, b"yes")
    steps = "  a: {http: '${inputs.base}/x/${inputs.part}', capture: said, on_failure: true}\n"
    inputs = f"inputs: {{base: '{base.replace('URL', server.url)}', part: a/b}}\n"
    _, document = _run(place, steps, head=inputs)
    assert document["outputs"].get("said") == ("yes" if is_taken else None)


def test_the_timeout_of_the_step_ends_a_request(place: Place, server: Server) -> None:
    """A server that never answers is a timeout like any other."""
    server.answers["/slow"] = lambda handler: handler.answer(200) if handler.server.release.wait(60) else None
    code, document = _run(place, f"  a: {{http: '{server.url}/slow', timeout: 1s}}\n")
    assert (code, document["first_failure"]["kind"]) == (1, "timeout")


@pytest.mark.parametrize(
    ("http", "value", "message"),
    [
        ("{url: 'URL', headers: {X: '${inputs.v}'}}", "a\r\nEvil: 1",
         "the header `X` would hold a line break, which could begin another header"),
        ("URL/${inputs.v}/x", "..",
         "a value in `URL/${inputs.v}/x` is `.` or `..`, which would lead out of its folder"),
        ("${inputs.v}", "file:///etc/passwd", "the value of `${inputs.v}` is no http url without a password"),
        ("${inputs.v}", "http://me:pw@127.0.0.1/", "the value of `${inputs.v}` is no http url without a password"),
        ("{url: 'URL', body: '${inputs.v}'}", "x" * 130_000, "at most 122880: hand large values over in a file"),
    ],
)  # fmt: skip
def test_values_that_cannot_stand_there_fail_before_anything_is_sent(
    place: Place, server: Server, http: str, value: str, message: str
) -> None:
    """A hostile value is a failure of the kind `contract`, and the server hears nothing."""
    http = http.replace("URL", server.url)
    text = http if http.startswith("{url") else f"'{http}'"
    (place.folder / "v").write_bytes(value.encode())
    code, document = _run(place, f"  a: {{http: {text}}}\n", "--input-file", "v=v", head="inputs: {v: x}")
    failure = document["first_failure"]
    assert (code, failure["kind"], server.asked) == (1, "contract", [])
    assert failure["message"].endswith(message.replace("URL", server.url))


def test_a_whole_url_may_be_one_value(place: Place, server: Server) -> None:
    """One reference is taken as it is; a message then names the server only."""
    server.answers["/a%20b?c=d%0D%0AX:%201"] = lambda handler: handler.answer(500)
    code, document = _run(
        place, "  a: {http: '${inputs.v}'}\n", "--input", f"v={server.url}/a b?c=d\r\nX: 1", head="inputs: {v: x}"
    )
    assert (code, server.paths()) == (1, ["GET /a%20b?c=d%0D%0AX:%201"])
    assert document["first_failure"]["message"] == f"exit code 22: HTTP 500 Internal Server Error from {server.url}"


def test_a_token_in_a_request_is_nowhere_on_disk(place: Place, server: Server) -> None:
    """Header, path and query hold it, the server hears it, and no file of the state folder does."""
    token, key = "tok-3f9a-only-in-memory", "key-77-from-a-file"
    (place.folder / "key").write_text(key)
    server.answers[f"/h/{token}?t={token}"] = lambda handler: handler.answer(500, handler.headers["X"].encode())
    code, document = _run(
        place,
        f"  a: {{http: {{url: '{server.url}/h/${{env.T}}?t=${{env.T}}', headers: {{X: '${{env.T}} ${{env.K}}'}}}}}}\n",
        head="secrets: {T: {env: TOKEN}, K: {file: key}}",
        TOKEN=token,
    )
    assert (code, server.asked[0][2]["x"]) == (1, f"{token} {key}")
    files = [path for path in Path(place.state).rglob("*") if path.is_file()]
    assert files
    for needle in (token, key):
        assert needle not in repr(document)
        assert [path for path in files if needle.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("http", "message"),
    [
        ("file:///etc/passwd", "`file:///etc/passwd` is no http url"),
        ("ftp://h/x", "`ftp://h/x` is no http url"),
        ("http://me:pw@h/", "`http://me:pw@h/` is no http url"),
        ("'http://${inputs.h}/'", "`http://${inputs.h}/`: a value can't decide on the scheme or the server of a url"),
        ("'http://h${inputs.h}'", "`http://h${inputs.h}`: a value can't decide on the scheme or the server of a url"),
        ("'http://h:8${inputs.h}/'",
         "`http://h:8${inputs.h}/`: a value can't decide on the scheme or the server of a url"),
        ("'${inputs.h}x/'", "`${inputs.h}x/`: a value can't decide on the scheme or the server of a url"),
        ("{method: GET}", "`http` needs `url`"),
        ("{url: 'http://h', method: 'G T'}", "expected a method such as GET, POST, PUT, PATCH, DELETE, not `G T`"),
        ("{url: 'http://h', headers: {'a b': c}}", "`a b` can't be the name of a header"),
        ('{url: "http://h", headers: {a: "b\\nc"}}', "the header `a` has more than one line"),
        ("{url: 'http://h', body: a, json: b}", "a request has one body: `body` or `json`"),
        ("{url: 'http://h', json: [.nan]}", "expected a finite number, not `.nan`"),
        ("{url: 'http://h', json: [99999999999999999999]}",
         "expected a number of at most 63 bits, not `99999999999999999999`"),
        ("{url: 'http://h', json: }", "expected data, not nothing"),
        ("{url: 'http://h', json: '${inputs.nope}'}", "`${inputs.nope}`: there is no input `nope`"),
        ("{url: 'http://h', expect_status: 700}", "`700` is out of bounds: expected a whole number from 100 to 599"),
        ("[a]", "http must be a mapping, not a list"),
    ],
)  # fmt: skip
def test_requests_that_cannot_be_right_are_refused_at_load(http: str, message: str) -> None:
    """One finding, with what is wrong."""
    found = compile_text(f"resile: 1\ninputs: {{h: x}}\nsteps:\n  a: {{http: {http}}}\n").diagnostics
    assert [finding.message for finding in found] == [message]
