"""Judges a run after the torture: what its steps did, and what the database and the output say of it."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import apsw

from tests.torture.cases import Case

# An attempt that ended in one of these ways may have had no effect, and what follows it is no second run.
BROKEN_OFF = frozenset({"lost", "signal", "canceled", "timeout"})
FILE = re.compile(r"job_wf1_j(\d+)_r\d+_a(\d+)\.o")
ATTEMPTS = (
    "SELECT jobs.step, job, attempt, attempts.ended_at IS NOT NULL, failure FROM attempts"
    " JOIN jobs ON jobs.run = attempts.run AND jobs.id = job WHERE jobs.run = 1"
    # Children have an `end` of their own, which does nothing.
    " AND NOT (jobs.step = 'end' AND jobs.scope != 'root')"
)


# Attempts that Resile itself broke off leave no row, only an event.
WITHDRAWN = (
    "SELECT '', event ->> 'job', event ->> 'attempt', 1, '{\"kind\": \"canceled\"}' FROM log"
    " WHERE event ->> 'type' = 'attempt_withdrawn' AND event ->> 'started'"
)


class Attempt(NamedTuple):
    """An attempt as the log knows it; `kind` is empty after a success."""

    step: str
    mark: str
    kind: str


def faults_of(case: Case) -> list[str]:
    """Everything that is wrong with a run that has ended."""
    code = case.process.returncode
    without_output = _marks_without_output(case)
    # What needs an output that a full disk lost fails, and the run with it.
    faults = [] if code == 0 or (code == 1 and without_output) else [f"the run ended with exit code {code}"]
    effects = Counter(case.effects.read_text().split())
    attempts = _attempts(case)
    if effects.pop("BAD", 0):
        faults.append("a step was given a wrong value")
    if case.workflow.calls:
        return faults + _call_faults(case, effects, attempts)
    faults += [f"attempt {mark} had its effect {times} times" for mark, times in effects.items() if times > 1]
    known = {one.mark for one in attempts}
    faults += [f"effect {mark} is of no attempt in the log" for mark in effects.keys() - known]
    excused = BROKEN_OFF | {"contract"} if without_output else BROKEN_OFF
    whole = [one for one in attempts if one.kind not in excused and one.step in case.workflow.runs]
    faults += [
        f"attempt {one.mark} of {one.step} counts as ended, but did nothing" for one in whole if one.mark not in effects
    ]
    times = Counter(one.step for one in whole)
    for step, wanted in case.workflow.runs.items():
        if times[step] > wanted >= 0 or (code == 0 and times[step] < wanted):
            faults.append(f"{step} ran {times[step]} times to its end, not {wanted}")
    return faults + _output_faults(case, [one for one in whole if one.mark not in without_output])


def _marks_without_output(case: Case) -> set[str]:
    """The attempts of which a full disk lost the output; the events say so."""
    lines = case.call("events", "ls", "1", "--json").stdout.splitlines()
    events = [event for line in lines if (event := json.loads(line))["type"].startswith("attempt_")]
    return {f"1:{event['job']}:{event['attempt']}" for event in events if event["data"].get("output_lost")}


def _call_faults(case: Case, effects: Counter[str], attempts: list[Attempt]) -> list[str]:
    """Every call was made; one more for each that was lost at the most."""
    lost = sum(one.kind in BROKEN_OFF for one in attempts)
    faults = [f"call {n} was never made" for n in range(case.workflow.calls) if not effects[f"call:{n}"]]
    if effects.total() > case.workflow.calls + lost:
        faults.append(f"{effects.total()} calls were made of {case.workflow.calls}, and only {lost} were lost")
    return faults


def _attempts(case: Case) -> list[Attempt]:
    """Every attempt that has ended."""
    db = apsw.Connection(str(case.db), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        rows = [*db.execute(ATTEMPTS), *db.execute(WITHDRAWN)]
    finally:
        db.close()
    return [
        Attempt(step, f"1:{job}:{attempt}", json.loads(failure).get("kind", "exit") if failure else "")
        for step, job, attempt, ended, failure in rows
        if ended
    ]


def _output_faults(case: Case, whole: list[Attempt]) -> list[str]:
    """The output of each attempt is the text that it printed."""
    with tempfile.TemporaryDirectory() as folder:
        done = case.call("logs", "1", "--export", folder)
        if done.returncode and b"is lost" not in done.stderr:
            return [f"its logs can't be read: {done.stderr.decode()}"]
        found = {
            f"1:{name[1]}:{name[2]}": file.read_text()
            for file in Path(folder).iterdir()
            if (name := FILE.fullmatch(file.name))
        }
    return [
        f"the output of {one.mark} ({one.step}) is {found.get(one.mark)!r}"
        for one in whole
        if found.get(one.mark) != f"{one.mark}\n"
    ]
