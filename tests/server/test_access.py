"""Who may: hosts, origins, tokens and roles; asked before anything else."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from resile.server.declarations import Route
from resile.server.table import ROUTES

from .service import API, DEADLINE_SECONDS, Api, Server

ROLES = ("viewer", "operator", "worker", "admin")
ALLOWED = {
    "viewer": ("viewer", "operator", "admin"),
    "operator": ("operator", "admin"),
    "worker": ("worker", "admin"),
    "admin": ("admin",),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A server with a token for each role, and requests with each of them."""
    server = Server(tmp_path_factory.mktemp("guarded"))
    callers = {role: Api(server.port, server.token(f"a-{role}", role)) for role in ROLES}
    assert server.api.get("/runs").status in (200, 401)
    while server.api.get("/runs").status != 401:
        pass
    yield server, callers
    server.close()


def path_of(route: Route, number: int) -> str:
    """A path of a route, with numbers of objects that do not exist."""
    path = route.paths[number]
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", "999999")
    return path


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_asks_for_its_role(route: Route, guarded: tuple[Server, dict[str, Api]]) -> None:
    """Each role gets 403 or not, the same for objects that do not exist and bodies that are wrong; no token is 401."""
    server, callers = guarded
    body = b"{broken" if route.method in ("POST", "PUT") else None
    for number in range(len(route.paths)):
        path = path_of(route, number)
        for role, caller in callers.items():
            with caller.open(route.method, path, body) as response:
                may = route.role is None or role in ALLOWED[route.role]
                assert (response.status == 403) is not may, (role, response.status)
                assert response.status != 401
        with server.api.open(route.method, path, body) as response:
            assert (response.status == 401) is (route.role is not None)


def test_a_path_that_does_not_exist_needs_a_token_too(guarded: tuple[Server, dict[str, Api]]) -> None:
    """A caller without a token learns nothing about which paths exist."""
    server, callers = guarded
    assert server.api.get("/nothing").code == "token_missing"
    assert callers["viewer"].get("/nothing").code == "no_such_path"


def test_a_wrong_token_and_another_scheme_are_refused(guarded: tuple[Server, dict[str, Api]]) -> None:
    """401 says how to authenticate."""
    server, _ = guarded
    wrong = Api(server.port, "x" * 43).get("/runs")
    assert (wrong.status, wrong.code) == (401, "token_unknown")
    assert wrong.headers["www-authenticate"] == 'Bearer realm="resile"'
    assert server.api.get("/runs", Authorization="Basic eDp5").code == "token_missing"


def test_twenty_wrong_tokens_are_too_many(serve: Callable[..., Server], token_file: str) -> None:
    """The next wrong one is 429 with a time to wait; a right one still counts."""
    server = serve("--token-file", token_file)
    good = Api(server.port, "s3cret")
    codes = [Api(server.port, f"wrong-{number}").get("/runs").status for number in range(22)]
    assert codes == [401] * 20 + [429] * 2
    last = Api(server.port, "wrong").get("/runs")
    assert last.code == "too_many_wrong_tokens"
    assert 1 <= int(last.headers["retry-after"]) <= 60
    assert good.get("/runs").status == 200


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    """A file with one token."""
    path = tmp_path / "tokens"
    path.write_text("# of this test\nfiled admin s3cret\n")
    return str(path)


def test_a_token_that_is_revoked_beside_the_server_counts_no_more(serve: Callable[..., Server]) -> None:
    """Made and revoked by the command line while the server runs."""
    server = serve()
    assert server.api.get("/runs").status == 200
    first, second = server.token("one", "viewer"), server.token("two", "viewer", "--expires", "30d")
    caller = Api(server.port, first)
    while caller.get("/runs").status != 200 or server.api.get("/runs").status != 401:
        pass
    assert server.resile("token", "ls").split()[:3] == ["NAME", "ROLE", "EXPIRES"]
    server.resile("token", "revoke", "one")
    while caller.get("/runs").status != 401:
        pass
    assert Api(server.port, second).get("/runs").status == 200
    assert first not in Path(server.db).read_bytes().decode("latin-1")


def test_tokens_over_the_api(serve: Callable[..., Server], token_file: str) -> None:
    """Made once, listed without its secret, revoked; the secret is in the answer and nowhere else."""
    server = serve("--token-file", token_file)
    admin = Api(server.port, "s3cret")
    made = admin.post("/tokens", {"name": "ci", "role": "operator", "expires": "30d"}, Idempotency_Key="t1")
    assert made.status == 201
    assert made.json.keys() == {"name", "role", "expires_at", "secret"}
    assert len(made.json["secret"]) >= 43
    again = admin.post("/tokens", {"name": "ci", "role": "operator", "expires": "30d"}, Idempotency_Key="t1")
    assert (again.body, again.headers["idempotent-replayed"]) == (made.body, "true")
    assert admin.post("/tokens", {"name": "ci", "role": "viewer"}).code == "token_exists"
    assert admin.get("/tokens").json["items"] == [
        {"name": "ci", "role": "operator", "expires_at": made.json["expires_at"]}
    ]
    assert Api(server.port, made.json["secret"]).get("/runs").status == 200
    assert admin.call("DELETE", f"{API}/tokens/ci").status == 204
    assert admin.call("DELETE", f"{API}/tokens/ci").code == "no_such_token"
    assert Api(server.port, made.json["secret"]).get("/runs").status == 401
    for file in server.folder.glob("resile.db*"):
        assert made.json["secret"].encode() not in file.read_bytes()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8700", "127.0.0.1.evil.example", "10.0.0.1"])
def test_a_foreign_host_is_refused(api: Api, host: str) -> None:
    """A name that an attacker gave this address is none of ours, also for open paths."""
    assert api.get("/runs", Host=host).code == "foreign_host"
    assert api.call("GET", "/healthz", Host=host).status == 421


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "LOCALHOST"])
def test_own_names_are_accepted(api: Api, name: str) -> None:
    """The names of loopback are ours."""
    assert api.get("/runs", Host=f"{name}:{api.port}").status == 200


def test_requests_of_other_sites_are_refused(api: Api) -> None:
    """Another scheme, host or port is another site, and so is `null`; no answer has a CORS header."""
    own = f"127.0.0.1:{api.port}"
    for origin in (f"https://{own}", "http://127.0.0.1:1", "http://evil.example", "null", "", f"http://{own}.evil"):
        answer = api.post("/check", {"text": "resile: 1"}, Origin=origin)
        assert (origin, answer.code) == (origin, "foreign_origin")
    assert api.get("/runs", Sec_Fetch_Site="cross-site").code == "foreign_origin"
    same = api.get("/runs", Origin=f"http://{own}", Sec_Fetch_Site="same-origin")
    assert same.status == 200
    assert not [name for name in same.headers if name.startswith("access-control")]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_another_address_demands_a_token(tmp_path: Path, host: str) -> None:
    """A server that other machines could call does not start without a token."""
    done = _start(tmp_path, "--host", host, "--port", "0")
    assert done.returncode == 2
    assert "needs a token" in done.stderr
    assert done.stdout == ""


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    """A token file that is wrong, half of a certificate, a port that is taken: exit 2 and a message each."""
    (tmp_path / "tokens").write_text("only two\n")
    assert "is no token" in _start(tmp_path, "--token-file", "tokens").stderr
    assert "belong together" in _start(tmp_path, "--tls-cert", "x.pem").stderr
    pair = ("--tls-cert", "x.pem", "--tls-key", "y.pem")
    assert "x.pem: the certificate can't be used: No such file" in _start(tmp_path, *pair).stderr
    (tmp_path / "x.pem").touch()
    assert "y.pem: the key can't be used: No such file" in _start(tmp_path, *pair).stderr
    (tmp_path / "y.pem").touch()
    assert "x.pem: the certificate with the key y.pem can't be used: " in _start(tmp_path, *pair).stderr
    assert "in memory" in _start(tmp_path, "--db", "memory:").stderr


def _start(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A server that ends by itself with exit 2."""
    import sys

    db = () if "--db" in options else ("--db", "resile.db")
    argv = [sys.executable, "-m", "resile.cli.main", "server", *db, "--port", "0", *options]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert done.returncode == 2, done
    return done
