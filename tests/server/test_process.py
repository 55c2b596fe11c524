"""The process of a server: its first line, its lock, its signals, and what its steps see."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.cluster import Cluster, private_cluster
from tests.executors.local.driver import lives, wait_for

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
    """It may come a moment after the first; the step has ended with the server, and runs again with the next one."""
    server = serve()
    text = "resile: 1\nsteps: {hold: {shell: 'echo $$ >> began; test -e again || exec sleep 600'}}"
    run = server.api.start(text, directory=str(tmp_path))
    server.api.wait_for(run, "attempt_started")
    began = tmp_path / "began"
    step = int(wait_for(lambda: began.exists() and began.read_text()))
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "stopping: " in server.log())
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(DEADLINE_SECONDS) == 0
    assert not lives(step)
    (tmp_path / "again").touch()
    following = serve()
    following.api.wait_for(run)
    assert following.api.get(f"/runs/{run}").json["status"] == "completed"
    assert len(began.read_text().split()) == 2


def test_it_drives_on_after_its_database_failed(serve: Callable[..., Server], tmp_path: Path) -> None:
    """It is not ready while it drives nothing; then the step that ran is adopted, and new runs begin."""
    server = serve()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = server.api.start(flows.WAITS, inputs={"gate": str(gate)})
    server.api.wait_for(run, "attempt_started")
    database = sqlite3.connect(server.db, isolation_level=None)
    database.execute("ALTER TABLE submissions RENAME TO away")
    wait_for(lambda: "the host stops" in server.log())
    wait_for(lambda: server.api.call("GET", "/readyz").status == 503)
    assert server.api.call("GET", "/healthz").status == 200
    database.execute("ALTER TABLE away RENAME TO submissions")
    database.close()
    server.api.wait_for(run, "attempt_adopted")
    gate.write_text("go\n")
    server.api.wait_for(run)
    assert server.api.get(f"/runs/{run}").json["status"] == "completed"
    assert server.api.get(f"/runs/{server.api.finish(flows.HELLO)}").json["status"] == "completed"
    assert server.api.call("GET", "/readyz").status == 200
    assert server.stop() == 0


def test_a_step_goes_on_while_one_host_after_another_fails(serve: Callable[..., Server], tmp_path: Path) -> None:
    """Each host that fails hands back the runs that it took, so the next one adopts the step and starts nothing."""
    server = serve()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = server.api.start(flows.WAITS, inputs={"gate": str(gate)})
    server.api.wait_for(run, "attempt_started")
    database = sqlite3.connect(server.db, isolation_level=None)
    database.execute("ALTER TABLE submissions RENAME TO away")
    wait_for(lambda: "the host stops" in server.log())
    # From now on a host can take the run, but not read it.
    database.execute("BEGIN IMMEDIATE")
    database.execute("ALTER TABLE away RENAME TO submissions")
    database.execute("ALTER TABLE log RENAME TO away")
    database.execute("COMMIT")
    wait_for(lambda: server.log().count("the host stops") > 1)
    database.execute("ALTER TABLE away RENAME TO log")
    database.close()
    server.api.wait_for(run, "attempt_adopted")
    gate.write_text("go\n")
    server.api.wait_for(run)
    events = server.api.get(f"/runs/{run}/events").json["items"]
    attempts = [event["type"] for event in events if event.get("step") == "hold" and "attempt" in event["type"]]
    assert attempts == ["attempt_started", "attempt_adopted", "attempt_succeeded"]
    assert server.api.get(f"/runs/{run}").json["status"] == "completed"
    assert server.stop() == 0


def test_it_tries_until_its_folder_can_be_used(serve: Callable[..., Server], tmp_path: Path) -> None:
    """A new host that can't start is no end: the server says why, and drives runs once nothing is in its way."""
    server = serve()
    server.api.finish(flows.HELLO)
    database = sqlite3.connect(server.db, isolation_level=None)
    database.execute("ALTER TABLE submissions RENAME TO away")
    wait_for(lambda: "the host stops" in server.log())
    servers = tmp_path / "output" / "servers"
    servers.rename(tmp_path / "aside")
    servers.write_text("")
    database.execute("ALTER TABLE away RENAME TO submissions")
    database.close()
    wait_for(lambda: "no new host yet" in server.log())
    servers.unlink()
    (tmp_path / "aside").rename(servers)
    wait_for(lambda: "a new host drives the runs" in server.log())
    assert server.api.get(f"/runs/{server.api.finish(flows.HELLO)}").json["status"] == "completed"
    assert server.stop() == 0


def test_it_says_soon_that_its_database_takes_no_write(serve: Callable[..., Server]) -> None:
    """A probe does not wait as long as the store does for a database that is locked or away."""
    server = serve()
    database = sqlite3.connect(server.db, isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    answer = server.api.call("GET", "/readyz")
    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert answer.json["detail"] == "the database has not taken a write within 3 seconds"
    database.close()
    wait_for(lambda: server.api.call("GET", "/readyz").status == 200)


def test_it_stops_while_its_database_fails(serve: Callable[..., Server]) -> None:
    """A signal ends it, although it can't hand back its runs."""
    server = serve()
    server.api.finish(flows.HELLO)
    database = sqlite3.connect(server.db, isolation_level=None)
    database.execute("ALTER TABLE submissions RENAME TO away")
    wait_for(lambda: "the host stops" in server.log())
    assert server.stop() == 0
    assert "could not be handed back" in server.log()
    database.close()


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


EVERYTHING = """
resile: 1
name: everything
steps:
  flaky: {shell: 'test -e tried || { touch tried; exit 75; }', retry: {max: 2, backoff: {type: fixed, initial: 1ms}}}
  repaired: {shell: test -e mended, on_failure: {shell: touch mended, max_attempts: 2}}
  tolerated: {shell: exit 4, on_failure: true}
  many: {map: {input: [1, 2], steps: [{shell: 'test ${item} != 2'}], error_policy: {continue_on_failure: true}}}
  parks: {shell: exit 9, park: true, needs: [flaky, repaired, tolerated, many]}
"""


def test_every_metric_moves(serve: Callable[..., Server], tmp_path: Path) -> None:
    """In the text format of Prometheus, each with its type: what is in the database, and what this server did."""
    server = serve("--slots", "3")

    def look() -> dict[str, float]:
        text = server.api.call("GET", "/metrics").body.decode()
        assert "# TYPE resile_commit_seconds histogram" in text
        pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name.removeprefix("resile_"): float(value) for name, _, value in pairs}

    before = look()
    assert before["slots"] == 3
    assert {value for name, value in before.items() if name not in ("slots", "event_loop_lag_seconds")} == {0.0}
    waits = server.api.start("resile: 1\nsteps: [{shell: 'true', runs_on: [gpu]}]\n")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    gated = server.api.start(flows.WAITS, inputs={"gate": str(gate)})
    wait_for(lambda: (look()["queue_depth"], look()["slots_used"], look()["runs_driven"]) == (1, 1, 2))
    assert look()["runs_due"] == 0
    server.api.finish(flows.HELLO)
    run = server.api.start(EVERYTHING)
    server.api.wait_for(run, "step_parked")
    wait_for(lambda: look().get('runs{status="parked"}') == 1)
    found = look()
    assert (found['runs{status="completed"}'], found['runs{status="running"}'], found["parked"]) == (1, 2, 1)
    assert found["dead_letters"] == 1
    assert found['attempts_ended_total{outcome="failed"}'] == 5
    assert found["attempts_started_total"] > found['attempts_ended_total{outcome="succeeded"}'] > 0
    fired = {name: value for name, value in found.items() if name.startswith("rules_fired")}
    assert fired == {f'rules_fired_total{{then="{then}"}}': count for then, count in _FIRED.items()}
    assert found["recoveries_total"] == 1
    count = found['commit_seconds_bucket{le="+Inf"}']
    assert count == found["commit_seconds_count"] > 0
    assert 0 < found["commit_seconds_sum"] <= 10 * count
    assert found['commit_seconds_bucket{le="0.001"}'] <= found['commit_seconds_bucket{le="10.0"}'] <= count
    for name in ("workers", "lease_losses_total"):
        assert found[name] == 0, name
    server.api.post("/workers", {"name": "one"})
    wait_for(lambda: look()["workers"] == 1)
    for one in (waits, gated, run):
        server.api.post(f"/runs/{one}/cancel")
        server.api.wait_for(one)


_FIRED = {"retry": 2, "tolerate": 1, "park": 1}


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
