"""Workers: steps of a server's runs in other processes, which die, freeze, drain, and lose their server."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.executors.local.driver import lives, wait_for
from tests.server.service import Api, Server

from .late_proxy import late_proxy
from .process import WorkerProcess

Serve = Callable[..., Server]
Work = Callable[..., WorkerProcess]

CHAIN = """
resile: 1
steps:
  a: {shell: 'echo from a; echo oops >&2'}
  b: {shell: 'echo from b', needs: [a], runs_on: [gpu]}
  c: {shell: 'test -z "$RESILE_TOKEN"', needs: [b]}
"""
GATED = """
resile: 1
steps:
  a: {shell: 'echo $$ >> "$PLACE/pids"; while ! [ -e "$PLACE/gate" ]; do sleep 0.02; done; echo done'}
"""


def history(api: Api, run: int, job: int = 1) -> list[dict[str, Any]]:
    """The attempts of a job."""
    found: list[dict[str, Any]] = api.get(f"/runs/{run}/jobs/{job}").json["history"]
    return found


def pids(folder: Path, count: int) -> list[int]:
    """The processes of the gated steps, once there are so many."""
    path = folder / "pids"
    wait_for(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(word) for word in path.read_text().split()]


def test_a_run_goes_through_two_workers(serve: Serve, work: Work) -> None:
    """Steps go where their labels are, their output comes back, and the history names the workers."""
    server = serve()
    work(server, "plain", RESILE_TOKEN="")
    work(server, "graphics", "--label", "gpu", "other")
    run = server.api.finish(CHAIN)
    assert server.api.get(f"/runs/{run}").json["status"] == "completed"
    assert server.api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body == b"from a\n"
    assert server.api.get(f"/runs/{run}/jobs/1/attempts/1/stderr").body == b"oops\n"
    (only,) = history(server.api, run, 2)
    assert only["worker"] == "graphics"
    wait_for(lambda: b"resile_workers 2.0" in server.api.call("GET", "/metrics").body)
    assert server.resile("logs", str(run), "b").endswith("from b\n")


def test_only_steps_of_the_server_itself_are_sampled(serve: Serve, work: Work) -> None:
    """The pid that a worker reports is one of its own machine, and may be that of any process here."""
    server = serve("--slots", "1")
    text = "resile: 1\nresource_monitor: {interval: 0.1s}\nsteps:\n  a: {shell: 'sleep 1'}\n"
    here = server.api.finish(text)
    work(server, "graphics", "--label", "gpu")
    there = server.api.finish(text.replace("'sleep 1'", "'sleep 1', runs_on: [gpu]"))
    assert [one["worker"] for one in history(server.api, there)] == ["graphics"]
    found = [msgspec.json.decode(server.resile("resources", str(run), "--json")) for run in (here, there)]
    assert [len(one["steps"][0]["series"]) for one in found] == [1, 0]


def test_a_step_waits_for_its_label_and_says_so(serve: Serve, work: Work) -> None:
    """A step whose label no worker has waits, `status` and its document name it, and a worker with it runs it."""
    server = serve()
    work(server, "plain")
    run = server.api.start("resile: 1\nsteps:\n  a: {shell: 'true', runs_on: [gpu]}\n")
    wait_for(lambda: server.api.get(f"/runs/{run}/jobs/1").json["status"] == "pending")
    assert server.api.get(f"/runs/{run}/jobs/1").json["waits_for"] == "a worker with gpu"
    assert "waits for a worker with gpu" in server.resile("status", str(run))
    work(server, "graphics", "--label", "gpu")
    server.api.wait_for(run)
    assert server.api.get(f"/runs/{run}/jobs/1").json["waits_for"] is None


def test_output_is_there_while_the_step_runs(serve: Serve, work: Work, tmp_path: Path) -> None:
    """What a step has written is read before it ends."""
    server = serve(PLACE=str(tmp_path))
    work(server, "one")
    text = (
        "resile: 1\nsteps:\n  a: {shell: 'echo early; while ! [ -e \"$PLACE/gate\" ]; do sleep 0.02; done; echo late'}"
    )
    run = server.api.start(text)
    path = f"/runs/{run}/jobs/1/attempts/1/stdout"
    wait_for(lambda: server.api.get(path).body == b"early\n")
    (tmp_path / "gate").touch()
    server.api.wait_for(run)
    assert server.api.get(path).body == b"early\nlate\n"


@pytest.mark.slow
def test_the_attempt_of_a_killed_worker_is_lost_once(serve: Serve, work: Work, tmp_path: Path) -> None:
    """After kill -9 of a worker its attempt is lost, once, and the next one runs on another worker."""
    server = serve(PLACE=str(tmp_path))
    first = work(server, "first")
    run = server.api.start(GATED)
    pids(tmp_path, 1)
    first.send(signal.SIGKILL)
    work(server, "second")
    pids(tmp_path, 2)
    (tmp_path / "gate").touch()
    server.api.wait_for(run)
    lost, ended = history(server.api, run)
    assert (lost["kind"], lost["worker"], ended["exit_code"], ended["worker"]) == ("lost", "first", 0, "second")
    assert server.api.get(f"/runs/{run}").json["status"] == "completed"


@pytest.mark.slow
def test_a_frozen_worker_ends_what_is_not_its_own(serve: Serve, work: Work, tmp_path: Path) -> None:
    """A worker that was stopped past its lease ends its attempt when it goes on; its late report changes nothing."""
    server = serve(PLACE=str(tmp_path))
    first = work(server, "first")
    run = server.api.start(GATED)
    (pid,) = pids(tmp_path, 1)
    first.send(signal.SIGSTOP)
    work(server, "second")
    pids(tmp_path, 2)
    first.send(signal.SIGCONT)
    wait_for(lambda: not lives(pid))
    (tmp_path / "gate").touch()
    server.api.wait_for(run)
    assert [one["kind"] for one in history(server.api, run)] == ["lost", None]
    wait_for(lambda: first.document().get("status") == "active" and first.document()["running"] == 0)


def test_workers_outlast_their_server(serve: Serve, work: Work, tmp_path: Path) -> None:
    """After kill -9 of the server the worker keeps its step, and delivers its end to the next server."""
    server = serve(PLACE=str(tmp_path))
    worker = work(server, "one")
    run = server.api.start(GATED)
    pids(tmp_path, 1)
    server.process.kill()
    server.process.wait()
    (tmp_path / "gate").touch()
    again = serve("--port", str(server.port), PLACE=str(tmp_path))
    again.api.wait_for(run)
    (only,) = history(again.api, run)
    assert (only["exit_code"], only["worker"]) == (0, "one")
    assert again.api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body == b"done\n"
    worker.send(signal.SIGTERM)
    assert worker.end() == 0, worker.log()


def test_a_late_refusal_does_not_undo_a_registration(serve: Serve, work: Work, tmp_path: Path) -> None:
    """A report that the next server refused before the worker registered there is sent again at once, not lost."""
    server = serve(PLACE=str(tmp_path))
    with late_proxy(server.port) as proxy:
        front = copy(server)
        front.api = Api(proxy.port)
        work(front, "one")
        run = server.api.start(GATED)
        pids(tmp_path, 1)
        server.process.kill()
        server.process.wait()
        proxy.is_late.set()
        (tmp_path / "gate").touch()
        again = serve("--port", str(server.port), PLACE=str(tmp_path))
        again.api.wait_for(run)
        assert proxy.claimed.is_set()
        assert [one["exit_code"] for one in history(again.api, run)] == [0]


def test_a_restarted_worker_finds_its_step(serve: Serve, work: Work, tmp_path: Path) -> None:
    """A worker that is killed and started again in its folder has its step back, which runs once."""
    server = serve(PLACE=str(tmp_path))
    first = work(server, "one")
    run = server.api.start(GATED)
    pids(tmp_path, 1)
    first.send(signal.SIGKILL)
    first.end()
    work(server, "one")
    (tmp_path / "gate").touch()
    server.api.wait_for(run)
    (only,) = history(server.api, run)
    assert only["exit_code"] == 0
    assert len(pids(tmp_path, 1)) == 1


def test_a_drained_worker_finishes_and_exits(serve: Serve, work: Work, tmp_path: Path) -> None:
    """Draining over the API lets a worker finish its step, claim nothing more, and exit 0."""
    server = serve(PLACE=str(tmp_path))
    worker = work(server, "one")
    run = server.api.start(GATED)
    pids(tmp_path, 1)
    assert server.api.post(f"/workers/{worker.document()['id']}/drain").status == 202
    later = server.api.start("resile: 1\nsteps:\n  a: {shell: 'true'}\n")
    (tmp_path / "gate").touch()
    server.api.wait_for(run)
    assert worker.end() == 0, worker.log()
    assert server.api.get(f"/runs/{later}/jobs/1").json["attempts"] == 0
    wait_for(lambda: worker.document() == {})


def test_a_second_signal_ends_the_steps_at_no_cost(serve: Serve, work: Work, tmp_path: Path) -> None:
    """After the second signal the step is ended and runs again elsewhere, without a failure."""
    server = serve(PLACE=str(tmp_path))
    first = work(server, "first")
    run = server.api.start(GATED)
    (pid,) = pids(tmp_path, 1)
    first.send(signal.SIGTERM)
    wait_for(lambda: "draining" in first.log())
    first.send(signal.SIGINT)
    assert first.end() == 0, first.log()
    assert not lives(pid)
    work(server, "second")
    pids(tmp_path, 2)
    (tmp_path / "gate").touch()
    server.api.wait_for(run)
    document = server.api.get(f"/runs/{run}").json
    assert (document["status"], document["first_failure"]) == ("completed", None)


def test_a_report_with_another_token_changes_nothing(serve: Serve) -> None:
    """A claim has a token; a report with another one is answered with `gone`, and one with it counts, twice no more."""
    api = serve().api
    worker = api.post("/workers", {"name": "by-hand", "slots": 1}).json["id"]
    run = api.start("resile: 1\nsteps:\n  a: {shell: 'true'}\n")
    (given,) = api.post(f"/workers/{worker}/claim", {"slots": 1, "wait_seconds": 20}).json["attempts"]
    end = {"kind": "ended", "at": 1.0, "started_at": 0.5, "out_length": 2}
    wrong = api.post(f"/workers/{worker}/reports", {"ends": [{"token": "other", **end}]}).json
    assert wrong["gone"] == ["other"]
    early = api.post(f"/workers/{worker}/reports", {"ends": [{"token": given["token"], **end}]}).json
    assert early["need"] == {given["token"]: [0, 0]}
    data = msgspec.json.decode(msgspec.json.encode(b"hi"))
    told = {
        "starts": [{"token": given["token"], "at": 0.5, "pid": os.getpid()}],
        "output": [{"token": given["token"], "stream": "out", "offset": 0, "data": data}],
        "ends": [{"token": given["token"], **end}],
    }
    for _ in range(2):
        assert api.post(f"/workers/{worker}/reports", told).status == 200
    api.wait_for(run)
    (only,) = history(api, run)
    assert (only["exit_code"], only["worker"]) == (0, "by-hand")
    assert api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body == b"hi"
    wait_for(lambda: api.post(f"/workers/{worker}/reports", told).json["gone"] == [given["token"]])


def test_an_idle_worker_exits(serve: Serve, work: Work) -> None:
    """A worker with a limit for idling exits 0 after it."""
    worker = work(serve(), "one", "--max-idle", "500ms")
    assert worker.end() == 0, worker.log()


def test_a_worker_needs_the_role(serve: Serve, work: Work, tmp_path: Path) -> None:
    """With a token of the role worker it runs steps, which do not get the token; with another role it exits 2."""
    server = serve()
    secrets = {role: server.token(role, role) for role in ("worker", "viewer", "admin")}
    server.api = Api(server.port, secrets["admin"])
    (tmp_path / "secret").write_text(secrets["worker"] + "\n")
    work(server, "good", "--token-file", "secret")
    run = server.api.finish("resile: 1\nsteps:\n  a: {shell: 'env'}\n")
    assert secrets["worker"].encode() not in server.api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body
    bad = WorkerProcess(tmp_path, server, "bad", RESILE_TOKEN=secrets["viewer"])
    try:
        assert bad.end() == 2, bad.log()
        assert "role" in bad.log()
    finally:
        bad.close()
