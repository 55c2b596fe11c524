"""The OpenAPI document: it describes every route, and no request gets an answer that is not in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from resile.server.table import ROUTES

from . import flows
from .service import Api, Server


def test_it_describes_every_route(api: Api) -> None:
    """Every method of every path, with a summary, answers and problems."""
    document = api.get("/openapi.json").json
    assert document["openapi"] == "3.1.0"
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, path) for route in ROUTES for path in route.paths}
    names = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(names) == len(set(names))
    assert b"$defs" not in msgspec.json.encode(document)


@pytest.mark.slow
def test_no_request_gets_an_undocumented_answer(serve: Callable[..., Server], tmp_path: Path) -> None:
    """Requests made from the document by schemathesis, as an admin: no 5xx, no answer that the document lacks."""
    # A server of its own, because the requests make tokens and delete runs.
    (tmp_path / "tokens").write_text("root admin s3cret\n")
    api = Api(serve("--token-file", "tokens").port, "s3cret")
    api.finish(flows.LETTERS)
    argv = ["-m", "schemathesis.cli", "run", f"{api.url}/api/v1/openapi.json", "--max-examples", "15"]
    argv += ["--header", "Authorization: Bearer s3cret"]
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    argv += ["--checks", checks, "--exclude-path-regex", "stream$", "--request-timeout", "20", "--no-color"]
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, timeout=540, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
