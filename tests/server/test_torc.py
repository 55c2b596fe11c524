"""The endpoints that clients of Torc know, under the base path and at the root."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from . import flows
from .service import API, Api


@pytest.mark.parametrize("base", [API, ""])
def test_failure_handlers_are_served_as_torc_does(api: Api, base: str) -> None:
    """`rules` is a JSON array in a text; ids are unique over all runs."""
    run = api.start(flows.HANDLERS)
    (handler,) = api.call("GET", f"{base}/workflows/{run}/failure_handlers").json["items"]
    assert handler.keys() == {"id", "workflow_id", "name", "rules"}
    assert (handler["workflow_id"], handler["name"]) == (run, "simulation_recovery")
    assert msgspec.json.decode(handler["rules"]) == [{"exit_codes": [10, 11], "max_retries": 3}]
    assert api.call("GET", f"{base}/failure_handlers/{handler['id']}").json == handler


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
