"""Rows of the routing cases that are about processes, fan-outs and the environment: B55 to B61, B75."""

from __future__ import annotations

import os

from tests.runs.ladder.flows import Flows


def test_b55_a_timeout_is_retried_and_takes_the_whole_group_along(flows: Flows) -> None:
    """Three attempts time out, and nothing that they started is left."""
    shell = "echo a >> trace; sleep 60 & echo $! >> pids; wait"
    ran = flows.run(f"steps: {{a: {{shell: '{shell}', timeout: 300ms, grace: 1s, retry: 2}}}}", 1)
    assert ran.order == ["a", "a", "a"]
    assert ran.document["first_failure"]["kind"] == "timeout"
    pids = [int(line) for line in (flows.folder / "pids").read_text().split()]
    assert len(pids) == 3
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_b56_two_megabytes_of_output_are_kept_and_shortened_in_the_record(flows: Flows) -> None:
    """All of it is in the log; the failure's record has the end of it."""
    shell = "head -c 2000000 /dev/zero | tr '\\\\0' x; exit 3"
    ran = flows.run(f'steps: {{a: {{shell: "{shell}"}}}}', 1)
    assert len(flows.program.call("logs", "1", "a", "--attempt", "1", "--stdout", code=0).stdout) == 2_000_000
    assert len(ran.document["first_failure"]["message"]) <= 1_000


def test_b57_a_step_that_kills_itself_is_told_by_its_signal(flows: Flows) -> None:
    """128 + 9 as the exit code, and the signal's name in the message."""
    failure = flows.run("steps: {a: {shell: kill -9 $$}}", 1).document["first_failure"]
    assert (failure["kind"], failure["exit_code"]) == ("signal", 137)
    assert "SIGKILL" in failure["message"]


def test_b58_another_branch_finishes_its_retries(flows: Flows) -> None:
    """A failure does not cut off the re-attempts of a step beside it."""
    ran = flows.run("steps: {a: {shell: ./step a 9}, b: {shell: ./step b 2, retry: 3}}", 1)
    assert sorted(ran.order) == ["a", "b", "b", "b"]
    assert ran.status["b"] == "completed"


def test_b60_items_run_side_by_side_within_the_limit(flows: Flows) -> None:
    """Each pair of items waits for the other, which only ends where two run at a time; never are there three."""
    wait = (
        "touch on-${item}; until test $(ls on-* | wc -l) -ge 2 || test -e met; do sleep 0.02; done; touch met; "
        "ls on-* | wc -l >> seen; rm on-${item}; sleep 0.05"
    )
    steps = "list: {shell: 'echo [1, 2, 3, 4]', foreach: true, max_parallel: 2}"
    ran = flows.run(f"steps:\n  {steps}\n  work: {{shell: '{wait}', needs: [list]}}\n", 0, "--max-parallel", "4")
    assert ran.document["maps"]["work"]["successful"] == 4
    assert max(int(line) for line in (flows.folder / "seen").read_text().split()) <= 2


def test_b61_only_the_item_that_failed_runs_again(flows: Flows) -> None:
    """b fails twice and passes; a and c run once."""
    ran = flows.run(
        """
steps:
  list: {shell: "printf '%s' '[\\"a\\", \\"b\\", \\"c\\"]'", foreach: true}
  work:
    shell: if test ${item} = b; then ./step b 2; else ./step ${item}; fi
    needs: [list]
    retry: 4
"""
    )
    assert ran.order == ["a", "b", "b", "b", "c"]


def test_b75_both_environments_are_exported(flows: Flows) -> None:
    """The workflow's and the step's, to the step's processes."""
    flows.run("env: {G: global}\nsteps: {a: {shell: 'sh -c \"echo $G $S\" > said', env: {S: own}}}")
    assert (flows.folder / "said").read_text() == "global own\n"
