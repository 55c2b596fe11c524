"""Servers drive runs on blocks: each has an executor of its own, which the next server of the run takes over."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.parsl.cluster_runs import Place, wait_for
from tests.parsl.slurm_cluster import SlurmCluster
from tests.parsl.test_local_blocks import is_alive, pid_in
from tests.server.service import Api

pytestmark = pytest.mark.slow

WAITS = "'echo x >> starts; echo $$ > pid; until test -e go; do sleep 0.05; done'"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place with a database that servers serve; in the end no process of a block is left."""
    made = Place(tmp_path)
    yield made
    wait_for("no process of a block is left", lambda: not made.processes(), 60)


@contextmanager
def server(place: Place, *words: str) -> Iterator[tuple[subprocess.Popen[str], Api]]:
    """A server of the place's database; in the end it stops within its ten seconds, unless it was killed."""
    log = (place.folder / "server.log").open("a")
    with log:
        process = subprocess.Popen(
            [*place.popen_words(), "server", "--port", "0", *words],
            cwd=place.folder, env=place.env, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said.startswith("listening on "), (place.folder / "server.log").read_text()
        yield process, Api(int(said.rpartition(":")[2]))
    finally:
        process.terminate()
        code = process.wait(30)
        process.stdout.close()
        assert code in (0, -signal.SIGKILL), (place.folder / "server.log").read_text()


def status(place: Place, run: int = 1) -> str:
    """The status of a run."""
    return str(json.loads(place.call("status", str(run), "--json").stdout)["status"])


def _is_completed(place: Place, run: int) -> bool:
    return status(place, run) == "completed"


def native(place: Place, steps: str, more: str = "") -> str:
    """A native workflow whose steps run on blocks of this machine."""
    return f"resile: 1\nexecutor: {{kind: parsl, provider: local, directory: {place.shared}{more}}}\nsteps:\n{steps}"


def test_a_server_runs_a_file_on_its_blocks(place: Place) -> None:
    """Steps of a submitted file run on its blocks, which end with it; another run goes on meanwhile on the slots."""
    flow = place.write(
        native(place, "  a: {shell: echo one}\n  b: {shell: 'echo two ${steps.a.output}', needs: [a]}\n")
    )
    with server(place, "--slots", "1"):
        done = place.call("submit", str(flow), "--wait")
        assert done.returncode == 0, done.stderr
        wait_for("no process of a block is left", lambda: not place.processes(), 60)
        plain = place.write("resile: 1\nsteps:\n  c: {shell: echo plain}\n")
        assert place.call("submit", str(plain), "--wait").returncode == 0
    assert "two one" in place.call("logs", "1", "b").stdout
    assert list(place.shared.iterdir())


def test_a_text_over_http_has_blocks(place: Place) -> None:
    """A text may have an executor; a server without slots refuses one on its own machine, and so does `--executor`."""
    text = native(place, "  a: {shell: echo one}\n")
    with server(place) as (_, api):
        run = api.start(text)
        assert api.wait_for(run)["event"] == "playbook_completed"
        answer = api.post("/runs", {"text": text.replace("{kind", "/etc/passwd #{kind")})
        assert answer.status == 422
        assert b"root:" not in answer.body
        place.describe(provider="local")
        url = f"http://127.0.0.1:{api.port}"
        refused = place.call("run", str(place.write(text)), "--executor", str(place.toml), "--server", url)
        assert refused.returncode == 2
        assert "--executor is for runs on this machine" in refused.stderr
    with server(place, "--slots", "0") as (_, api):
        answer = api.post("/runs", {"text": text})
        assert (answer.status, answer.code) == (422, "no_slots_here")
        again = api.post(f"/runs/{run}/rerun", {"as_new": True})
        assert (again.status, again.code) == (422, "no_slots_here")
        place.call("submit", str(place.write(text)))
        wait_for(
            "the server refuses the run", lambda: "can't be driven" in (place.folder / "server.log").read_text(), 60
        )


def test_labels_and_blocks_exclude_each_other(place: Place) -> None:
    """A step that runs on a worker can't run on a block: the file is refused where the step is."""
    flow = place.write(native(place, "  a: {shell: echo one, runs_on: gpu}\n"))
    done = place.call("submit", str(flow))
    assert done.returncode == 2
    assert f"{flow}:4:3" in done.stderr
    assert "remove `runs_on`" in done.stderr


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_next_server_adopts_what_runs(place: Place, end: str) -> None:
    """After kill -9 of the server, or its stop, the step goes on; the next server takes it over, and it ran once."""
    flow = place.write(native(place, f"  a: {{shell: {WAITS}}}\n"))
    with server(place) as (process, _):
        assert place.call("submit", str(flow)).returncode == 0
        pid = pid_in(place.folder / "pid")
        if end == "kill":
            process.kill()
            process.wait()
    assert is_alive(pid)
    with server(place):
        wait_for("it is adopted", lambda: "attempt_adopted" in [one["type"] for one in place.events()])
        (place.folder / "go").touch()
        wait_for("the run has ended", lambda: status(place) == "completed")
    assert (place.folder / "starts").read_text() == "x\n"
    assert [one for one in place.events() if one["type"] == "attempt_lost"] == []


def test_a_cancel_reaches_the_node(place: Place) -> None:
    """`cancel` of a run that a server drives ends the step on its node."""
    flow = place.write(native(place, "  a: {shell: 'echo $$ > pid; exec sleep 1000', grace: 1s}\n"))
    with server(place):
        assert place.call("submit", str(flow), "--executor", str(_toml(place))).returncode == 0
        pid = pid_in(place.folder / "pid")
        assert place.call("cancel", "1").returncode == 0
        wait_for("the step has ended", lambda: not is_alive(pid))
        wait_for("the run has ended", lambda: status(place) == "canceled")


def _toml(place: Place) -> Path:
    """The file for `--executor`, written now."""
    place.describe(provider="local", workers_per_node=2)
    return place.toml


def test_two_runs_wait_for_no_other(place: Place) -> None:
    """A server drives two runs on blocks at once, each on its own, and functions beside a third."""
    steps = "  a: {shell: 'touch $RESILE_WORKFLOW_ID.here; until test -e 1.here -a -e 2.here; do sleep 0.05; done'}\n"
    flow = place.write(native(place, steps))
    with server(place):
        assert [place.call("submit", str(flow)).stdout for _ in range(2)] == ["run 1\n", "run 2\n"]
        for run in (1, 2):
            wait_for("the run has ended", partial(_is_completed, place, run))


def test_torc_files_schedule_their_nodes(tmp_path: Path) -> None:
    """A Torc file with `schedule_nodes` runs in its allocations where the server has Slurm, also over HTTP."""
    (tmp_path / "slurm").mkdir()
    slurm = SlurmCluster(tmp_path / "slurm", nodes=2)
    place = Place(tmp_path, slurm.env)
    place.shared = tmp_path / "out"
    text = """
name: t
slurm_schedulers: [{name: s, account: a, mem: 900}]
jobs: [{name: a, command: "echo $SLURM_JOB_NAME"}]
actions: [{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}]
"""
    try:
        with server(place, "--output", str(place.shared)) as (_, api):
            done = place.call("submit", str(place.write(text)), "--wait", "--output", str(place.shared))
            assert done.returncode == 0, done.stderr
            assert api.wait_for(api.start(text))["event"] == "playbook_completed"
        assert [place.call("logs", run, "a").stdout.splitlines()[-1] for run in ("1", "2")] == [
            "resile-1-1", "resile-2-1"
        ]  # fmt: skip
        wait_for("no allocation is left", lambda: not slurm.jobs("PENDING", "RUNNING"), 60)
    finally:
        slurm.stop()
