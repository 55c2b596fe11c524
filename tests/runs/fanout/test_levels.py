"""Command level and workflow level together: handlers inside items, policies around them."""

from __future__ import annotations

from tests.runs.fanout.runs import counts, letters, reported, types, waits
from tests.runs.ladder.flows import Flows


def test_a_handler_heals_one_item_without_stopping_the_others(flows: Flows) -> None:
    """The map of the whitepaper: a step that fails for one item, a handler below it, and the item is recovered."""
    text = (
        "mode: mapreduce\nagent: {command: ./agent}\nmap:\n  input: [a.py, b.py]\n  agent_template:\n    commands:\n"
        '    - claude: "/add-type-hints ${item}"\n    - shell: "test ${item} = a.py && ./step checked-${item}"\n'
        '    - on_failure:\n        claude: "/fix-type-errors ${item}"\n'
    )
    ran = flows.run(text)
    assert ran.order == [
        "agent: /add-type-hints a.py", "checked-a.py", "agent: /add-type-hints b.py", "agent: /fix-type-errors b.py"
    ]  # fmt: skip
    assert counts(ran, "map") == (2, 2, 0, 0, 0)
    assert types(ran, "step_recovered") == ["step_recovered"]


def test_a_failed_validation_inside_an_item_rolls_back(flows: Flows) -> None:
    """`validate` that fails is answered like any failure, for that item only."""
    text = (
        "mode: mapreduce\nmap:\n  input: [a, b]\n  steps:\n  - shell: ./step optimize-${item}\n"
        "  - validate: test ${item} = a\n    on_failure: ./step rollback-${item}\n"
    )
    ran = flows.run(text)
    assert ran.order == ["optimize-a", "optimize-b", "rollback-b"]
    assert counts(ran, "map") == (2, 2, 0, 0, 0)


def test_a_handler_that_fails_fails_its_item_only(flows: Flows) -> None:
    """The item is kept, under the step that failed; the run completes."""
    text = (
        "error_policy: {continue_on_failure: true}\nsteps:\n- id: process\n  map:\n    input: [a, b]\n    steps:\n"
        "    - {id: work, shell: 'test ${item} = a', on_failure: exit 3}\n"
    )
    ran = flows.run(text)
    assert counts(ran) == (2, 1, 1, 0, 0)
    assert letters(flows) == [("process[1]", "failed", 1)]
    assert flows.program.json("dlq", "show", "1", "process[1]")["failure_history"][0]["step_failed"] == "work"


def test_an_item_goes_on_after_a_step_that_tolerates_its_failure(flows: Flows) -> None:
    """`on_failure: true` means the same inside an item as anywhere."""
    text = (
        "name: x\nsteps:\n- id: process\n  map:\n    input: [a]\n    steps:\n"
        "    - {id: work, shell: exit 1, on_failure: true}\n    - {id: next, shell: ./step next}\n"
    )
    ran = flows.run(text)
    assert ran.order == ["next"]
    assert counts(ran) == (1, 1, 0, 0, 0)


def test_each_item_has_its_own_counters(flows: Flows) -> None:
    """Every item may be retried twice; what one uses up the next has again."""
    text = (
        "name: x\nsteps:\n- id: process\n  map:\n    input: [a, b, c]\n    steps:\n"
        "    - {id: work, shell: './step ${item} 2', retry: {max: 2}}\n"
    )
    ran = flows.run(text)
    assert ran.order == ["a", "a", "a", "b", "b", "b", "c", "c", "c"]
    assert counts(ran) == (3, 3, 0, 0, 0)


COMBINED = """\
mode: mapreduce
error_policy:
  on_item_failure: retry
  continue_on_failure: true
  max_failures: 50
  failure_threshold: 0.15
  retry_config:
    max_attempts: 3
    backoff: {type: exponential, initial: 20ms, multiplier: 2}
  circuit_breaker: {failure_threshold: 10, success_threshold: 3, timeout: 60s, half_open_requests: 5}
  error_collection:
    batched:
      size: 10
map:
  input: seq 1 30
  agent_template:
  - shell: 'test $(( ${item} % 10 )) -ne 0 || ./step item-${item} TIMES'
    on_failure:
      shell: ./step diagnose-${item}
      max_attempts: 2
"""


def test_combined_layers_heal_before_the_policy_is_asked(flows: Flows) -> None:
    """One failure: the handler and its re-run are enough, the item is never retried as a whole."""
    ran = flows.run(COMBINED.replace("TIMES", "1"))
    assert ran.order == [
        name for item in (10, 20, 30) for name in (f"item-{item}", f"diagnose-{item}", f"item-{item}")
    ]  # fmt: skip
    assert waits(ran) == []
    assert counts(ran, "map") == (30, 30, 0, 0, 0)


def test_combined_layers_retry_the_item_after_its_own_handler(flows: Flows) -> None:
    """Two executions inside an item fail, so the policy runs the item again after 20 ms, with new counters."""
    ran = flows.run(COMBINED.replace("TIMES", "3"))
    assert ran.order.count("item-10") == 4
    assert ran.order.count("diagnose-10") == 2
    assert waits(ran) == [("map[9]", 0.02), ("map[19]", 0.02), ("map[29]", 0.02)]
    assert counts(ran, "map") == (30, 30, 0, 0, 0)


def test_combined_layers_keep_what_nothing_helped_and_report_it_once(flows: Flows) -> None:
    """Three executions of two attempts each, then the dead letters: 3 of 30 is below the threshold."""
    ran = flows.run(COMBINED.replace("TIMES", "99"))
    assert ran.order.count("item-10") == 6
    assert sorted(wait for item, wait in waits(ran) if item == "map[9]") == [0.02, 0.04]
    assert letters(flows) == [(f"map[{index}]", "failed", 3) for index in (9, 19, 29)]
    assert [sorted(batch) for batch in reported(ran)] == [["map[19]", "map[29]", "map[9]"]]
    assert ran.document["maps"]["map"]["failure_rate"] == 0.1
