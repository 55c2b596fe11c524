"""`explain`: each failure, the rules it came to, which answered from which line, and what that led to."""

from __future__ import annotations

import re
import signal

from tests.explain.explain_fixture import ExplainFlows, lines


def test_nothing_failed(flows: ExplainFlows) -> None:
    """A run in which all went well is explained in one line."""
    assert (
        flows.run_and_explain("name: fine\nsteps:\n- {id: a, shell: ./step a}\n")
        == "run 1 fine completed: nothing failed\n"
    )


def test_a_plain_failure(flows: ExplainFlows) -> None:
    """A step without rules fails, with all that needs it, at any depth."""
    text = flows.run_and_explain(
        """
        name: plain
        steps:
          build: {shell: ./step build 1 3}
          test: {shell: ./step test, needs: [build]}
          ship: {shell: ./step ship, needs: [test]}
        """,
        1,
    )
    assert text == lines("""
        run 1 plain failed: build failed

        build (flow.yaml:4:3) failed
          attempt 1: exit code 3: build is broken
            then      the step has no rule, so the failure stands
          canceled because of it: test, ship
    """)


def test_a_retry_that_passes(flows: ExplainFlows) -> None:
    """The rule, its place, how much of it is used, its wait and the attempt that passed."""
    text = flows.run_and_explain(
        """
        name: retry
        steps:
        - id: fetch
          shell: ./step fetch 2 75
          retry: {max: 3, backoff: {type: exponential, initial: 10ms}}
        """
    )
    assert text == lines("""
        run 1 retry completed, although 2 attempts failed

        fetch (flow.yaml:4:7) passed at attempt 3
          attempt 1: exit code 75: fetch is broken
            answers   flow.yaml:6:3 retry 3 (1 of 3)
            then      attempt 2 after 0.01 s
          attempt 2: exit code 75: fetch is broken
            answers   flow.yaml:6:3 retry 3 (2 of 3)
            then      attempt 3 after 0.02 s
          attempt 3: passed
    """)


def test_handlers(flows: ExplainFlows) -> None:
    """One that recovers, one whose re-run passes, one whose output is taken, one that fails and is walked past."""
    text = flows.run_and_explain(
        """
        name: handlers
        steps:
        - {id: stand, shell: ./step stand 1, on_failure: ./step mend}
        - {id: again, shell: ./step again 1, on_failure: {shell: ./step mend, max_attempts: 2}}
        - {id: other, shell: ./step other 1, on_failure: {strategy: fallback, commands: [echo staging]}}
        - {id: loose, shell: ./step loose 1, on_failure: [./step mend, ./step worse 1 9, ./step never],
           fail_workflow: false}
        """
    )
    assert text == lines("""
        run 1 handlers completed, although 5 attempts failed

        stand (flow.yaml:4:8) recovered
          attempt 1: exit code 1: stand is broken
            answers   flow.yaml:4:38 on_failure: recovery
            repair    passed
            then      the repair stands for success

        again (flow.yaml:5:8) recovered at attempt 2
          attempt 1: exit code 1: again is broken
            answers   flow.yaml:5:71 on_failure: max_attempts 2
            repair    passed
            then      attempt 2
          attempt 2: passed

        other (flow.yaml:6:8) recovered
          attempt 1: exit code 1: other is broken
            answers   flow.yaml:6:51 on_failure: fallback
            repair    passed
            then      the output of the repair is the step's

        loose (flow.yaml:7:8) failed, tolerated
          attempt 1: exit code 1: loose is broken
            answers   flow.yaml:7:38 on_failure: recovery
            repair    failed: loose/on_failure-2 failed
              loose/on_failure-2 (flow.yaml:7:64) failed
                attempt 1: exit code 9: worse is broken
                  then      the step has no rule, so the failure stands
                canceled because of it: on_failure-3
            answers   flow.yaml:8:4 fail_workflow: false
            then      the failure is tolerated: what needs the step runs
    """)


def test_rules_by_exit_code(flows: ExplainFlows) -> None:
    """A rule that is spent is walked past, one that does not match says why, the next one answers."""
    text = flows.run_and_explain(
        """
        name: rules
        failure_handlers:
          solver:
            rules:
            - {exit_codes: [10, 11], recovery_script: ./step refine, max_retries: 1}
            - {exit_codes: [12], max_retries: 1}
            - {pattern: out of (disk|space), max_retries: 1}
            - {signals: [TERM], kinds: [signal], max_retries: 1}
        steps:
        - {id: solve, shell: ./step solve 3 10, failure_handler: solver, retry: {max: 1}}
        """,
        1,
    )
    past = """\
            spent     flow.yaml:6:7 failure_handler solver: exit_codes 10 11 (1 of 1)
            no match  flow.yaml:7:7 failure_handler solver: exit_codes 12: exit code 10, not 12
            no match  flow.yaml:8:7 failure_handler solver: pattern out of (disk|space): nothing that it printed matches
            no match  flow.yaml:9:7 failure_handler solver: signals 15, kinds signal: its kind is exit, not signal
"""
    assert text == lines(f"""
        run 1 rules failed: solve failed

        solve (flow.yaml:11:8) failed after 3 attempts
          attempt 1: exit code 10: solve is broken
            answers   flow.yaml:6:7 failure_handler solver: exit_codes 10 11
            repair    passed
            then      attempt 2
          attempt 2: exit code 10: solve is broken
{past}            answers   flow.yaml:11:66 retry 1
            then      attempt 3
          attempt 3: exit code 10: solve is broken
{past}            spent     flow.yaml:11:66 retry 1 (1 of 1)
            then      no rule is left, so the failure stands
    """)


def test_a_remedy_that_fails(flows: ExplainFlows) -> None:
    """It ends the climb, and its own failure stands below the rule that called for it."""
    text = flows.run_and_explain(
        """
        name: remedy
        steps:
        - {id: setup, shell: ./step setup}
        - {id: test, shell: ./step test 9, on_failure: {retry: {max: 2}, run: [fix], goto: setup}}
        - {id: fix, shell: ./step fix 1 7}
        """,
        1,
    )
    assert text == lines("""
        run 1 remedy failed: test and fix failed

        test (flow.yaml:5:8) failed
          attempt 1: exit code 1: test is broken
            answers   flow.yaml:5:49 retry 2 after run fix (1 of 2)
            repair    failed (fix): remediation step 'fix' failed
              fix (flow.yaml:6:8) failed
                attempt 1: exit code 7: fix is broken
                  then      the step has no rule, so the failure stands
            then      remediation step 'fix' failed, so the failure stands
    """)


def test_a_jump_and_the_end_of_its_budget(flows: ExplainFlows) -> None:
    """Each jump says how much of the budget it took, the last one that there is none left."""
    text = flows.run_and_explain(
        """
        name: jump
        routing: {max_loops: 1}
        steps:
        - {id: setup, shell: ./step setup}
        - {id: test, shell: ./step test 9, on_failure: {goto: setup}}
        - {id: ship, shell: ./step ship}
        """,
        1,
    )
    assert text == lines("""
        run 1 jump failed: Routing loop budget exceeded (max_loops=1) during on_failure goto

        test (flow.yaml:6:8) failed after 2 attempts
          attempt 1: exit code 1: test is broken
            answers   flow.yaml:6:49 goto setup
            then      back to setup, loop 1 of 1
          attempt 2: exit code 1: test is broken
            no budget flow.yaml:6:49 goto setup
            then      Routing loop budget exceeded (max_loops=1) during on_failure goto, so the failure stands
          canceled because of it: ship
    """)


def test_code_that_is_asked(flows: ExplainFlows) -> None:
    """An answer that may not be, an answer of nothing, and a `when` that is broken."""
    text = flows.run_and_explain(
        """
        ir: {condition_errors: skip}
        steps:
        - {id: a, shell: ./step a}
        - {id: b, shell: ./step b 1, on_failure: {goto_js: "return 'nowhere'", goto: a}}
        - {id: c, shell: ./step c, when: x.y}
        - {id: d, shell: ./step d 1, on_failure: {run_js: "[]"}}
        """,
        1,
    )
    text = re.sub(r"ReferenceError: x is not defined .*", "…", text)
    assert text == lines("""
        run 1 flow failed: d failed

        b (flow.yaml:5:8) passed at attempt 2
          attempt 1: exit code 1: b is broken
            rejected  goto_js: 'nowhere' is no ancestor of this step
            answers   flow.yaml:5:72 goto a
            then      back to a, loop 1 of 10
          attempt 2: passed

        c (flow.yaml:6:8) was skipped: `when` is false: x.y (flow.yaml:6:34), rejected: when: …

        d (flow.yaml:7:8) failed
          attempt 1: exit code 1: d is broken
            said no   flow.yaml:7:43 run_js: its code named no step to run
            then      no rule answers, so the failure stands
    """)


def test_parked_and_judged(flows: ExplainFlows) -> None:
    """What waits and what waits for it; after the judgement who judged, why, and what came of it."""
    flow = """
        name: parked
        steps:
        - {id: deploy, shell: ./step deploy 1, park: true}
        - {id: ship, shell: ./step ship}
        """
    assert flows.run_and_explain(flow, 4) == lines("""
        run 1 parked is parked: deploy waits for judgement

        deploy (flow.yaml:4:8) is parked
          attempt 1: exit code 1: deploy is broken
            answers   flow.yaml:4:40 park
            then      parked: it waits for judgement
          waiting because of it: ship

        `resile parked 1` shows what waits, and how to judge it
    """)
    assert flows.explain("ship").splitlines()[2:4] == [
        "ship (flow.yaml:5:8) is blocked",
        "  because deploy is parked",
    ]
    flows.program.call("judge", "1", "deploy", "retry", "--reason", "it is back", "--resume", code=0)
    judged = re.sub(r"by \S+:", "by NOBODY:", flows.explain())
    assert judged == lines("""
        run 1 parked completed, although 1 attempt failed

        deploy (flow.yaml:4:8) passed at attempt 2
          attempt 1: exit code 1: deploy is broken
            answers   flow.yaml:4:40 park
            then      parked: it waits for judgement
          judged: retry by NOBODY: it is back
          attempt 2: passed
    """)


def test_after_a_success(flows: ExplainFlows) -> None:
    """A step that fails by what follows its success says so."""
    text = flows.run_and_explain(
        """
        name: after
        steps:
        - {id: a, shell: ./step a, on_success: {run: [b]}}
        - {id: b, shell: ./step b 1}
        - {id: c, shell: ./step c}
        """,
        1,
    )
    assert text == lines("""
        run 1 after failed: a and b failed

        a (flow.yaml:4:8) failed
          after its success: remediation step 'b' failed
            b (flow.yaml:5:8) failed
              attempt 1: exit code 1: b is broken
                then      the step has no rule, so the failure stands
          canceled because of it: c
    """)


def test_more_of_the_machine(flows: ExplainFlows) -> None:
    """A rule that asks for more says what was granted, and at its ceiling that there is no more."""
    text = flows.run_and_explain(
        """
        name: more
        steps:
        - id: slow
          shell: exec sleep 30
          grace: 1s
          resources: {runtime: 100ms, escalate: {factor: 2, runtime_max: 200ms, rounds: 3}}
        """,
        1,
    )
    assert text == lines("""
        run 1 more failed: slow failed

        slow (flow.yaml:4:7) failed after 2 attempts
          attempt 1: timed out after 0.1s
            answers   flow.yaml:7:41 escalate x2 (1 of 3)
            then      attempt 2 with 0.2 s of time
          attempt 2: timed out after 0.2s
            no more   flow.yaml:7:41 escalate x2: there is no more to grant
            then      no rule is left, so the failure stands
    """)


def test_rules_that_are_turned_off(flows: ExplainFlows) -> None:
    """`--no-failure-routing` and `--retry-max` are reasons too."""
    flow = "name: off\nsteps:\n- {id: a, shell: ./step a 9, retry: {max: 3}}\n"
    text = flows.run_and_explain(flow, 1, "--no-failure-routing")
    assert "    off       flow.yaml:4:30 retry 3: turned off for this run\n" in text
    flows.run(flow, 1, "--retry-max", "1")
    assert "    spent     flow.yaml:4:30 retry 3 (1 of 1)\n" in flows.explain(run=2)


def test_an_end_that_decides(flows: ExplainFlows) -> None:
    """A verdict that `end` gave is said to be its own."""
    text = flows.run_and_explain(
        """
        name: ended
        steps:
        - {id: a, shell: ./step a 1}
        - {id: end, shell: 'echo "{\\"workflow_status\\": \\"completed\\"}"'}
        """
    )
    assert text.splitlines()[0] == "run 1 ended completed: `end` says so, although a failed"


def test_a_lost_attempt(flows: ExplainFlows) -> None:
    """It is answered by the rule that every step has."""
    text = flows.run_and_explain(
        """
        name: lost
        steps:
        - {id: work, shell: 'test -e once || { touch once; kill -9 $PPID; exec sleep 30; }'}
        """
    )
    assert text == lines("""
        run 1 lost completed, although 1 attempt failed

        work (flow.yaml:4:8) passed at attempt 2
          attempt 1: lost: the launcher died while it ran
            answers   retry after a lost attempt (1 of 3): every step has this rule
            then      attempt 2
          attempt 2: passed
    """)


def test_an_interrupted_run(flows: ExplainFlows) -> None:
    """An attempt that was interrupted is no failure, before and after the resume."""
    program = flows.program
    program.write("resile: 1\nname: held\nsteps:\n- {id: hold, shell: 'echo > up; read line < gate'}\n")
    up, gate = program.gate("up"), program.gate("gate")
    with program.start("run", "flow.yaml") as run:
        up.wait()
        run.until("err", "hold started")
        run.send(signal.SIGINT)
        run.until("err", "stopping: ")
        run.send(signal.SIGTERM)
        assert run.end() == 130
    interrupted = ["  attempt 1: interrupted", "    then      it costs nothing, and the step runs again"]
    text = flows.explain().splitlines()
    assert text[0] == "run 1 held is interrupted: nothing has failed"
    assert text[3:] == [*interrupted, "", "`resile resume 1` goes on"]
    gate.open()
    program.call("resume", "1", code=0)
    head = ["run 1 held completed: nothing failed", "", "hold (flow.yaml:4:8) completed"]
    assert flows.explain().splitlines() == [*head, *interrupted, "  attempt 2: passed"]


def test_a_canceled_run(flows: ExplainFlows) -> None:
    """Who asked for it and why, what it ended, and what never started."""
    program = flows.program
    flow = "- {id: hold, shell: 'echo > up; exec sleep 30', grace: 1s}\n- {id: later, shell: ./step later}\n"
    program.write(f"resile: 1\nname: held\nsteps:\n{flow}")
    up = program.gate("up")
    with program.start("run", "flow.yaml") as run:
        up.wait()
        run.until("err", "hold started")
        program.call("cancel", "1", "--reason", "wrong branch", code=0)
        assert run.end() == 3
    text = re.sub(r"canceled: \S+ asked", "canceled: SOMEBODY asked", flows.explain())
    assert text == lines("""
        run 1 held was canceled: SOMEBODY asked for it: wrong branch

        hold (flow.yaml:4:8) was ended while it ran
          attempt 1: ended on request
            then      no rule is asked: the run was canceled

        never started, because the run was canceled: later
    """)
    later = flows.explain("later").splitlines()[2:]
    assert later == ["later (flow.yaml:5:8) was canceled before it ran: the run was canceled"]


def test_the_last_epoch_is_explained(flows: ExplainFlows) -> None:
    """After `rerun` what an earlier epoch did is history."""
    assert "build failed" in flows.run_and_explain("name: twice\nsteps:\n- {id: build, shell: ./step build 1}\n", 1)
    flows.program.call("rerun", "1", code=0)
    assert flows.explain() == "run 1 twice completed: nothing failed\n"


def test_a_step_in_full(flows: ExplainFlows) -> None:
    """With a step's name the end of what it printed is shown, and a step that simply passed is reported too."""
    flow = "name: full\nsteps:\n  a: {shell: 'echo one; echo two >&2; exit 4'}\n  b: {shell: ./step b}\n"
    flows.run(flow, 1)
    assert flows.explain("a") == lines("""
        run 1 full failed: a failed

        a (flow.yaml:4:3) failed
          attempt 1: exit code 4: two
            stdout
            | one
            stderr
            | two
            then      the step has no rule, so the failure stands
    """)
    assert flows.explain("b").splitlines()[2:] == ["b (flow.yaml:5:3) completed", "  attempt 1: passed"]
    assert flows.explain("2") == flows.explain("b")
