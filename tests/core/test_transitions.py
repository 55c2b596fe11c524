"""The table of transitions, and the one function that changes the status of a job."""

from __future__ import annotations

import pytest

from resile.core.state import ROOT, Job, new_state
from resile.core.transitions import TRANSITIONS, refuse_unlisted_transitions, set_status
from resile.engine.session import Session
from resile.model.status import COMPLETED, FAILED, PENDING, READY, RUNNING, TERMINAL, Status
from resile.store.contract import RunRow
from resile.store.memory import MemoryStore
from tests.core.world import flow


def test_every_status_can_be_reached_and_left() -> None:
    """Every status that Resile uses can be reached, and each leads to another: even an end, by a jump or a call."""
    used = set(Status) - {Status.uninitialized}
    assert {target for _, target in TRANSITIONS} == used
    assert {source for source, _ in TRANSITIONS} == used


def test_no_job_leaves_its_end_but_to_start_over() -> None:
    """From a terminal status a job is reopened, fails for a spent budget, is disabled, or a redrive completes it."""
    beyond = {target.name for source, target in TRANSITIONS if source in TERMINAL}
    assert beyond == {"blocked", "failed", "disabled", "completed"}
    assert [source.name for source, target in TRANSITIONS if source in TERMINAL and target is COMPLETED] == ["failed"]


def test_a_transition_that_the_table_lacks_is_refused() -> None:
    """The suite has every change of a status checked; a job that failed does not simply run."""
    job = Job(7, ROOT, 0, status=FAILED)
    with pytest.raises(AssertionError, match="job 7: no transition leads from failed to running"):
        set_status(job, RUNNING)
    assert job.status is FAILED


def test_a_status_may_be_set_again() -> None:
    """To stay what it is is no transition."""
    job = Job(7, ROOT, 0, status=COMPLETED)
    set_status(job, COMPLETED)
    assert job.status is COMPLETED


@pytest.mark.parametrize(("value", "checks"), [("1", True), ("0", False)])
def test_an_engine_checks_itself_when_asked(value: str, checks: bool) -> None:
    """With RESILE_CHECK=1 in its environment a session has unlisted transitions refused; else a run pays nothing."""
    store = MemoryStore()
    row = RunRow(id=1, workflow="t", dialect="native", definition="", status="running")
    refuse_unlisted_transitions(False)
    try:
        Session(store, row, new_state(flow()), env={"RESILE_CHECK": value}, listener=lambda _state, _notes: None)
        job = Job(7, ROOT, 0, status=READY)
        if checks:
            with pytest.raises(AssertionError, match="from ready to completed"):
                set_status(job, COMPLETED)
        else:
            set_status(job, COMPLETED)
            assert job.status is COMPLETED
    finally:
        refuse_unlisted_transitions()
    set_status(Job(8, ROOT, 0, status=READY), PENDING)
