"""The command line changes runs through a server: it prints what it prints on a database, and does the same."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from getpass import getuser
from pathlib import Path

import msgspec
import pytest

import resile

from . import flows
from .service import API, Caller, Server, masked

AGENT = f"{sys.executable} -m tests.server.mcp.agent"
INPUTS = """
resile: 1
name: inputs
inputs:
  who: {type: text, required: true}
  n: {type: number, default: 1}
steps:
  say: {shell: 'echo ${inputs.who} ${inputs.n}'}
"""
TWO = """
resile: 1
name: two
steps:
  first: {shell: "echo ran >> first.log"}
  second: {shell: "echo ran >> second.log; test -e mended", needs: [first]}
"""
WIDE = """
resile: 1
name: wide
max_parallel: 5
steps:
  a: {shell: 'true', resources: {cpus: 1}}
  b: {shell: 'true', resources: {cpus: 1}}
"""
_RUN = re.compile(r'(\brun|\bresume|\bcancel|\bjudge|"run":) ?\d+')


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A server whose machine has room for four steps."""
    server = Server(tmp_path_factory.mktemp("acts"), "--slots", "4")
    yield Caller(server)
    server.close()


def same(text: str) -> str:
    """What a command printed, without times and without the numbers of runs."""
    return _RUN.sub(r"\1 N", masked(text))


def both(caller: Caller, runs: tuple[int, int], *words: str) -> tuple[int, str]:
    """Do the same on the database with one run and through the server with another; what both print, and how they end.

    `RUN` in the words is the number of the run.
    """
    local, remote = (
        caller.call(*(word.replace("RUN", str(run)) for word in words), remote=is_remote)
        for run, is_remote in zip(runs, (False, True), strict=True)
    )
    assert (same(remote.stdout), remote.returncode) == (same(local.stdout), local.returncode), remote.stderr
    assert same(remote.stderr) == same(local.stderr)
    return remote.returncode, remote.stdout


def test_logs_are_exported(caller: Caller, tmp_path: Path) -> None:
    """The same files with the same names and content, of both epochs."""
    run = caller.server.api.finish(flows.HELLO)
    caller.remote("rerun", str(run))
    here, there = tmp_path / "here", tmp_path / "there"
    local = caller.call("logs", str(run), "--export", str(here), remote=False)
    remote = caller.call("logs", str(run), "--export", str(there), remote=True)
    assert (
        remote.stdout
        == local.stdout.replace(str(here), str(there))
        == (f"4 files in {there}, each with a name by step and one by number (job_wf…)\n")
    )
    found = {path.name: path.read_bytes() for path in there.iterdir()}
    assert found == {path.name: path.read_bytes() for path in here.iterdir()}
    assert found["greet_a1.o"] == found["greet_r2_a1.o"] == found[f"job_wf{run}_j1_r2_a1.o"] == b"0123456789"
    assert found["greet_a1.e"] == b"oops\n"
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in there.iterdir())
    (tmp_path / "file").touch()
    both(caller, (run, run), "logs", "RUN", "--export", str(tmp_path / "file"))
    both(caller, (999, 999), "logs", "RUN", "--export", str(there))


def test_large_output_is_exported(caller: Caller, tmp_path: Path) -> None:
    """In pieces, whole; output that is lost is an error after the rest."""
    run = caller.server.api.finish("resile: 1\nname: l\nsteps:\n  a: {shell: 'seq 200000'}\n  b: {shell: 'echo b'}\n")
    caller.remote("logs", str(run), "--export", str(tmp_path / "x"))
    assert (tmp_path / "x" / "a_a1.o").read_text() == "".join(f"{number}\n" for number in range(1, 200_001))
    for segment in caller.server.folder.glob("**/runs/wf*/**/*.o"):
        if segment.stat().st_size > 1_000_000:
            segment.write_bytes(b"")
    done = caller.call("logs", str(run), "--export", str(tmp_path / "y"), remote=True)
    assert (done.returncode, "the output of 'a' is lost" in done.stderr) == (2, True), done


def test_a_rerun_as_a_new_run(caller: Caller) -> None:
    """A new run of the same definition, inputs, labels and priority; the old one stays as it is."""
    api, file = caller.server.api, caller.file("inputs.yaml", INPUTS)
    run = int(caller.remote("submit", file, "--input", "who=me", "--label", "team=x", "--priority", "3").split()[-1])
    api.wait_for(run)
    code, printed = both(caller, (run, run), "rerun", "RUN", "--as-new", "--input", "n=2")
    found = re.search(r"run (\d+)", printed)
    assert found is not None
    fresh = int(found[1])
    assert (code, fresh != run) == (0, True)
    assert "me 2" in caller.remote("logs", str(fresh))
    assert api.get(f"/runs/{fresh}").json["inputs"] == {"who": "me", "n": 2}
    assert api.get(f"/runs/{run}").json["epoch"] == 1
    labels = {one["run"]: one["labels"] for one in api.get("/runs").json["items"]}
    assert labels[fresh] == labels[run] == {"team": "x"}
    started = api.get(f"/runs/{fresh}/events").json["items"][0]
    assert started["data"]["actor"] == api.get(f"/runs/{run}/events").json["items"][0]["data"]["actor"]
    both(caller, (run, run), "rerun", "RUN", "--as-new", "--failed-only")
    both(caller, (run, run), "rerun", "RUN", "--as-new", "--input", "nothing=1")
    both(caller, (999, 999), "rerun", "RUN", "--as-new")


def test_as_new_over_the_api(caller: Caller) -> None:
    """201 with the place of the run; both run in one folder, which stays until the last of them is deleted."""
    api = caller.server.api
    run = api.finish(TWO)
    made = api.post(f"/runs/{run}/rerun", {"as_new": True})
    assert (made.status, made.headers["location"]) == (201, f"{API}/runs/{made.json['run']}")
    fresh = made.json["run"]
    api.wait_for(fresh)
    (folder,) = caller.server.folder.glob("**/second.log")
    assert folder.read_text() == "ran\nran\n"
    assert api.call("DELETE", f"{API}/runs/{run}").status == 204
    assert folder.exists()
    assert api.call("DELETE", f"{API}/runs/{fresh}").status == 204
    assert not folder.exists()
    refused = api.post(f"/runs/{run}/rerun", {"as_new": True, "failed_only": True})
    assert (refused.status, refused.code) == (422, "invalid_field")


def test_an_input_that_equals_its_default_is_given(caller: Caller) -> None:
    """A rerun gives back the default, and need not repeat what is required."""
    file = caller.file("inputs.yaml", INPUTS)
    run = int(caller.remote("submit", file, "--input", "who=me", "--input", "n=5").split()[-1])
    caller.server.api.wait_for(run)
    caller.remote("rerun", str(run), "--input", "n=1")
    assert caller.server.api.get(f"/runs/{run}").json["inputs"] == {"who": "me", "n": 1}
    missing = caller.call("submit", file, remote=True)
    assert (missing.returncode, "'who' is required" in missing.stderr) == (2, True)


def test_a_reset(caller: Caller, tmp_path: Path) -> None:
    """It counts the steps, runs nothing, and a resume runs them; the log says who did it."""
    api = caller.server.api
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    runs = (api.finish(TWO, directory=str(folders[0])), api.finish(TWO, directory=str(folders[1])))
    both(caller, runs, "reset", "RUN", "--failed-only")
    both(caller, runs, "status", "RUN")
    both(caller, runs, "reset", "RUN")
    whole = (api.finish(TWO), api.finish(TWO))
    both(caller, whole, "reset", "RUN", "--json")
    assert (folders[1] / "second.log").read_text() == "ran\n"
    (folders[1] / "mended").touch()
    assert "completed" in caller.remote("resume", str(runs[1]))
    assert (folders[1] / "second.log").read_text() == "ran\nran\n"
    (epoch,) = api.get(f"/runs/{runs[1]}/events?type=run_resumed").json["items"]
    assert (epoch["data"]["epoch"], epoch["data"]["actor"]) == (2, getuser())


def test_a_run_that_is_driven_is_not_reset(caller: Caller, tmp_path: Path) -> None:
    """409 over the API, exit 2 from the command."""
    import os

    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = caller.server.api.start(flows.WAITS, inputs={"gate": str(gate)})
    caller.server.api.wait_for(run, "attempt_started")
    refused = caller.server.api.post(f"/runs/{run}/reset", {})
    assert (refused.status, refused.code) == (409, "run_active")
    assert caller.call("reset", str(run), remote=True).returncode == 2
    gate.write_text("go\n")
    caller.server.api.wait_for(run)


def test_what_a_run_may_use(caller: Caller) -> None:
    """The limits of submit, resume and rerun hold until others are given; none may be too small for a step."""
    api, file = caller.server.api, caller.file("wide.yaml", WIDE)
    run = int(caller.remote("submit", file, "--cpus", "1", "--max-parallel", "3").split()[-1])
    api.wait_for(run)
    query = "type=attempt_started&type=attempt_succeeded"
    serial = [event["type"] for event in api.get(f"/runs/{run}/events?{query}").json["items"]]
    assert serial == ["attempt_started", "attempt_succeeded"] * 3
    assert capacity(caller, run) == (3, 1.0)
    caller.remote("rerun", str(run), "--cpus", "2", "--memory", "1g", "--gpus", "0")
    assert capacity(caller, run) == (3, 2.0)
    caller.remote("rerun", str(run), "--max-parallel", "1")
    assert capacity(caller, run) == (1, 2.0)
    refused = caller.call("rerun", str(run), "--cpus", "0.5", remote=True)
    assert (refused.returncode, "it asks for CPUs: 1, there are 0.5" in refused.stderr) == (2, True)
    caller.remote("reset", str(run))
    assert api.post(f"/runs/{run}/resume", {"cpus": 0.5}).code == "does_not_fit"
    assert api.post(f"/runs/{run}/resume", {"max_parallel": 0}).code == "invalid_field"
    caller.remote("resume", str(run), "--max-parallel", "2", "--cpus", "3")
    assert capacity(caller, run) == (2, 3.0)
    caller.remote("reset", str(run))
    assert resile.Client(api.url).resume(run, max_parallel=4).status == "completed"
    assert capacity(caller, run)[0] == 4
    caller.remote("reset", str(run))
    caller.remote("resume", str(run))
    assert capacity(caller, run)[0] == 5


def capacity(caller: Caller, run: int) -> tuple[int, float]:
    """How many attempts a run may have at a time and how many CPUs they may use, by its log."""
    entries = caller.server.api.get(f"/runs/{run}/log").json["entries"]
    last = [entry["event"]["capacity"] for entry in entries if "capacity" in entry["event"]][-1]
    return last["parallel"], last["cpus"]


@pytest.mark.parametrize(("action", "code"), [("retry", 0), ("fail", 1)])
def test_an_agent_judges_through_a_server(serve: Callable[..., Server], tmp_path: Path, action: str, code: int) -> None:
    """`recover --agent` gives it the server's tools with the caller's token; the command ends as the run does."""
    (tmp_path / "tokens").write_text("boss operator s3cret\n")
    caller = Caller(serve("--token-file", "tokens"))
    caller.server.env["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    env = {"RESILE_TOKEN": "s3cret"}
    file = caller.file("parked.yaml", flows.PARKED.replace("test -e mended", "test -e seen || ! touch seen"))
    caller.remote("run", file, code=4, **env)
    done = caller.call("recover", "1", "--agent", f"{AGENT} {{mcp_config}} {action}", remote=True, **env)
    assert (done.returncode, "it judged 1 failure, 0 stay parked" in done.stderr) == (code, True), done
    event = msgspec.json.decode(caller.remote("events", "list", "1", "--type", "step_judged", "--json", **env))
    assert "boss" in event["data"]["by"]


def test_an_agent_that_does_nothing(serve: Callable[..., Server]) -> None:
    """What it leaves stays parked, or gets the default."""
    caller = Caller(serve())
    file = caller.file("parked.yaml", flows.PARKED)
    caller.remote("run", file, code=4)
    caller.remote("recover", "1", "--agent", "true {mcp_config}", code=4)
    caller.remote("recover", "1", "--agent", "true {mcp_config}", "--default", "fail", code=1)
    assert caller.call("recover", "1", "--agent", "true {mcp_config}", remote=True).returncode == 2
