"""Runs over the API: started, listed, described, their output and their events."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import flows
from .service import API, Api, Server


@pytest.fixture(scope="module")
def finished(shared_server: Server) -> int:
    """A run that has completed."""
    return shared_server.api.finish(flows.HELLO, labels={"team": "x"}, key="finished")


@pytest.fixture(scope="module")
def parked(shared_server: Server) -> int:
    """A run with a parked failure."""
    run = shared_server.api.start(flows.PARKED, labels={"team": "p"})
    shared_server.api.wait_for(run, "step_parked")
    return run


def test_a_run_is_started_and_described(api: Api, finished: int) -> None:
    """Its document is that of `resile status --json`; its start says who asked for it."""
    document = api.get(f"/runs/{finished}").json
    assert (document["run"], document["workflow"], document["status"]) == (finished, "hello", "completed")
    assert [job["step"] for job in document["jobs"]] == ["greet", "bye", "end"]
    first = api.get(f"/runs/{finished}/events?limit=1").json["items"][0]
    assert (first["seq"], first["type"]) == (1, "playbook_started")
    assert first["data"]["actor"]


def test_a_run_works_in_a_folder_of_its_own(api: Api, shared_server: Server) -> None:
    """With the files that it takes in, for its owner only; deleting the run deletes the folder."""
    text = "resile: 1\nsteps: {here: {shell: 'pwd; cat lib/words.txt'}, kid: {workflow: lib/child.yaml}}"
    run = api.finish(text, files={"lib/words.txt": "hi\n", "lib/child.yaml": flows.HELLO})
    where, word = api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body.decode().splitlines()
    assert word == "hi"
    assert Path(where).parent == shared_server.folder / "output" / "work"
    assert os.stat(where).st_mode & 0o777 == 0o700
    assert api.call("DELETE", f"{API}/runs/{run}").status == 204
    assert not os.path.exists(where)
    assert api.get(f"/runs/{run}").code == "no_such_run"


def test_a_run_works_in_the_folder_that_is_named(api: Api, tmp_path: Path) -> None:
    """`directory`; deleting the run leaves it alone."""
    run = api.finish("resile: 1\nsteps: {a: {shell: pwd > here}}", directory=str(tmp_path))
    assert (tmp_path / "here").read_text() == f"{tmp_path}\n"
    assert api.call("DELETE", f"{API}/runs/{run}").status == 204
    assert (tmp_path / "here").exists()


def test_a_refused_run_leaves_no_folder(api: Api, shared_server: Server) -> None:
    """Nothing is written where the file is wrong."""
    before = sorted(os.listdir(shared_server.folder / "output" / "work"))
    assert api.post("/runs", {"text": "resile: 1\nsteps: {a: {}}", "files": {"x": "y"}}).status == 422
    assert sorted(os.listdir(shared_server.folder / "output" / "work")) == before


def test_the_same_key_gives_the_same_run(api: Api, finished: int) -> None:
    """200 with the first run; another file or other inputs are 409."""
    again = api.post("/runs", {"text": flows.HELLO, "key": "finished"})
    assert (again.status, again.json["run"], again.headers["location"]) == (200, finished, f"{API}/runs/{finished}")
    other = api.post("/runs", {"text": flows.FAILS, "key": "finished"})
    assert (other.status, other.code) == (409, "key_in_use")


def test_files_of_other_systems_run(api: Api) -> None:
    """They compile as with the command line."""
    run = api.finish("name: t\njobs:\n- {name: one, command: echo torc}\n", dialect="torc")
    assert api.get(f"/runs/{run}").json["dialect"] == "torc"
    assert api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body == b"torc\n"


def test_the_list_is_filtered_and_paged(api: Api, finished: int, parked: int) -> None:
    """Newest first; a cursor goes on where the page ended; conditions hold together."""
    listed = api.get("/runs?limit=1").json
    seen = [item["run"] for item in listed["items"]]
    while listed["next_cursor"]:
        listed = api.get(f"/runs?limit=1&cursor={listed['next_cursor']}").json
        seen += [item["run"] for item in listed["items"]]
    assert seen == sorted(seen, reverse=True)
    assert {finished, parked} <= set(seen)
    assert [item["run"] for item in api.get("/runs?label=team:x&status=completed").json["items"]] == [finished]
    assert api.get("/runs?label=team:x&status=failed,parked").json == {"items": [], "next_cursor": None}
    assert api.get("/runs?label=team:x&until=2000-01-01T00:00:00Z").json["items"] == []
    summary = api.get("/runs?label=team:x&since=1h&workflow=hello").json["items"][0]
    assert summary.keys() == {
        "run",
        "workflow",
        "status",
        "started_at",
        "ended_at",
        "duration_seconds",
        "steps",
        "labels",
        "first_failure",
    }
    failed = api.get("/runs?label=team:p").json["items"][0]["first_failure"]
    assert (failed["step"], failed["exit_code"]) == ("flaky", 3)


def test_jobs_have_keys_and_a_history(api: Api, parked: int) -> None:
    """The list has filters; one job has every attempt."""
    jobs = api.get(f"/runs/{parked}/jobs?status=pending_failed").json["items"]
    assert [(job["step"], job["key"]) for job in jobs] == [("flaky", parked * 2**32 + 1)]
    assert api.get(f"/runs/{parked}/jobs?step=after&scope=root").json["items"][0]["status"] == "blocked"
    job = api.get(f"/runs/{parked}/jobs/1").json
    assert job["key"] == parked * 2**32 + 1
    (attempt,) = job["history"]
    assert (attempt["attempt"], attempt["exit_code"], attempt["worker"]) == (1, 3, None)
    assert attempt["rule"]["text"]
    assert {"started_at", "ended_at", "wall_seconds", "cpu_seconds", "rss_bytes_max"} <= attempt.keys()
    assert api.get(f"/runs/{parked}/jobs/77").code == "no_such_job"


@pytest.mark.parametrize(
    ("asked", "status", "body", "where"),
    [
        ("", 200, b"0123456789", None),
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=4-2", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
def test_ranges_of_output(api: Api, finished: int, asked: str, status: int, body: bytes, where: str | None) -> None:
    """Bytes from a to b, from a on, or the last n; what means nothing is all of it."""
    headers = {"Range": asked} if asked else {}
    answer = api.get(f"/runs/{finished}/jobs/1/attempts/1/stdout", **headers)
    assert (answer.status, answer.body, answer.headers.get("content-range")) == (status, body, where)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_a_range_beyond_the_end_is_416(api: Api, finished: int) -> None:
    """It names the length."""
    for asked in ("bytes=10-", "bytes=-0"):
        answer = api.get(f"/runs/{finished}/jobs/1/attempts/1/stdout", Range=asked)
        assert (answer.status, answer.headers["content-range"]) == (416, "bytes */10")
    assert api.get(f"/runs/{finished}/jobs/1/attempts/1/stderr").body == b"oops\n"
    assert api.get(f"/runs/{finished}/jobs/1/attempts/2/stdout").code == "no_such_attempt"
    assert api.get(f"/runs/{finished}/jobs/9/attempts/1/stdout").code == "no_such_job"


def test_a_large_output_comes_whole(api: Api) -> None:
    """More than one piece."""
    run = api.finish("resile: 1\nsteps: {a: {shell: 'head -c 3000000 /dev/zero | tr \"\\\\0\" x'}}")
    path = f"/runs/{run}/jobs/1/attempts/1/stdout"
    assert api.get(path).body == b"x" * 3_000_000
    assert api.get(path, Range="bytes=1000000-2999998").body == b"x" * 1_999_999


def test_output_is_followed_until_the_attempt_ends(api: Api, tmp_path: Path) -> None:
    """What is written while the reader waits comes at once."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = api.start(flows.WAITS, inputs={"gate": str(gate)})
    api.wait_for(run, "attempt_started")
    with api.open("GET", f"{API}/runs/{run}/jobs/1/attempts/1/stdout?follow=true") as response:
        assert response.readline() == b"begun\n"
        assert api.get(f"/runs/{run}/jobs/1/attempts/1/stdout", Range="bytes=0-2").body == b"beg"
        gate.write_text("go\n")
        assert response.readline() == b"went\n"
        assert response.read() == b""


def test_events_are_listed_oldest_first(api: Api, finished: int) -> None:
    """By pages, after a seq, of some types."""
    page = api.get(f"/runs/{finished}/events?limit=3").json
    seen = [event["seq"] for event in page["items"]]
    while page["next_cursor"]:
        page = api.get(f"/runs/{finished}/events?limit=3&cursor={page['next_cursor']}").json
        seen += [event["seq"] for event in page["items"]]
    assert seen == sorted(set(seen))
    assert api.get(f"/runs/{finished}/events?after={seen[-2]}").json["items"][0]["seq"] == seen[-1]
    for path in ("events", "events/stream"):
        assert api.get(f"/runs/{finished}/{path}?type=step_complete").code == "invalid_field"
    assert api.get(f"/runs/{finished}/events?type=call.done").json["items"][0]["type"] == "attempt_succeeded"
    ended = api.get(f"/runs/{finished}/events?type=step_completed&type=step_failed").json["items"]
    assert {event["type"] for event in ended} == {"step_completed"}


def test_a_stream_of_events_is_resumed(api: Api, finished: int) -> None:
    """After `Last-Event-ID`, which wins over `after`; an ended run ends its stream."""
    listed = api.get(f"/runs/{finished}/events?limit=1000").json["items"]
    streamed = list(api.events(f"/runs/{finished}/events/stream"))
    assert [event["data"] for event in streamed] == listed
    assert [(event["id"], event["event"]) for event in streamed] == [(str(e["seq"]), e["type"]) for e in listed]
    rest = list(api.events(f"/runs/{finished}/events/stream?after=1", Last_Event_ID=streamed[4]["id"]))
    assert rest == streamed[5:]
    assert list(api.events(f"/runs/{finished}/events/stream?after={streamed[-2]['id']}")) == streamed[-1:]
    assert api.get(f"/runs/{finished}/events/stream", Last_Event_ID="x").code == "invalid_field"


def test_one_stream_tells_of_all_runs(api: Api) -> None:
    """Starts and ends, at positions of the store that rise over all runs; resumed after one of them."""
    stream = api.events("/events/stream?after=0")
    first, second = api.finish(flows.HELLO), api.finish(flows.FAILS)
    seen: list[dict[str, object]] = []
    while not any(event["data"]["run"] == second and event["data"]["status"] == "failed" for event in seen[-1:]):
        seen.append(next(stream))
    stream.close()
    positions = [int(str(event["id"])) for event in seen]
    assert positions == sorted(set(positions))
    assert {first, second} <= {event["data"]["run"] for event in seen}
    again = api.events(f"/events/stream?after={positions[-2]}")
    assert next(again) == seen[-1]
    again.close()


def test_the_other_views_are_those_of_the_verbs(api: Api, shared_server: Server, parked: int) -> None:
    """explain and metrics print the same with --json."""
    import msgspec

    for verb in ("explain", "metrics"):
        printed = msgspec.json.decode(shared_server.resile(verb, str(parked), "--json"))
        assert api.get(f"/runs/{parked}/{verb}").json == printed
    assert api.get(f"/runs/{parked}/explain?step=flaky").json["steps"][0]["step"] == "flaky"
    assert api.get(f"/runs/{parked}/explain?step=nope").code == "no_such_step"
    graph = api.get(f"/runs/{parked}/graph").json
    assert {"id": "flaky", "status": "pending_failed"} in graph["nodes"]
    assert {"from": "flaky", "to": "after", "kind": "needs"} in graph["edges"]


def test_parked_failures_are_listed_by_run_and_by_signature(api: Api, parked: int) -> None:
    """The objects of `resile parked --json`; over all runs each with its run."""
    (failure,) = api.get(f"/runs/{parked}/failures").json["items"]
    assert (failure["step"], failure["exit_code"], failure["stderr"]) == ("flaky", 3, "broken\n")
    groups = api.get("/failures").json["items"]
    mine = [group for group in groups if parked in [found["run"] for found in group["failures"]]]
    assert len(mine) == 1
    assert mine[0]["count"] >= 1
    assert mine[0]["signature"]


def test_secrets_do_not_leave(api: Api, tmp_path: Path) -> None:
    """Not in output, events, the document or the explanation."""
    (tmp_path / "key").write_text("hunter2hunter2")
    text = f"resile: 1\nsecrets: {{KEY: {{file: {tmp_path}/key}}}}\nsteps: {{a: {{shell: 'echo got $KEY; exit 1'}}}}"
    run = api.finish(text)
    for path in ("", "/events?limit=1000", "/explain", "/jobs/1/attempts/1/stdout", "/jobs/1", "/metrics"):
        assert b"hunter2" not in api.get(f"/runs/{run}{path}").body, path
    assert b"got ***" in api.get(f"/runs/{run}/jobs/1/attempts/1/stdout").body
