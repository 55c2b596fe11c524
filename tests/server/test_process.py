"""The process of a server: its first line, its lock, its signals, and what its steps see."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.cluster import Cluster, private_cluster

from . import flows
from .service import DEADLINE_SECONDS, Server


def test_it_says_where_it_listens(serve: Callable[..., Server]) -> None:
    """One line of JSON with url and pid."""
    server = serve()
    assert server.said == {"url": f"http://127.0.0.1:{server.port}", "pid": server.process.pid}
    assert server.api.call("GET", "/readyz").json == {"status": "ok"}
    assert server.stop() == 0
    assert "stopped" in server.log()


def test_one_server_of_a_machine_serves_a_file(serve: Callable[..., Server]) -> None:
    """The second ends with 2 and names the first; after that one has ended, another may."""
    server = serve()
    done = subprocess.run(
        [*server.argv("server"), "--port", "0"],
        cwd=server.folder,
        env=server.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 2
    assert f"process {server.process.pid}" in done.stderr
    server.process.kill()
    server.process.wait()
    assert serve().api.get("/runs").status == 200


def test_a_run_outlives_its_server(serve: Callable[..., Server], tmp_path: Path) -> None:
    """SIGTERM: exit 0 while a step runs; the next server adopts the step, which runs once."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server = serve()
    run = server.api.start(flows.WAITS, inputs={"gate": str(gate)})
    server.api.wait_for(run, "attempt_started")
    assert server.stop() == 0
    following = serve()
    gate.write_text("go\n")
    following.api.wait_for(run)
    document = following.api.get(f"/runs/{run}").json
    assert (document["status"], document["jobs"][0]["attempts"]) == ("completed", 1)
    assert following.api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body == b"begun\nwent\n"


def test_the_output_of_a_step_that_ended_without_a_server_is_whole(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    """It ends after one server has stopped and before the next one starts; the next reads its end and its output."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server = serve()
    run = server.api.start(flows.WAITS, inputs={"gate": str(gate)})
    process = os.pidfd_open(server.api.wait_for(run, "attempt_started")["data"]["data"]["pid"])
    assert server.stop() == 0
    gate.write_text("go\n")
    assert select.select([process], [], [], DEADLINE_SECONDS)[0]
    os.close(process)
    following = serve()
    following.api.wait_for(run)
    job = following.api.get(f"/runs/{run}").json["jobs"][0]
    assert (job["status"], job["attempts"], job["output_lost"]) == ("completed", 1, False)
    assert following.api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body == b"begun\nwent\n"


def test_a_second_signal_ends_the_steps(serve: Callable[..., Server], tmp_path: Path) -> None:
    """Within the time that a stop may take."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server = serve()
    run = server.api.start(flows.WAITS, inputs={"gate": str(gate)})
    server.api.wait_for(run, "attempt_started")
    server.process.send_signal(signal.SIGINT)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(DEADLINE_SECONDS) == 0


def test_open_streams_end_when_it_stops(serve: Callable[..., Server]) -> None:
    """A stream is no reason to stay."""
    server = serve()
    stream = server.api.events("/events/stream?after=0")
    server.api.finish(flows.HELLO)
    next(stream)
    assert server.stop() == 0
    stream.close()


def test_steps_see_the_server_and_not_the_token(serve: Callable[..., Server]) -> None:
    """The addresses in the environment are real; `RESILE_TOKEN` stays with its owner."""
    server = serve(RESILE_TOKEN="of-the-caller")
    text = "resile: 1\nsteps: {a: {shell: 'echo $RESILE_API_URL; echo $TORC_API_URL; echo [$RESILE_TOKEN]'}}"
    run = server.api.finish(text)
    seen = server.api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body.decode().splitlines()
    assert seen[0].startswith(server.said["url"])
    assert seen[2] == "[]"


def test_submit_hands_a_run_to_the_server(serve: Callable[..., Server]) -> None:
    """Alone it prints the number; with --wait it prints and exits as `run` does."""
    server = serve()
    (server.folder / "hello.yaml").write_text(flows.HELLO)
    (server.folder / "fails.yaml").write_text(flows.FAILS)
    assert server.resile("submit", "hello.yaml") == "run 1\n"
    server.api.wait_for(1)
    assert server.api.get("/runs/1").json["status"] == "completed"
    waited = msgspec.json.decode(server.resile("submit", "fails.yaml", "--wait", "--json", code=1))
    assert (waited["run"], waited["status"], waited["exit_code"]) == (2, "failed", 1)
    submitted = msgspec.json.decode(server.resile("submit", "hello.yaml", "--key", "k", "--json"))
    assert (submitted["run"], submitted["status"]) == (3, "running")
    assert msgspec.json.decode(server.resile("submit", "hello.yaml", "--key", "k", "--json"))["run"] == 3
    assert server.resile("submit", "nothing.yaml", code=2) == ""


def test_a_submitted_run_waits_for_a_server(serve: Callable[..., Server], tmp_path: Path) -> None:
    """Put into the database first, driven once a server comes; until then it is not interrupted."""
    server = serve("--slots", "0")
    assert server.stop() == 0
    (tmp_path / "hello.yaml").write_text(flows.HELLO)
    assert server.resile("submit", "hello.yaml", "--priority", "-3") == "run 1\n"
    assert msgspec.json.decode(server.resile("status", "1", "--json"))["status"] == "running"
    following = serve()
    following.api.wait_for(1)
    assert following.api.get("/runs/1").json["status"] == "completed"


def test_metrics_are_prometheus_text(serve: Callable[..., Server]) -> None:
    """Runs by status, parked failures, slots; each metric with its type."""
    server = serve("--slots", "3")
    server.api.finish(flows.HELLO)
    server.api.finish(flows.FAILS)
    text = server.api.call("GET", "/metrics").body.decode()
    assert 'resile_runs{status="completed"} 1.0' in text
    assert 'resile_runs{status="failed"} 1.0' in text
    assert "resile_slots 3.0" in text
    assert "# TYPE resile_commit_seconds histogram" in text
    for name in ("parked", "dead_letters", "queue_depth", "workers", "event_loop_lag_seconds", "lease_losses_total"):
        assert f"\nresile_{name} " in text, name


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A private PostgreSQL."""
    with private_cluster() as found:
        yield found


def test_a_server_on_postgresql(serve: Callable[..., Server], cluster: Cluster) -> None:
    """The same endpoints; a second server of the same database is fine."""
    first = serve("--output", "first", db=cluster.url("shared"))
    second = serve("--output", "second", db=cluster.url("shared"))
    run = first.api.finish(flows.HELLO, key="once")
    assert second.api.get(f"/runs/{run}").json["status"] == "completed"
    assert second.api.post("/runs", {"text": flows.HELLO, "key": "once"}).json["run"] == run
    parked = second.api.start(flows.PARKED)
    second.api.wait_for(parked, "step_parked")
    assert first.api.get("/failures").json["items"][0]["count"] == 1
    assert first.api.post(f"/runs/{parked}/judgements", {"job": 1, "verdict": "fail"}).status == 201
    second.api.wait_for(parked)
    assert 'resile_runs{status="failed"} 1.0' in first.api.call("GET", "/metrics").body.decode()
