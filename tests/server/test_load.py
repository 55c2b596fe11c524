"""A server under load: many clients that behave badly, servers that die, clients that race.

The times and counts are small; RESILE_LOAD_SECONDS, RESILE_LOAD_KILL_SECONDS, RESILE_LOAD_RUNS and RESILE_LOAD_RACES
make them larger.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from math import ceil
from pathlib import Path
from threading import Barrier

import pytest

from tests.cluster import Cluster, private_cluster

from . import flows
from .crowd import ANSWER_SECONDS_MAX, Crowd
from .service import Api, Server

pytestmark = pytest.mark.slow

LOAD_SECONDS = float(os.environ.get("RESILE_LOAD_SECONDS", "15"))
KILL_SECONDS = float(os.environ.get("RESILE_LOAD_KILL_SECONDS", "20"))
KILL_EVERY_SECONDS = 3.0
RUNS = int(os.environ.get("RESILE_LOAD_RUNS", "40"))
RACES = int(os.environ.get("RESILE_LOAD_RACES", "50"))
END_SECONDS_MAX = 120.0
GROWTH_BYTES_MAX = 64 * 1024 * 1024


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _statuses(api: Api) -> Counter[str]:
    """How many runs have which status."""
    found: Counter[str] = Counter()
    cursor = ""
    while True:
        page = api.get(f"/runs?limit=1000{cursor}").json
        found.update(one["status"] for one in page["items"])
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


def _wait_for_all(api: Callable[[], Api], runs: int) -> Counter[str]:
    """Wait until all runs have ended; how."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while True:
        found = _statuses(api())
        if sum(found.values()) == runs and not found.keys() & {"running", "parked", "pending"}:
            return found
        assert time.monotonic() < deadline, found
        api().call("GET", "/healthz")


def test_bad_clients_disturb_neither_the_server_nor_its_runs(serve: Callable[..., Server]) -> None:
    """No answer is the server's fault, memory does not grow, and every run that was accepted ends."""
    server = serve()
    first = server.api.finish(flows.HELLO)
    warm = Crowd(server.port, first, LOAD_SECONDS / 3)
    asyncio.run(warm.work())
    before = _rss_bytes(server.process.pid)
    crowd = Crowd(server.port, first, LOAD_SECONDS)
    asyncio.run(crowd.work())
    assert not [status for status in crowd.statuses | warm.statuses if status >= 500], crowd.statuses
    assert min(crowd.done[kind] for kind in ("read", "read_slowly", "half_open", "oversize", "malformed")) > 0
    accepted = 1 + warm.statuses[201] + crowd.statuses[201]
    assert _wait_for_all(lambda: server.api, accepted) == {"completed": accepted}
    assert _rss_bytes(server.process.pid) - before < GROWTH_BYTES_MAX
    assert "Traceback" not in server.log()
    assert server.stop() == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL for these tests."""
    with private_cluster() as made:
        yield made


EFFECTS = """
resile: 1
name: effects
inputs: {file: {type: text, required: true}}
steps:
  a: {shell: 'echo "$RESILE_WORKFLOW_ID a $RESILE_ATTEMPT_ID" >> "$FILE"', env: {FILE: "${inputs.file}"}}
  b:
    shell: sleep 0.5; echo "$RESILE_WORKFLOW_ID b $RESILE_ATTEMPT_ID" >> "$FILE"
    env: {FILE: "${inputs.file}"}
    needs: [a]
"""


def test_servers_that_are_killed_lose_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Each attempt has its effect once, or is lost and answered by another; every run ends, and the tables agree."""
    effects = tmp_path / "effects"
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()

    def start(number: int) -> Server:
        return Server(folders[number], db=cluster.url("load"))

    servers = [start(0), start(1)]
    try:
        begin = time.monotonic()
        submitted, turns = 0, count(1)
        while submitted < RUNS or time.monotonic() < begin + KILL_SECONDS:
            killed = next(turns) % 2
            pause_until = time.monotonic() + KILL_EVERY_SECONDS
            # So many in each turn that steps run whenever a server is killed.
            for number in range(submitted, min(RUNS, submitted + ceil(RUNS * KILL_EVERY_SECONDS / KILL_SECONDS))):
                assert servers[number % 2].api.start(EFFECTS, inputs={"file": str(effects)}) == number + 1
                submitted = number + 1
            while time.monotonic() < pause_until:
                assert servers[1 - killed].api.get("/runs?limit=10").status == 200
            servers[killed].process.kill()
            servers[killed].close()
            servers[killed] = start(killed)
        assert _wait_for_all(lambda: servers[0].api, RUNS) == {"completed": RUNS}
        _judge_effects(servers[0], effects.read_text().splitlines())
        servers[0].resile("db", "check")
    finally:
        for server in servers:
            server.close()


def _judge_effects(server: Server, lines: list[str]) -> None:
    """Every effect is of one attempt; a job with several has lost all but the last."""
    assert {line: times for line, times in Counter(lines).items() if times > 1} == {}
    told: set[str] = set()
    for run in range(1, RUNS + 1):
        for number, name in ((1, "a"), (2, "b")):
            history = server.api.get(f"/runs/{run}/jobs/{number}").json["history"]
            told |= {f"{run} {name} {one['attempt']}" for one in history}
            last = history[-1]
            assert last["exit_code"] == 0
            assert f"{run} {name} {last['attempt']}" in lines
            assert all(one["exit_code"] is None for one in history[:-1]), history
    assert set(lines) <= told


def test_of_two_that_race_for_a_retry_one_wins(serve: Callable[..., Server]) -> None:
    """Every time: the other learns that no retry is left."""
    server = serve()
    text = flows.FAILS
    run = server.api.finish(text)
    key = run * 2**32 + 1
    barrier = Barrier(2)

    def retry(limit: int) -> int:
        """Ask at the same time as the other."""
        barrier.wait(ANSWER_SECONDS_MAX)
        return server.api.post(f"/jobs/{key}/retry/1?max_retries={limit}").status

    with ThreadPoolExecutor(2) as pool:
        for attempts in range(1, RACES + 1):
            assert sorted(pool.map(retry, (attempts + 1,) * 2)) == [200, 422]
            _wait_until_failed(server.api, run, attempts + 1)
    assert len(server.api.get(f"/runs/{run}/jobs/1").json["history"]) == RACES + 1


def _wait_until_failed(api: Api, run: int, attempts: int) -> None:
    """Wait until a run has ended again, after so many attempts of its first job."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while True:
        document = api.get(f"/runs/{run}").json
        if document["status"] == "failed" and document["jobs"][0]["attempts"] == attempts:
            return
        assert time.monotonic() < deadline, document
