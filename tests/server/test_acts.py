"""What is done to runs over the API: judged, canceled, resumed, run again, deleted; dead letters run again."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from resile.server.access.tokens import local_user

from . import flows
from .service import API, Api, Server


def park(api: Api, folder: Path) -> int:
    """A run whose first step is parked until `mended` is in its folder."""
    run = api.start(flows.PARKED, directory=str(folder))
    api.wait_for(run, "step_parked")
    return run


def test_a_judge_lets_a_run_go_on(api: Api, tmp_path: Path) -> None:
    """`retry` after the cause is mended; the event has author, reason and confidence."""
    run = park(api, tmp_path)
    (tmp_path / "mended").touch()
    body = {"job": "flaky", "verdict": "retry", "reason": "mended it", "confidence": 0.9}
    answer = api.post(f"/runs/{run}/judgements", body)
    assert (answer.status, answer.json["job"], answer.json["verdict"]) == (201, 1, "retry")
    api.wait_for(run)
    assert api.get(f"/runs/{run}").json["status"] == "completed"
    (judged,) = api.get(f"/runs/{run}/events?type=step_judged").json["items"]
    assert judged["data"]["actor"] == answer.json["by"]
    assert (judged["data"]["reason"], judged["data"]["confidence"]) == ("mended it", 0.9)


def test_of_two_judges_one_wins(api: Api, tmp_path: Path) -> None:
    """The second is told that the failure is not parked any more, also once the run has ended."""
    run = park(api, tmp_path)
    assert api.post(f"/runs/{run}/judgements", {"job": 1, "verdict": "fail"}).status == 201
    late = api.post(f"/runs/{run}/judgements", {"job": 1, "verdict": "retry"})
    assert (late.status, late.code) == (409, "not_parked")
    api.wait_for(run)
    assert api.post(f"/runs/{run}/judgements", {"job": 1, "verdict": "skip"}).code == "not_parked"
    assert api.get(f"/runs/{run}").json["status"] == "failed"


def test_of_judges_at_the_same_time_with_one_verdict_one_wins(api: Api, tmp_path: Path) -> None:
    """Same token, same verdict: the one whose reason is in the log is told so, all others that they came too late."""
    bodies = [{"job": 1, "verdict": "skip", "reason": f"judge {number}"} for number in range(10)]
    # The connections of the server are open at the second run.
    for run in (park(api, tmp_path), park(api, tmp_path), park(api, tmp_path)):
        with ThreadPoolExecutor(10) as judges:
            answers = list(judges.map(partial(api.post, f"/runs/{run}/judgements"), bodies))
        assert sorted(answer.status for answer in answers) == [201] + [409] * 9
        assert {answer.code for answer in answers if answer.status == 409} == {"not_parked"}
        (won,) = [answer.json["reason"] for answer in answers if answer.status == 201]
        (judged,) = api.get(f"/runs/{run}/events?type=step_judged").json["items"]
        assert judged["data"]["reason"] == won


def test_a_skipped_step_may_have_an_output(api: Api, tmp_path: Path) -> None:
    """`output` is for `skip`, `memory` and `runtime` are for `retry_with`."""
    run = park(api, tmp_path)
    wrong: tuple[dict[str, object], ...] = (
        {"verdict": "retry", "output": 1},
        {"verdict": "retry", "memory": "8g"},
        {"verdict": "retry_with"},
        {"verdict": "retry_with", "memory": "lots"},
        {"verdict": "skip", "confidence": 1.5},
        {"verdict": "maybe"},
    )
    for body in wrong:
        assert api.post(f"/runs/{run}/judgements", {"job": 1, **body}).code == "invalid_field", body
    assert api.post(f"/runs/{run}/judgements", {"job": "after", "verdict": "skip"}).code == "not_parked"
    assert api.post(f"/runs/{run}/judgements", {"job": "nope", "verdict": "skip"}).code == "no_such_job"
    assert api.post(f"/runs/{run}/judgements", {"job": 1, "verdict": "skip", "output": {"x": 1}}).status == 201
    api.wait_for(run)
    assert api.get(f"/runs/{run}").json["status"] == "completed"


def test_a_run_is_canceled(api: Api, tmp_path: Path) -> None:
    """202 while it goes on, 409 once it has ended; the event says who and why."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = api.start(flows.WAITS, inputs={"gate": str(gate)})
    api.wait_for(run, "attempt_started")
    assert api.post(f"/runs/{run}/resume").code == "run_active"
    assert api.post(f"/runs/{run}/rerun").code == "run_active"
    assert api.call("DELETE", f"{API}/runs/{run}").code == "run_not_ended"
    assert api.post(f"/runs/{run}/cancel", {"reason": "wrong branch"}).status == 202
    api.wait_for(run)
    assert api.get(f"/runs/{run}").json["status"] == "canceled"
    (asked,) = api.get(f"/runs/{run}/events?type=cancel_requested").json["items"]
    assert asked["data"]["actor"]
    assert asked["data"]["reason"] == "wrong branch"
    assert api.post(f"/runs/{run}/cancel").code == "run_ended"
    assert api.post(f"/runs/{run}/resume").code == "run_ended"


def test_a_parked_run_is_canceled(api: Api, tmp_path: Path) -> None:
    """Although no engine has it in memory; until then it can't be deleted."""
    run = park(api, tmp_path)
    assert api.call("DELETE", f"{API}/runs/{run}").code == "run_not_ended"
    assert api.post(f"/runs/{run}/cancel").status == 202
    api.wait_for(run)
    assert api.get(f"/runs/{run}").json["status"] == "canceled"


def test_what_failed_runs_again(api: Api, tmp_path: Path) -> None:
    """The next epoch of the run, with what completed kept."""
    run = api.finish(flows.PARKED.replace(", park: true", ""), directory=str(tmp_path))
    assert api.get(f"/runs/{run}").json["status"] == "failed"
    (tmp_path / "mended").touch()
    assert api.post(f"/runs/{run}/rerun", {"failed_only": True}).status == 202
    api.wait_for(run)
    document = api.get(f"/runs/{run}").json
    assert (document["status"], document["epoch"]) == ("completed", 2)
    again = api.get(f"/runs/{run}/events?type=run_resumed").json["items"][0]
    assert again["data"]["actor"]
    assert api.call("DELETE", f"{API}/runs/{run}").status == 204


def test_an_interrupted_run_of_the_command_line_is_resumed(api: Api, shared_server: Server) -> None:
    """A server leaves it alone until it is asked to go on with it."""
    import signal
    import subprocess

    folder = shared_server.folder
    gate = folder / "resume-gate"
    os.mkfifo(gate)
    (folder / "waits.yaml").write_text(flows.WAITS)
    argv = shared_server.argv("run", "waits.yaml", "--input", f"gate={gate}")
    with subprocess.Popen(argv, cwd=folder, env=shared_server.env, stderr=subprocess.PIPE, text=True) as process:
        run = next(one["run"] for one in iter(lambda: _newest(api, "waits"), None) if one["status"] == "running")
        api.wait_for(run, "attempt_started")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert api.get(f"/runs/{run}").json["status"] == "interrupted"
    assert api.post(f"/runs/{run}/resume").status == 202
    gate.write_text("go\n")
    api.wait_for(run)
    assert api.get(f"/runs/{run}").json["status"] == "completed"
    (resumed,) = api.get(f"/runs/{run}/events?type=run_resumed").json["items"]
    assert resumed["data"]["actor"] == local_user()


def _newest(api: Api, workflow: str) -> dict[str, object]:
    """The newest run of a workflow, or an empty one."""
    found = api.get(f"/runs?workflow={workflow}&limit=1").json["items"]
    return found[0] if found else {"status": ""}


def test_dead_letters_run_again(api: Api, tmp_path: Path) -> None:
    """Listed, shown, chosen by a filter or by name, run again by the server, removed."""
    run = api.finish(flows.LETTERS, directory=str(tmp_path))
    path = f"/runs/{run}/dead-letters"
    listed = api.get(path).json["items"]
    names = [letter["item_id"] for letter in listed]
    assert [letter["item_data"] for letter in listed] == [1, 3]
    assert api.get(f"{path}/{names[0].replace('[', '%5B')}").json["item_id"] == names[0]
    assert api.get(f"{path}/77").code == "no_such_letter"
    assert api.post(f"{path}/retry", {"filter": "item >", "dry_run": True}).code == "bad_filter"
    unknown = api.post(f"{path}/retry", {"items": [names[1], "each[9]"]})
    assert (unknown.status, unknown.code, "each[9]" in unknown.json["detail"]) == (404, "no_such_letter", True)
    dry = api.post(f"{path}/retry", {"filter": "item > 1", "dry_run": True})
    assert (dry.status, dry.json) == (200, {"items": names[1:]})
    (tmp_path / "mended").touch()
    again = api.post(f"{path}/retry", {"items": [names[1]], "max_parallel": 1})
    assert (again.status, again.json) == (202, {"items": names[1:]})
    while [letter["item_id"] for letter in api.get(path).json["items"]] != names[:1]:
        pass
    while api.call("DELETE", f"{API}{path}/{names[0]}").status == 409:
        pass
    assert api.get(path).json == {"items": [], "next_cursor": None}
    assert api.call("DELETE", f"{API}{path}/{names[0]}").code == "no_such_letter"
    assert api.call("DELETE", f"{API}{path}").status == 204
