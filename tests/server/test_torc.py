"""The endpoints that clients of Torc know, under the base path and at the root."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.executors.local.driver import wait_for

from . import flows
from .service import API, Api, Server

TORC = """
name: shim
user_data: [{name: made}, {name: given, data: {n: 1}}]
jobs:
  - name: make
    command: torc user-data update ${user_data.output.made} --data '{"x":42}'
  - name: use
    command: |
      torc -f json user-data get ${user_data.input.made} | tr -d '\\n '; echo
      torc user-data list
      torc jobs get $TORC_JOB_ID
      echo "<$RESILE_API_TOKEN>"; printf %s "$RESILE_API_TOKEN" > token; echo "[$RESILE_DATABASE]"
  - name: key
    command: torc jobs get $(( $TORC_WORKFLOW_ID * 4294967296 + 1 )); curl -s "$TORC_API_URL/healthz"
    depends_on: [use]
"""


def test_jobs_call_torc_through_the_server(serve: Callable[..., Server], tmp_path: Path) -> None:
    """The token of a run's steps reads its jobs and changes its user data; it opens nothing else, and is not shown."""
    (tmp_path / "tokens").write_text("root admin s3cret\n")
    server = serve("--token-file", "tokens")
    api = Api(server.port, "s3cret")
    run = api.finish(TORC, file="shim.yaml", directory=str(tmp_path))
    other = api.finish(flows.HELLO)
    document = api.get(f"/runs/{run}").json
    said = {job["step"]: api.get(f"/runs/{run}/jobs/{job['id']}/attempts/1/stdout").body for job in document["jobs"]}
    assert document["status"] == "completed", said
    lines = said["use"].decode().splitlines()
    assert msgspec.json.decode(lines[0]) == {
        "id": 1, "workflow_id": run, "name": "made", "is_ephemeral": False, "data": {"x": 42},
    }  # fmt: skip
    assert lines[1:3] == ['1  made  {"x": 42}', '2  given  {"n": 1}']
    assert {'name: "use"', 'status: "running"', f"workflow_id: {run}"} <= set(lines)
    assert lines[-2:] == ["<***>", "[]"]
    assert b'name: "make"' in said["key"]
    assert said["key"].endswith(b'{"status":"ok"}')
    token = (tmp_path / "token").read_text()
    step = Api(server.port, token)
    assert step.get(f"/runs/{run}/jobs/1").json["step"] == "make"
    assert [one["data"] for one in step.get(f"/runs/{run}/user-data").json["items"]] == [{"x": 42}]
    for path in (f"/runs/{other}/jobs/1", f"/runs/{other}/user-data", f"/runs/{run}", "/runs", "/tokens", "/failures"):
        assert (path, step.get(path).code) == (path, "role_too_low")
    assert step.post(f"/runs/{run}/cancel", {}).code == "role_too_low"
    assert step.call("POST", "/mcp", {}).status == 403
    forged = token.replace(f"run-{run}-", f"run-{other}-")
    assert Api(server.port, forged).get(f"/runs/{other}/user-data").code == "token_unknown"
    assert (tmp_path / "output" / ".resile-step-key").stat().st_mode & 0o777 == 0o600
    assert api.call("DELETE", f"{API}/runs/{run}").status == 204
    assert not list(tmp_path.glob("output/torc/user_data*"))


RECOVERS = """
name: recovers
failure_handlers:
  - name: mends
    rules: [{exit_codes: [10], recovery_script: torc jobs get $TORC_JOB_ID > got; ./mend.sh}]
jobs:
  - {name: first, command: "true"}
  - name: solve
    command: echo $TORC_JOB_ID $RESILE_JOB_ID; echo broken >&2; test -e mended || exit 10
    failure_handler: mends
"""
MEND = """
curl -s -X POST "$TORC_API_URL/jobs/$TORC_JOB_ID/retry/9?max_retries=3" > asked
cat "$TORC_OUTPUT_DIR/job_stdio/job_wf${TORC_WORKFLOW_ID}_j${TORC_JOB_ID}_r${TORC_RUN_ID}_a${TORC_ATTEMPT_ID}.e" > read
curl -s "$TORC_API_URL/jobs?workflow_id=$TORC_WORKFLOW_ID&status=ready" > reserved
touch mended
"""


def test_torc_job_id_is_the_id_of_the_api(api: Api, tmp_path: Path) -> None:
    """A job and its recovery script name the job to the server by it, and the files of the failed attempt as well; the
    retry that the script prepares is reserved: the job is ready, and at its next attempt.
    """
    (tmp_path / "mend.sh").write_text(MEND)
    (tmp_path / "mend.sh").chmod(0o755)
    run = api.finish(RECOVERS, file="recovers.yaml", directory=str(tmp_path))
    key = run * 2**32 + 2
    assert api.get(f"/runs/{run}/jobs/2/attempts/1/stdout").body == b"%d 2\n" % key
    assert msgspec.json.decode((tmp_path / "asked").read_bytes())["code"] == "run_id_stale"
    assert (tmp_path / "read").read_text() == "broken\n"
    assert msgspec.json.decode((tmp_path / "reserved").read_bytes())["items"] == [
        {
            "id": key,
            "workflow_id": run,
            "name": "solve",
            "status": "ready",
            "attempt_id": 2,
            "stderr": "broken\n",
        }
    ]
    assert 'status: "ready"\nattempt_id: 2\n' in (tmp_path / "got").read_text()
    assert api.get(f"/runs/{run}").json["status"] == "completed"


def test_user_data_has_limits(api: Api) -> None:
    """A record that nobody has changed is 404, one that is too large 422; ids and fields are checked."""
    run = api.finish(flows.HELLO)
    path = f"{API}/runs/{run}/user-data"
    assert api.call("GET", f"{path}/1").code == "no_such_user_data"
    assert api.call("PUT", f"{path}/1", {"name": "a", "data": "x" * 2**20}).code == "user_data"
    assert api.call("PUT", f"{path}/0", {"name": "a", "data": 1}).code == "no_such_user_data"
    assert api.call("PUT", f"{path}/1", {"name": "a", "data": 1, "more": 1}).code == "invalid_field"
    assert api.call("GET", f"{API}/runs/9999/user-data").code == "no_such_run"
    record = {"id": 1, "workflow_id": run, "name": "a", "is_ephemeral": False, "data": [1]}
    assert api.call("PUT", f"{path}/1", {"name": "a", "data": [1]}).json == record
    assert api.call("GET", path).json == {"items": [record], "next_cursor": None}


@pytest.mark.parametrize("base", [API, ""])
def test_failure_handlers_are_served_as_torc_does(api: Api, base: str) -> None:
    """`rules` is a JSON array in a text; ids are unique over all runs."""
    run = api.start(flows.HANDLERS)
    (handler,) = api.call("GET", f"{base}/workflows/{run}/failure_handlers").json["items"]
    assert handler.keys() == {"id", "workflow_id", "name", "rules"}
    assert (handler["workflow_id"], handler["name"]) == (run, "simulation_recovery")
    assert msgspec.json.decode(handler["rules"]) == [{"exit_codes": [10, 11], "max_retries": 3}]
    assert api.call("GET", f"{base}/failure_handlers/{handler['id']}").json == handler


TORC_HANDLERS = """
name: solves
failure_handlers:
  - name: simulation_recovery
    rules:
      - {match_all_exit_codes: true, max_retries: 2}
      - {exit_codes: [1, -9], recovery_script: 'torc jobs get $TORC_JOB_ID; echo ${TORC_JOB_NAME}'}
      - {exit_codes: [12], max_retries: 1}
  - {name: empty, rules: []}
jobs:
  - {name: solve, command: "true", failure_handler: simulation_recovery}
"""


def test_rules_of_a_torc_file_are_as_the_file_has_them(api: Api) -> None:
    """`max_retries` counts attempts as a client of Torc does, and the script is without what Resile puts before it."""
    run = api.start(TORC_HANDLERS)
    found = api.get(f"/workflows/{run}/failure_handlers").json["items"]
    assert {handler["name"]: msgspec.json.decode(handler["rules"]) for handler in found} == {
        "simulation_recovery": [
            {
                "exit_codes": [1, -9],
                "recovery_script": "torc jobs get $TORC_JOB_ID; echo ${TORC_JOB_NAME}",
                "max_retries": 3,
            },
            {"exit_codes": [12], "max_retries": 1},
            {"match_all_exit_codes": True, "max_retries": 2},
        ],
        "empty": [],
    }


@pytest.mark.parametrize("base", [API, ""])
def test_a_parked_job_is_found_and_judged(api: Api, base: str, tmp_path: Path) -> None:
    """`ready` runs it again, `failed` lets it fail; any other change is refused."""
    run = api.start(flows.PARKED, directory=str(tmp_path))
    api.wait_for(run, "step_parked")
    listed = api.call("GET", f"{base}/jobs?workflow_id={run}&status=pending_failed").json
    key = run * 2**32 + 1
    found = {"id": key, "workflow_id": run, "name": "flaky", "status": "pending_failed", "attempt_id": 1}
    assert listed == {"items": [{**found, "stderr": "broken\n"}]}
    for body in ({"status": "completed"}, {"command": "true"}, {"status": "ready", "name": "x"}):
        assert api.call("PUT", f"{base}/jobs/{key}", body).code == "invalid_field"
    (tmp_path / "mended").touch()
    answer = api.call("PUT", f"{base}/jobs/{key}", {"status": "ready", "reason": "mended"})
    assert (answer.status, answer.json) == (200, {**found, "status": "ready", "attempt_id": 2})
    api.wait_for(run)
    late = api.call("PUT", f"{base}/jobs/{key}", {"status": "failed"})
    assert (late.status, late.code) == (409, "not_parked")
    assert api.call("PUT", f"{base}/jobs/{key + 77}", {"status": "failed"}).code == "job_not_found"


def test_a_retry_is_refused_in_this_order(api: Api) -> None:
    """Without a limit, no such job, a stale run, a status that can't be retried, no attempt left."""
    run = api.finish(flows.FAILS)
    broken, after = run * 2**32 + 1, run * 2**32 + 2
    assert api.post(f"/jobs/{broken}/retry/1").code == "max_retries_missing"
    assert api.post(f"/jobs/{broken + 77}/retry/9?max_retries=0").code == "job_not_found"
    stale = api.post(f"/jobs/{after}/retry/9?max_retries=0")
    assert (stale.status, stale.code) == (409, "run_id_stale")
    never = api.post(f"/jobs/{after}/retry/1?max_retries=0")
    assert (never.status, never.code) == (422, "job_not_retryable")
    spent = api.post(f"/jobs/{broken}/retry/1?max_retries=1")
    assert (spent.status, spent.code) == (422, "retries_exhausted")


def test_of_a_hundred_that_race_for_one_retry_one_wins(api: Api, tmp_path: Path) -> None:
    """One transaction decides; the run that had failed opens again and completes."""
    run = api.finish(flows.PARKED.replace(", park: true", ""), directory=str(tmp_path))
    (tmp_path / "mended").touch()
    key = run * 2**32 + 1
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: api.post(f"/jobs/{key}/retry/1?max_retries=2"), range(100)))
    won = [answer for answer in answers if answer.status == 200]
    assert [answer.json for answer in won] == [
        {"id": key, "workflow_id": run, "name": "flaky", "status": "ready", "attempt_id": 2}
    ]
    assert {answer.code for answer in answers if answer.status != 200} <= {"retries_exhausted", "job_not_retryable"}
    while api.get(f"/runs/{run}").json["status"] != "completed":
        pass
    assert api.get(f"/runs/{run}").json["epoch"] == 1


CHILD = """
resile: 1
steps:
  fails: {shell: test -e mended}
  after: {shell: 'true', needs: [fails]}
  waits: {shell: 'touch begun; while ! [ -e gate ]; do sleep 0.02; done'}
"""
PARENT = """
resile: 1
steps:
  calls: {workflow: child.yaml}
"""
ITEM = """
resile: 1
steps:
  many:
    map:
      input: [only]
      steps:
        fails: {shell: test -e mended}
        after: {shell: 'true', needs: [fails]}
        waits: {shell: 'touch begun; while ! [ -e gate ]; do sleep 0.02; done'}
"""


@pytest.mark.parametrize("text", [PARENT, ITEM], ids=["child", "item"])
def test_a_job_inside_a_step_is_retried_while_that_step_goes_on(api: Api, tmp_path: Path, text: str) -> None:
    """A failed and a running step of a child workflow, or of an item, run again, and so does what waited for them."""
    run = api.start(text, files={"child.yaml": CHILD}, directory=str(tmp_path))
    jobs = _jobs_when(
        api, run, lambda jobs: jobs["fails"]["status"] == "failed" and jobs["waits"]["status"] == "running"
    )
    (tmp_path / "mended").touch()
    for name in ("fails", "waits"):
        answer = api.post(f"/jobs/{jobs[name]['key']}/retry/1?max_retries=2")
        assert (answer.status, answer.json.get("attempt_id")) == (200, 2), answer.body
    spent = api.post(f"/jobs/{jobs['waits']['key']}/retry/1?max_retries=2")
    assert spent.code in ("retries_exhausted", "job_not_retryable")
    _jobs_when(api, run, lambda jobs: jobs["after"]["status"] == "completed")
    (tmp_path / "gate").touch()
    api.wait_for(run)
    assert api.get(f"/runs/{run}").json["status"] == "completed"
    found = _jobs_when(api, run, bool)
    assert {name: job["status"] for name, job in found.items()} == dict.fromkeys(found, "completed")
    assert (found["fails"]["attempts"], found["waits"]["attempts"], found["after"]["attempts"]) == (2, 2, 1)


def test_a_job_inside_a_step_that_is_over_is_not_retryable(api: Api, tmp_path: Path) -> None:
    """It is refused with the documented code, and the hint names what can be retried."""
    text = "resile: 1\nsteps:\n  many: {map: {input: [only], steps: [{id: fails, shell: exit 3}]}}\n"
    run = api.finish(text, directory=str(tmp_path))
    inside = _jobs_when(api, run, bool)["fails"]
    assert inside["status"] == "failed"
    answer = api.post(f"/jobs/{inside['key']}/retry/1?max_retries=5")
    assert (answer.status, answer.code) == (422, "job_not_retryable")
    assert "dead letter" in answer.json["hint"]


def _jobs_when(api: Api, run: int, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The jobs of a run by step, once they are like that."""

    def look() -> dict[str, Any]:
        jobs = {job["step"]: job for job in api.get(f"/runs/{run}/jobs").json["items"]}
        return jobs if {"fails"} <= jobs.keys() and enough(jobs) else {}

    return wait_for(look)
