"""The circuit breaker of a map, sentence by sentence, with real items and a real clock."""

from __future__ import annotations

import signal

from tests.runs.fanout.runs import counts, letters, mapped, types
from tests.runs.ladder.flows import Flows

CIRCUIT = ("circuit_opened", "circuit_half_opened", "circuit_closed")
# The service is down for the first so many calls.
SERVICE = "./step call 3 && ./step ${item}"


def breaker(**keys: object) -> str:
    """A policy with a circuit breaker."""
    settings = {"failure_threshold": 3, "success_threshold": 2, "timeout": "100ms", "half_open_requests": 2} | keys
    return "{circuit_breaker: {" + ", ".join(f"{key}: {value}" for key, value in settings.items()) + "}}"


def test_closed_all_items_are_processed_normally(flows: Flows) -> None:
    """Failures that are not in a row never open the circuit."""
    ran = flows.run(mapped(breaker(failure_threshold=2), "case ${item} in b|d) exit 1;; *) ./step ${item};; esac"))
    assert types(ran, *CIRCUIT) == []
    assert counts(ran) == (5, 3, 2, 0, 0)
    assert ran.document["maps"]["process"]["circuit"] == "closed"


def test_closed_to_open_after_failure_threshold_consecutive_failures(flows: Flows) -> None:
    """The third failure in a row opens it; after the timeout tests pass and it closes; held items were not burnt."""
    ran = flows.run(mapped(breaker(), SERVICE, "[a, b, c, d, e, f]"))
    assert types(ran, *CIRCUIT) == ["circuit_opened", "circuit_half_opened", "circuit_closed"]
    assert [event["data"]["failures"] for event in ran.of("circuit_opened")] == [3]
    assert [event["data"]["successes"] for event in ran.of("circuit_closed")] == [2]
    assert [name for name in ran.order if name != "call"] == ["d", "e", "f", "after"]
    assert counts(ran) == (6, 3, 3, 0, 0)
    assert letters(flows) == [(f"process[{index}]", "failed", 1) for index in range(3)]


def test_open_nothing_starts_until_the_timeout_expires(flows: Flows) -> None:
    """Between the opening and the half-opening no item starts, and that takes the whole timeout."""
    ran = flows.run(mapped(breaker(timeout="300ms"), SERVICE, "[a, b, c, d, e, f]"))
    kinds = [event["type"] for event in ran.events if event["type"] in (*CIRCUIT, "step_started")]
    place = kinds.index("circuit_opened")
    assert kinds[place + 1] == "circuit_half_opened"
    opened, half = ran.of("circuit_opened")[0], ran.of("circuit_half_opened")[0]
    assert half["at"] >= opened["at"]
    assert ran.document["duration_seconds"] >= 0.3


def test_half_open_any_failed_test_opens_it_again(flows: Flows) -> None:
    """The service needs five calls: the first test fails, the circuit opens again and resets its time."""
    ran = flows.run(mapped(breaker(timeout="50ms"), "./step call 4 && ./step ${item}", "[a, b, c, d, e, f]"))
    assert types(ran, *CIRCUIT) == [
        "circuit_opened", "circuit_half_opened", "circuit_opened", "circuit_half_opened", "circuit_closed"
    ]  # fmt: skip
    assert counts(ran) == (6, 2, 4, 0, 0)


def test_half_open_only_so_many_items_test_it(flows: Flows) -> None:
    """With two tests allowed and room for four, two items start; the others wait until those have passed."""
    work = "case ${item} in a|b|c|d) exit 1;; esac; echo ${item} >> started; read line < gate"
    text = mapped(breaker(failure_threshold=1), work, "[a, b, c, d, e, f, g]").replace(
        "input:", "max_parallel: 4\n      input:"
    )
    flows.program.write(f"resile: 1\n{text}")
    gate = flows.program.gate("gate")
    with flows.program.start("run", "flow.yaml", "--max-parallel", "4") as run:
        run.until("err", "circuit opened after 1 failure in a row")
        run.until("err", "circuit half-open")
        run.until("err", "process[5]/work started")
        assert "process[6]/work started" not in run.text["err"]
        gate.open(7)
        assert run.end() == 0
    said = run.text["err"]
    assert said.index("circuit closed, 2 tests passed") < said.index("process[6]/work started")
    assert sorted((flows.folder / "started").read_text().split()) == ["e", "f", "g"]


def test_retried_items_wait_while_the_circuit_is_open(flows: Flows) -> None:
    """A failed execution counts for the breaker; its retry waits for the circuit and then passes."""
    policy = (
        "{on_item_failure: retry, retry_config: {max_attempts: 3, backoff: 1ms}, circuit_breaker: "
        "{failure_threshold: 2, success_threshold: 1, timeout: 100ms, half_open_requests: 1}}"
    )
    ran = flows.run(mapped(policy, "./step call 2 && ./step ${item}", "[a, b, c]"))
    assert types(ran, *CIRCUIT) == ["circuit_opened", "circuit_half_opened", "circuit_closed"]
    assert counts(ran) == (3, 3, 0, 0, 0)
    assert letters(flows) == []


def test_circuit_events_have_the_names_of_the_page_as_aliases(flows: Flows) -> None:
    """`events ls` finds them by the names that other systems use."""
    flows.run(mapped(breaker(), SERVICE, "[a, b, c, d, e, f]"))
    lines = flows.program.call("events", "ls", "1", "--type", "CircuitOpen", "--type", "CircuitClosed", code=0).stdout
    assert [line.split()[2] for line in lines.splitlines()] == ["circuit_opened", "circuit_closed"]


def test_an_open_circuit_survives_a_crash_and_is_visible_in_status(flows: Flows) -> None:
    """Killed while it is open, the run shows it, and goes on from there when it is resumed."""
    flows.program.write("resile: 1\n" + mapped(breaker(timeout="2s"), SERVICE, "[a, b, c, d, e, f]"))
    with flows.program.start("run", "flow.yaml", "--max-parallel", "1") as run:
        run.until("err", "circuit opened after 3 failures in a row")
        run.send(signal.SIGKILL)
        run.end()
    status = flows.program.json("status", "1")
    assert (status["status"], status["maps"]["process"]["circuit"]) == ("interrupted", "open")
    shown = flows.program.call("status", "1", code=0).stdout
    assert "process: 0 of 6 items succeeded, 3 failed, 0 skipped, 3 held; 3 dead letters; circuit open" in shown
    document = flows.program.json("resume", "1")
    numbers = document["maps"]["process"]
    assert (numbers["successful"], numbers["failed"], numbers["circuit"]) == (3, 3, "closed")


def test_a_canceled_run_keeps_what_an_open_circuit_held(flows: Flows) -> None:
    """Held items end in the dead letters, for redrive, under the reason that held them."""
    flows.program.write("resile: 1\n" + mapped(breaker(timeout="1h"), "exit 1", "[a, b, c, d, e, f]"))
    with flows.program.start("run", "flow.yaml", "--max-parallel", "1") as run:
        run.until("err", "circuit opened after 3 failures in a row")
        flows.program.call("cancel", "1", code=0)
        assert run.end() == 3
    assert [reason for _, reason, _ in letters(flows)] == ["failed"] * 3 + ["circuit_open"] * 3
