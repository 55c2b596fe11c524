"""`explain` goes through child workflows and items, down to the cause, and says why something did not run."""

from __future__ import annotations

from tests.explain.explain_fixture import ExplainFlows, lines
from tests.runs.fanout.runs import mapped


def test_children_two_levels_deep(flows: ExplainFlows) -> None:
    """A parent's failure is its child's, whose failure is its own child's, down to the command that broke."""
    flows.file(
        "leaf.yaml", "resile: 1\nname: leaf\nsteps:\n- {id: gcc, shell: ./step gcc 9 2}\n- {id: link, shell: echo}\n"
    )
    flows.file(
        "mid.yaml", "resile: 1\nname: mid\nsteps:\n- {id: build, workflow: leaf.yaml}\n- {id: pack, shell: echo}\n"
    )
    text = flows.run_and_explain(
        """
        name: parent
        steps:
        - {id: release, workflow: mid.yaml, retry: {max: 1}}
        - {id: announce, shell: ./step announce}
        """,
        1,
    )
    child = """\
            release/build (mid.yaml:4:8) failed
              attempt 1: its workflow leaf failed: gcc failed: exit code 2: gcc is broken
                release/build/gcc (leaf.yaml:4:8) failed
                  attempt 1: exit code 2: gcc is broken
                    then      the step has no rule, so the failure stands
                  canceled because of it: link
                then      the step has no rule, so the failure stands
              canceled because of it: pack
"""
    assert text == lines(f"""
        run 1 parent failed: release failed

        release (flow.yaml:4:8) failed after 2 attempts
          attempt 1: its workflow mid failed: build failed: gcc failed: exit code 2: gcc is broken
{child}            answers   flow.yaml:4:37 retry 1
            then      attempt 2
          attempt 2: its workflow mid failed: build failed: gcc failed: exit code 2: gcc is broken
{child}            spent     flow.yaml:4:37 retry 1 (1 of 1)
            then      no rule is left, so the failure stands
          canceled because of it: announce
    """)
    assert flows.explain("release/build/gcc").splitlines()[2:9] == [
        "release (flow.yaml:4:8) failed after 2 attempts",
        "  attempt 1: its workflow mid failed: build failed: gcc failed: exit code 2: gcc is broken",
        "    release/build (mid.yaml:4:8) failed",
        "      attempt 1: its workflow leaf failed: gcc failed: exit code 2: gcc is broken",
        "        release/build/gcc (leaf.yaml:4:8) failed",
        "          attempt 1: exit code 2: gcc is broken",
        "            stderr",
    ]


def test_a_child_that_gets_back_up(flows: ExplainFlows) -> None:
    """What failed inside a child that passed is reported inside the step that ran it."""
    flows.file("child.yaml", "resile: 1\nname: child\nsteps:\n- {id: fetch, shell: ./step fetch 1, retry: {max: 1}}\n")
    text = flows.run_and_explain("name: parent\nsteps:\n- {id: call, workflow: child.yaml}\n")
    assert text == lines("""
        run 1 parent completed, although 1 attempt failed

        call (flow.yaml:4:8) completed
          attempt 1: passed
            call/fetch (child.yaml:4:8) passed at attempt 2
              attempt 1: exit code 1: fetch is broken
                answers   child.yaml:4:38 retry 1
                then      attempt 2
              attempt 2: passed
    """)


def test_dead_letters(flows: ExplainFlows) -> None:
    """Items that failed alike are one group with the first of them in full; another is shown when asked for."""
    odd = "test $((${item} % 2)) = 0 || { echo no ${item} >&2; exit 4; }"
    text = flows.run_and_explain("resile: 1\n" + mapped("{}", odd, "[1, 2, 3, 4, 5]"))
    assert text == lines("""
        run 1 mapped completed, although 3 attempts failed

        process (flow.yaml:4:3) completed
          attempt 1: passed, 3 of 5 items failed
            3 items are dead letters: work: exit code 4: no 1
              process[0]/work (flow.yaml:9:14) failed
                attempt 1: exit code 4: no 1
                  then      the step has no rule, so the failure stands
              `resile explain 1 'process[2]'` shows another
    """)
    last = """
        run 1 mapped completed, although 3 attempts failed

        process (flow.yaml:4:3) completed
          attempt 1: passed, 3 of 5 items failed
            process[4] is a dead letter: work: exit code 4: no 1
              process[4]/work (flow.yaml:9:14) failed
                attempt 1: exit code 4: no 5
                  stderr
                  | no 5
                  then      the step has no rule, so the failure stands
    """
    assert flows.explain("process[4]") == lines(last)
    assert flows.explain("process[4]/work") == lines(last)
    passed = flows.explain("process[1]").splitlines()[4:]
    work = "      process[1]/work (flow.yaml:9:14) completed"
    assert passed == ["    process[1] passed", work, "        attempt 1: passed"]


def test_items_that_run_again(flows: ExplainFlows) -> None:
    """Each execution of an item is reported, and what followed from it."""
    policy = "{on_item_failure: retry, retry_config: {max_attempts: 2, backoff: 10ms}}"
    text = flows.run_and_explain("resile: 1\n" + mapped(policy, "./step ${item} ${item}", "[0, 1, 2]"))
    broken = """\
                process[{0}]/work (flow.yaml:9:14) failed
                  attempt 1: exit code 1: {1} is broken
                    then      the step has no rule, so the failure stands
"""
    assert text == lines(f"""
        run 1 mapped completed, although 3 attempts failed

        process (flow.yaml:4:3) completed
          attempt 1: passed, 1 of 3 items failed
            process[1] passed in the end: work: exit code 1: 1 is broken
              process[1], execution 1
{broken.format(1, 1)}                then      execution 2 after 0.01 s
              process[1], execution 2: passed
            process[2] is a dead letter: work: exit code 1: 2 is broken
              process[2], execution 1
{broken.format(2, 2)}                then      execution 2 after 0.01 s
              process[2], execution 2
{broken.format(2, 2)}                then      kept as a dead letter
    """)


def test_a_map_that_stops(flows: ExplainFlows) -> None:
    """The map's own failure says why, and what never started is kept apart from what failed."""
    text = flows.run_and_explain("resile: 1\n" + mapped("{on_item_failure: stop}", "./step ${item} 9"), 1)
    assert text == lines("""
        run 1 mapped failed: process failed

        process (flow.yaml:4:3) failed
          attempt 1: stopped at the first failed item (of 5)
            4 items are dead letters: it never started
              `resile explain 1 'process[2]'` shows another
            process[0] is a dead letter: work: exit code 1: a is broken
              process[0]/work (flow.yaml:9:14) failed
                attempt 1: exit code 1: a is broken
                  then      the step has no rule, so the failure stands
            then      the step has no rule, so the failure stands
          canceled because of it: after
    """)
    assert flows.explain("process[3]").splitlines()[4:] == [
        "    process[3] is a dead letter: it never started",
        "    then      the step has no rule, so the failure stands",
    ]


def test_items_that_are_left_out_and_a_time_that_is_up(flows: ExplainFlows) -> None:
    """An item that its policy skips, and one that took too long, with what was running then."""
    text = flows.run_and_explain("resile: 1\n" + mapped("{on_item_failure: skip}", "./step ${item} 9", "[a]"))
    assert "    process[0] is left out: work: exit code 1: a is broken\n" in text
    slow = mapped("{}", "exec sleep 30", "[a]").replace("    map:\n", "    map:\n      timeout_per_agent: 100ms\n")
    flows.run(f"resile: 1\n{slow}")
    assert flows.explain(run=2) == lines("""
        run 2 mapped completed, although 1 attempt failed

        process (flow.yaml:4:3) completed
          attempt 1: passed, 1 of 1 items failed
            process[0] is a dead letter: work: the item timed out after 0.1s
              process[0]/work (flow.yaml:10:14) was ended while it ran
                attempt 1: ended on request
                  then      no rule is asked: process[0] ran out of time
    """)


def test_a_map_inside_a_map(flows: ExplainFlows) -> None:
    """An item of an inner map is reported inside the item around it."""
    text = flows.run_and_explain(
        """
        name: nested
        steps:
          outer:
            map:
              input: [a, b]
              steps:
              - id: inner
                map: {input: [x, y], steps: [{id: work, shell: 'test ${item} != y || exit 3'}],
                      error_policy: {continue_on_failure: true}}
        """
    )
    assert text == lines("""
        run 1 nested completed, although 2 attempts failed

        outer (flow.yaml:4:3) completed
          attempt 1: passed
            2 items passed in the end: inner: 1 of 2 items failed
              outer[0]/inner (flow.yaml:8:13) completed
                attempt 1: passed, 1 of 2 items failed
                  outer[0]/inner[1] is a dead letter: work: exit code 3
                    outer[0]/inner[1]/work (flow.yaml:9:43) failed
                      attempt 1: exit code 3
                        then      the step has no rule, so the failure stands
              `resile explain 1 'outer[1]'` shows another
    """)
    inner = flows.explain("outer[1]/inner[1]").splitlines()
    assert inner[4:6] == [
        "    outer[1] passed in the end: inner: 1 of 2 items failed",
        "      outer[1]/inner (flow.yaml:8:13) completed",
    ]


def test_why_a_step_did_not_run(flows: ExplainFlows) -> None:
    """The chain from a step that was canceled, or skipped, to the one where it began, and that one's report."""
    flows.run(
        "name: chain\nsteps:\n  build: {shell: ./step build 9}\n  test: {shell: echo, needs: [build]}\n"
        "  ship: {shell: echo, needs: [test]}\n  maybe: {shell: echo, when: '${env.HOME_OF_NOBODY}'}\n"
        "  then: {shell: echo, needs: [maybe]}\n  last: {shell: echo, needs: [then]}\n",
        1,
    )
    assert flows.explain("ship") == lines("""
        run 1 chain failed: build failed

        ship (flow.yaml:6:3) was canceled before it ran
          because test was canceled before it ran
          because build failed

        build (flow.yaml:4:3) failed
          attempt 1: exit code 1: build is broken
            then      the step has no rule, so the failure stands
          canceled because of it: test, ship
    """)
    assert flows.explain("last").splitlines()[2:] == [
        "last (flow.yaml:9:3) was skipped",
        "  because then was skipped",
        "  because maybe was skipped",
        "",
        "maybe (flow.yaml:7:3) was skipped: `when` is false: ${env.HOME_OF_NOBODY} (flow.yaml:7:30)",
        "  skipped because of it: then, last",
    ]


def test_steps_that_nothing_led_to(flows: ExplainFlows) -> None:
    """A step without an arc to it, and one that only runs when it is called for."""
    flows.run(
        "name: arcs\nsteps:\n  pick: {shell: echo, next: [{step: left}, {step: right, when: false}]}\n"
        "  left: {shell: echo}\n  right: {shell: echo}\n  fixed: {shell: echo, on_failure: {run: [fix]}}\n"
        "  fix: {shell: echo}\n"
    )
    reason = "no arc was taken to it; arcs lead there from pick"
    assert flows.explain().splitlines() == [
        "run 1 arcs completed: nothing failed",
        "",
        f"right (flow.yaml:6:3) was skipped: {reason}",
    ]
    fix = "fix (flow.yaml:8:3) did not run: it only runs when it is called for, and nothing called for it"
    assert flows.explain("fix").splitlines()[2:] == [fix]


def test_a_critical_step_takes_others_along(flows: ExplainFlows) -> None:
    """What it kept from starting and what it ended are reported as its doing."""
    program = flows.program
    program.write(
        "resile: 1\nname: critical\nmax_parallel: 2\nsteps:\n"
        "  first: {shell: 'read line < up; ./step first 9', critical: true}\n"
        "  slow: {shell: 'echo > up; exec sleep 30', grace: 1s}\n  later: {shell: ./step later, needs: [slow]}\n"
    )
    gate = program.gate("up")
    program.call("run", "flow.yaml", code=1)
    assert gate is not None
    assert flows.explain() == lines("""
        run 1 critical failed: first failed

        first (flow.yaml:5:3) failed
          attempt 1: exit code 1: first is broken
            then      the step has no rule, so the failure stands
          canceled because of it: later, slow

        slow (flow.yaml:6:3) was ended while it ran
          because first failed
          attempt 1: ended on request
            then      no rule is asked: first failed and stopped it
    """)


def test_a_circuit_and_a_redrive(flows: ExplainFlows) -> None:
    """That the circuit opened is reported, and what came of trying the dead letters again."""
    breaker = "{circuit_breaker: {failure_threshold: 2, timeout: 10ms, success_threshold: 1, half_open_requests: 1}}"
    flow = mapped(breaker, "./step x 2", "[a, b, c]").replace("    map:\n", "    map:\n      max_parallel: 1\n")
    text = flows.run_and_explain(f"resile: 1\n{flow}").splitlines()
    assert text[3:6] == [
        "  the circuit opened after 2 failures in a row",
        "  attempt 1: passed, 2 of 3 items failed",
        "    2 items are dead letters: work: exit code 1: x is broken",
    ]
    flows.program.call("dlq", "retry", "1", code=0)
    assert flows.explain().splitlines()[-1] == "  the dead letters were tried again: none left"


def test_a_redrive_inside_of_items(flows: ExplainFlows) -> None:
    """What came of dead letters inside an item, tried again, is reported below that item."""
    flows.run_and_explain(
        """
        name: nested
        steps:
          outer:
            map:
              input: [a]
              steps:
              - id: inner
                map: {input: [x, y], steps: [{id: work, shell: 'test -e fixed || test ${item} != y || exit 3'}],
                      error_policy: {continue_on_failure: true}}
        """
    )
    (flows.folder / "fixed").touch()
    flows.program.call("dlq", "retry", "1", code=0)
    assert flows.explain().splitlines()[-3:] == [
        "  outer[0] passed in the end: inner: the dead letters were tried again: none left",
        "    outer[0]/inner (flow.yaml:8:13) completed",
        "      the dead letters were tried again: none left",
    ]
