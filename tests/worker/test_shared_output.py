"""Workers whose output stays in a folder that the server sees too."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import msgspec
import pytest

from resile.executors.local.segments import SegmentReader
from resile.executors.shared.worker_output import WorkerOutput
from resile.executors.worker.messages import Reports
from tests.executors.local.driver import lives, wait_for

from .process import WorkerProcess
from .test_workers import CHAIN, GATED, Serve, Work, history, pids


def files_below(folder: Path) -> list[Path]:
    """All files with output in a shared folder."""
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix in (".o", ".e")]


def test_output_stays_and_is_read_as_always(serve: Serve, work: Work, tmp_path: Path) -> None:
    """The files are the owner's alone, every way of reading finds them, and they go with their run."""
    server, shared = serve(), tmp_path / "shared"
    work(server, "one", "--label", "gpu", "--shared-output", str(shared), RESILE_TOKEN="")
    run = server.api.finish(CHAIN)
    assert server.api.get(f"/runs/{run}").json["status"] == "completed"
    assert server.api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body == b"from a\n"
    assert server.api.get(f"/runs/{run}/jobs/1/attempts/1/stderr").body == b"oops\n"
    assert server.resile("logs", str(run), "b").endswith("from b\n")
    assert history(server.api, run, 2)[0]["worker"] == "one"
    found = files_below(shared)
    assert sorted(path.read_bytes() for path in found) == [b"from a\n", b"from b\n", b"oops\n"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    folders = [shared, *(path for path in shared.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    linked = [path for path in tmp_path.rglob("launcher/w*-one.o") if path.exists()]
    assert sorted((path.is_symlink(), path.read_bytes()) for path in linked) == [
        (True, b"from a\n"),
        (True, b"from b\n"),
    ]
    assert server.api.call("DELETE", f"/api/v1/runs/{run}").status == 204
    assert files_below(shared) == []
    assert [path.name for path in shared.iterdir() if path.is_dir()] == []


def test_output_is_there_while_the_step_runs_and_after_deaths(serve: Serve, work: Work, tmp_path: Path) -> None:
    """The server reads what a step has written so far; the worker and the server die, and nothing of it is lost."""
    server, shared = serve(PLACE=str(tmp_path)), tmp_path / "shared"
    options = ("--shared-output", str(shared))
    first = work(server, "one", *options)
    run = server.api.start(GATED.replace("echo $$", "echo early; echo $$"))
    path = f"/runs/{run}/jobs/1/attempts/1/stdout"
    (step,) = pids(tmp_path, 1)
    wait_for(lambda: server.api.get(path).body == b"early\n")
    server.process.kill()
    server.process.wait()
    first.send(signal.SIGKILL)
    first.end()
    (tmp_path / "gate").touch()
    wait_for(lambda: not lives(step))
    again = serve("--port", str(server.port), PLACE=str(tmp_path))
    second = work(again, "one", *options)
    again.api.wait_for(run)
    (only,) = history(again.api, run)
    assert (only["exit_code"], only["worker"]) == (0, "one"), second.log()
    assert again.api.get(path).body == b"early\ndone\n"
    second.send(signal.SIGTERM)
    assert second.end() == 0, second.log()
    assert [entry.name for entry in shared.iterdir()] == [f"{run}-1"]


def test_what_ended_while_the_worker_was_away_has_its_output(serve: Serve, work: Work, tmp_path: Path) -> None:
    """A worker that comes back, even without the shared folder, finds what a step wrote, and sends it."""
    server, shared = serve(PLACE=str(tmp_path)), tmp_path / "shared"
    first = work(server, "one", "--shared-output", str(shared))
    run = server.api.start(GATED)
    (step,) = pids(tmp_path, 1)
    first.send(signal.SIGKILL)
    first.end()
    (tmp_path / "gate").touch()
    wait_for(lambda: not lives(step))
    work(server, "one")
    server.api.wait_for(run)
    (only,) = history(server.api, run)
    assert (only["exit_code"], only["kind"]) == (0, None)
    assert server.api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body == b"done\n"
    assert not server.api.get(f"/runs/{run}/jobs/1").json["output_lost"]


def test_a_folder_that_the_server_does_not_see_is_refused(serve: Serve, tmp_path: Path) -> None:
    """The worker exits 2 and says why; a server believes a mark that it finds, and no name."""
    server, shared = serve(), tmp_path / "shared"
    told = {"name": "one", "shared_output": {"path": str(shared), "mark": "0" * 32}}
    answer = server.api.post("/workers", told)
    assert (answer.status, answer.code) == (422, "shared_output_not_seen")
    assert str(shared) in answer.json["detail"]
    shared.mkdir(mode=0o700)
    shared.chmod(0o777)
    worker = WorkerProcess(tmp_path, server, "one", "--shared-output", str(shared))
    try:
        assert worker.end() == 2
        assert "others can write to the folder" in worker.log()
    finally:
        worker.close()
    # A folder of this name that is another one for the server, as on another machine.
    hidden = WorkerProcess(tmp_path, server, "two", "--shared-output", "/proc/self/task")
    try:
        assert hidden.end() == 2
        assert "--shared-output can't be used" in hidden.log() or "belongs to" in hidden.log()
    finally:
        hidden.close()


def test_a_link_leads_to_the_file_of_the_attempt_alone(tmp_path: Path) -> None:
    """A file in the shared folder that is a link itself is not read."""
    folder, attempt = tmp_path / "epoch", tmp_path / "shared" / "1-1" / "abc"
    (attempt / "launcher").mkdir(parents=True)
    output = WorkerOutput(str(folder), "abc", "one", is_new=True)
    output.link(str(attempt), "1f-0-1")
    (attempt / "launcher" / "1f-0-1.o").write_bytes(b"own")
    secret = tmp_path / "secret"
    secret.write_bytes(b"not for you")
    os.symlink(secret, attempt / "launcher" / "1f-0-1.e")
    reader = SegmentReader(str(folder))
    assert reader.follow_output(output.log, "out", 0, 100, job=1, attempt=1) == b"own"
    assert reader.follow_output(output.log, "err", 0, 100, job=1, attempt=1) == b""
    found = WorkerOutput(str(folder), "abc", "one", is_new=False)
    assert found.is_linked
    assert found.sizes[0] == 3


@pytest.mark.parametrize("segment", ["../x", "a/b", "1f-0-1/../../x", "w1-0-0"])
def test_a_segment_is_a_name(segment: str) -> None:
    """A worker can't name a file elsewhere."""
    told = {"starts": [{"token": "t", "at": 1.0, "pid": 1, "segment": segment}]}
    with pytest.raises(msgspec.ValidationError, match="segment"):
        msgspec.convert(told, Reports)
