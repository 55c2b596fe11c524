"""`dlq list`, `show`, `stats`, `export` and `purge`: the dead letters of a run, looked at and removed."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import Any

import msgspec
import pytest

from resile.core.actions import KeepLetter
from resile.core.events import RunStarted
from resile.engine.resources import measure
from resile.engine.session import create, take
from resile.model import codec
from resile.model.fanout import Source
from resile.model.items import DeadLetter, Item, ItemFailure
from resile.model.workflow import FanOut, Noop, Shell, Step, Workflow
from resile.store.contract import Batch
from resile.store.open import open_store
from tests.cli.program import DEADLINE_SECONDS, Program
from tests.cli.terminal import Terminal

HOUR = 1_767_225_600.0  # 2026-01-01T00:00:00Z
EXIT = ItemFailure(1, HOUR + 1, "check", "exit", "exit code 3: no such page", 3, "no such page\n", "aaaa", 0.25, 9, 2)
SLOW = ItemFailure(1, HOUR + 2, "fetch", "timeout", "timed out after 5s", None, "", "bbbb", 5.0, 10, 1)
LOST = ItemFailure(2, HOUR + 7200, "fetch", "lost", "the worker is gone", None, "", "cccc", 1.0, 11, 1)
FAILURES = {
    "Timeout": SLOW,
    "ResourceExhausted": msgspec.structs.replace(SLOW, kind="oom", exit_code=137),
    "ValidationFailed": msgspec.structs.replace(EXIT, kind="check"),
    "CommitValidationFailed": msgspec.structs.replace(EXIT, kind="contract", signature="contract: no commit"),
    "Unknown": LOST,
}


def letter(index: int, *history: ItemFailure, job: int = 1, value: Any = None, reason: Any = "failed") -> DeadLetter:
    """An item of the first map, or of the second."""
    step = "pages" if job == 1 else "files"
    return DeadLetter(step, step, step, job, 1, Item(index, value, history), reason, HOUR + 3)


def keep(program: Program, *letters: DeadLetter) -> None:
    """A run of two maps with these dead letters."""
    item = Step(name="check", action=Shell(command="true"))
    maps = tuple(Step(name=name, action=FanOut(source=Source(values=()), steps=(item,))) for name in ("pages", "files"))
    end = Step(name="end", action=Noop())
    workflow = Workflow(name="crawl", dialect="native", file="", folder="", steps=maps, end=end)
    store = open_store(program.env["RESILE_DB"])
    output = str(program.folder / "output")
    started = RunStarted(0.0, measure(1, None, None, None))
    row, _ = create(store, workflow, codec.encode(workflow), started, output=output, directory=str(program.folder))
    lease = take(store, row.id)
    writer = store.writer()
    writer.submit(Batch(row.id, lease.token, [], {}, {}, letters=tuple(map(KeepLetter, letters))))
    writer.flush()
    store.release_lease(lease)
    store.close()


def kept(program: Program, run: str = "1") -> list[str]:
    """The ids of a run's dead letters."""
    return [letter["item_id"] for letter in program.json("dlq", "list", run)["dead_letters"]]


def test_the_record_of_a_letter(program: Program) -> None:
    """Every field of the record is filled from what happened, with the log of the failing attempt where it is."""
    again = msgspec.structs.replace(SLOW, at=HOUR + 60)
    keep(program, letter(3, EXIT, again, value={"url": "é", "n": [1, None]}))
    log = program.folder / "output" / "job_stdio" / "job_wf1_j9_r1_a2.e"
    log.parent.mkdir(parents=True)
    log.write_text("no such page\n")
    document = program.json("dlq", "show", "1", "pages[3]")
    assert document == {
        "version": 1,
        "item_id": "pages[3]",
        "step": "pages",
        "map": "pages",
        "index": 3,
        "correlation_id": "1:pages[3]",
        "reason": "failed",
        "item_data": {"url": "é", "n": [1, None]},
        "first_attempt": "2026-01-01T00:00:01.000Z",
        "last_attempt": "2026-01-01T00:01:00.000Z",
        "failure_count": 2,
        "error_signature": "bbbb",
        "reprocess_eligible": True,
        "manual_review_required": False,
        "worktree_artifacts": None,
        "failure_history": [
            {
                "attempt_number": 1,
                "timestamp": "2026-01-01T00:00:01.000Z",
                "error_type": {"CommandFailed": {"exit_code": 3}},
                "error_message": "exit code 3: no such page",
                "error_context": ["kind: exit", "job 9, attempt 2, epoch 1"],
                "stack_trace": "no such page\n",
                "agent_id": "pages[3]",
                "step_failed": "check",
                "duration_ms": 250,
                "json_log_location": str(log),
            },
            {
                "attempt_number": 2,
                "timestamp": "2026-01-01T00:01:00.000Z",
                "error_type": "Timeout",
                "error_message": "timed out after 5s",
                "error_context": ["kind: timeout", "job 10, attempt 1, epoch 1"],
                "stack_trace": "",
                "agent_id": "pages[3]",
                "step_failed": "fetch",
                "duration_ms": 5000,
                "json_log_location": None,
            },
        ],
    }
    assert document.pop("version") == 1
    assert program.json("dlq", "list", "1") == {"version": 1, "dead_letters": [document]}


@pytest.mark.parametrize("kind", FAILURES)
def test_types_of_errors(program: Program, kind: str) -> None:
    """Each kind of failure has its word in the record."""
    keep(program, letter(0, FAILURES[kind]))
    assert program.json("dlq", "show", "1", "0")["failure_history"][0]["error_type"] == kind


def test_only_a_lost_item_waits_for_review(program: Program) -> None:
    """Everything may be tried again unasked, but not what may have taken its worker down."""
    keep(program, letter(0, EXIT), letter(1, EXIT, LOST), letter(2, reason="not_started"))
    found = program.json("dlq", "list", "1")["dead_letters"]
    flags = [(one["reprocess_eligible"], one["manual_review_required"]) for one in found]
    assert flags == [(True, False), (False, True), (True, False)]


def test_the_list_by_map_and_to_a_limit(program: Program) -> None:
    """Letters come by map and index; --step takes one map, --limit some of them."""
    keep(program, letter(10, EXIT), letter(2, EXIT), letter(0, SLOW, job=2))
    assert kept(program) == ["pages[2]", "pages[10]", "files[0]"]
    for words, ids in (
        (("--step", "files"), ["files[0]"]),
        (("--limit", "1"), ["pages[2]"]),
        (("--limit", "9", "--step", "pages"), ["pages[2]", "pages[10]"]),
    ):
        found = program.json("dlq", "list", "1", *words)["dead_letters"]
        assert [one["item_id"] for one in found] == ids


def test_the_list_for_people(program: Program) -> None:
    """A table within 80 columns that says how many there are, what happened, and what to do about it."""
    keep(program, *(letter(index, EXIT) for index in range(60)), letter(60, LOST), letter(61, reason="not_started"))
    program.env["TZ"] = "UTC"
    with Terminal(program, "dlq", "list", "1") as terminal:
        assert terminal.end() == 0
    lines = terminal.text.splitlines()
    assert lines[0] == "run 1: 62 dead letters"
    assert lines[2].split() == ["ITEM", "REASON", "FAILED", "LAST", "WHAT", "HAPPENED"]
    assert lines[3] == "pages[0]   failed  1       2026-01-01 00:00:01  check: exit code 3: no such page"
    assert lines[53:] == [
        "… and 12 more; `--limit N` shows more of them",
        "",
        "`resile dlq show 1 ITEM` shows one, `resile dlq retry 1` runs them again",
    ]
    assert max(map(len, lines)) <= 80
    lines = program.call("dlq", "list", "1", "--limit", "99", code=0).stdout.splitlines()
    assert lines[63].split() == [
        *("pages[60]", "failed,", "for", "review", "1", "2026-01-01", "02:00:00"),
        *("fetch:", "the", "worker", "is", "gone"),
    ]
    assert lines[64].split()[1:3] + lines[64].split()[5:] == ["not_started", "0", "it", "never", "started"]
    assert len(lines) == 67


def test_one_item_for_people(program: Program) -> None:
    """Its data, each failure with its log, and the end of what it printed; control characters do nothing."""
    noisy = msgspec.structs.replace(EXIT, stderr="\n".join(f"line {n}" for n in range(12)) + "\n\x1b[2J\n")
    keep(program, letter(3, SLOW, noisy, value={"url": "http://\x1b[31m"}))
    lines = program.call("dlq", "show", "1", "3", code=0, TZ="UTC").stdout.splitlines()
    assert lines == [
        "pages[3] of run 1: failed, 2 failures",
        "  signature aaaa, correlation id 1:pages[3]",
        "  | {",
        r'  |   "url": "http://\u001b[31m"',
        "  | }",
        "  1. 2026-01-01 00:00:02, 5.0 s, fetch: timed out after 5s",
        "  2. 2026-01-01 00:00:01, 0.2 s, check: exit code 3: no such page",
        "  stderr, last 10 lines",
        *(f"  | line {n}" for n in range(3, 12)),
        r"  | \x1b[2J",
    ]


def test_a_large_item_is_cut_for_people(program: Program) -> None:
    """The first lines of its data are shown, and how many there are besides."""
    keep(program, letter(0, EXIT, value=list(range(100))))
    lines = program.call("dlq", "show", "1", "0", code=0).stdout.splitlines()
    assert lines[41:43] == ["  |   38,", "  | … 62 more lines; --json shows all"]


def test_what_letters_have_in_common(program: Program) -> None:
    """They are grouped by signature with samples, counted by type of error and by hour."""
    pages = [letter(index, EXIT) for index in range(5)]
    keep(program, *pages, letter(5, SLOW, LOST), letter(6, reason="not_started"), letter(0, EXIT, job=2))
    document = program.json("dlq", "stats", "1")
    assert document == {
        "version": 1,
        "run": 1,
        "workflow": "crawl",
        "total": 8,
        "reprocess_eligible": 7,
        "manual_review_required": 1,
        "maps": {"pages": 7, "files": 1},
        "reasons": {"failed": 7, "not_started": 1},
        "pattern_groups": [
            {
                "signature": "aaaa",
                "count": 6,
                "message": "exit code 3: no such page",
                "first_occurrence": "2026-01-01T00:00:01.000Z",
                "last_occurrence": "2026-01-01T00:00:01.000Z",
                "sample_items": ["pages[0]", "pages[1]", "pages[2]"],
            },
            {
                "signature": "cccc",
                "count": 1,
                "message": "the worker is gone",
                "first_occurrence": "2026-01-01T00:00:02.000Z",
                "last_occurrence": "2026-01-01T02:00:00.000Z",
                "sample_items": ["pages[5]"],
            },
            {
                "signature": "not_started",
                "count": 1,
                "message": "it never started",
                "first_occurrence": "2026-01-01T00:00:03.000Z",
                "last_occurrence": "2026-01-01T00:00:03.000Z",
                "sample_items": ["pages[6]"],
            },
        ],
        "other_patterns": 0,
        "error_distribution": [
            {"error_type": {"CommandFailed": {"exit_code": 3}}, "count": 6},
            {"error_type": "Unknown", "count": 1},
        ],
        "temporal_distribution": [
            {"hour": "2026-01-01T00:00:00.000Z", "count": 7},
            {"hour": "2026-01-01T02:00:00.000Z", "count": 1},
        ],
    }
    assert program.json("dlq", "stats", "1", "--step", "files")["total"] == 1
    lines = program.call("dlq", "stats", "1", code=0, TZ="UTC").stdout.splitlines()
    assert lines[0] == "run 1 crawl: 8 dead letters (7 failed, 1 not_started); 1 wait for a person's review"
    assert lines[2:] == [
        "6 x aaaa  exit code 3: no such page",
        "    2026-01-01 00:00:01, such as pages[0], pages[1], pages[2]",
        "1 x cccc  the worker is gone",
        "    2026-01-01 00:00:02 to 2026-01-01 02:00:00, such as pages[5]",
        "1 x not_started  it never started",
        "    2026-01-01 00:00:03, such as pages[6]",
        "",
        "ERROR        COUNT",
        "exit code 3  6",
        "Unknown      1",
        "",
        "HOUR              COUNT",
        "2026-01-01 00:00  7",
        "2026-01-01 02:00  1",
    ]


def test_failures_that_all_look_different(program: Program) -> None:
    """A thousand signatures are told apart; what has yet another one is counted besides."""
    failures = (msgspec.structs.replace(EXIT, signature=f"{index:04}") for index in range(1_003))
    keep(program, *(letter(index, failure) for index, failure in enumerate(failures)))
    document = program.json("dlq", "stats", "1")
    assert (document["total"], len(document["pattern_groups"]), document["other_patterns"]) == (1_003, 1_000, 3)
    shown = program.call("dlq", "stats", "1", code=0).stdout
    assert "\n… and 3 dead letters with other signatures\n" in shown


def test_letters_as_json_lines(program: Program) -> None:
    """Without a file they go to stdout, one on each line; a file appears whole, readable by its owner only."""
    keep(program, letter(0, EXIT), letter(1, SLOW), letter(0, EXIT, job=2))
    text = program.call("dlq", "export", "1", code=0).stdout
    assert [msgspec.json.decode(line) for line in text.splitlines()] == program.json("dlq", "list", "1")["dead_letters"]
    assert program.call("dlq", "export", "1", "out.jsonl", code=0).stdout == "3 dead letters in out.jsonl\n"
    assert (program.folder / "out.jsonl").read_text() == text
    assert (program.folder / "out.jsonl").stat().st_mode & 0o777 == 0o600
    told = program.json("dlq", "export", "1", "files.jsonl", "--step", "files")
    assert told == {"version": 1, "run": 1, "file": "files.jsonl", "dead_letters": 1}
    program.call("dlq", "export", "1", "none/out.jsonl", code=2)
    assert sorted(path.name for path in program.folder.glob("*.jsonl*")) == ["files.jsonl", "out.jsonl"]


def test_a_run_without_dead_letters(program: Program) -> None:
    """There is nothing to list, count, write or remove, and that is no error."""
    keep(program)
    assert program.json("dlq", "list", "1") == {"version": 1, "dead_letters": []}
    assert program.json("dlq", "stats", "1")["total"] == 0
    assert program.call("dlq", "list", "1", code=0).stdout == "run 1 has no dead letters\n"
    assert program.call("dlq", "stats", "1", code=0).stdout == "run 1 has no dead letters\n"
    assert program.call("dlq", "export", "1", code=0).stdout == ""
    assert program.json("dlq", "purge", "1", "--yes") == {"version": 1, "run": 1, "purged": 0, "dead_letters": 0}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("list", "7"), "no-such-run", "there is no run 7"),
        (("stats", "7"), "no-such-run", "there is no run 7"),
        (("export", "7"), "no-such-run", "there is no run 7"),
        (("show", "7", "0"), "no-such-run", "there is no run 7"),
        (("purge", "7", "--yes"), "no-such-run", "there is no run 7"),
        (("list", "1", "--step", "page"), "no-such-map", "run 1 has no map 'page'"),
        (("purge", "1", "--yes", "--step", "check"), "no-such-map", "run 1 has no map 'check'"),
        (("show", "1", "5"), "no-such-letter", "run 1 has no dead letter '5'"),
        (("show", "1", "pages[5]"), "no-such-letter", "run 1 has no dead letter 'pages[5]'"),
        (("show", "1", "other[0]"), "no-such-letter", "run 1 has no dead letter 'other[0]'"),
        (("show", "1", "pages"), "no-such-letter", "run 1 has no dead letter 'pages'"),
        (("show", "1", "0"), "ambiguous-item", "several dead letters of run 1 are called 0: pages[0], files[0]"),
    ],
)
def test_what_is_not_there(program: Program, words: tuple[str, ...], code: str, message: str) -> None:
    """An unknown run, map or item, and a name that could be several, are refused with exit code 2."""
    keep(program, letter(0, EXIT), letter(0, EXIT, job=2))
    error = program.json("dlq", *words, code=2)["error"]
    assert (error["code"], error["message"]) == (code, message)
    assert len(kept(program)) == 2


def test_an_item_is_found_by_its_map(program: Program) -> None:
    """With --step an index is enough, and the full id always is."""
    keep(program, letter(0, EXIT), letter(0, SLOW, job=2))
    assert program.json("dlq", "show", "1", "0", "--step", "files")["item_id"] == "files[0]"
    assert program.json("dlq", "show", "1", "files[0]")["error_signature"] == "bbbb"


def test_purging_what_is_asked_for(program: Program) -> None:
    """All letters of a run, of one map, or with one signature are removed, and no others."""
    keep(program, letter(0, EXIT), letter(1, SLOW), letter(0, EXIT, job=2), letter(1, SLOW, job=2))
    keep(program, letter(0, EXIT))
    purge = ("dlq", "purge", "1", "--yes")
    answer = program.json(*purge, "--step", "files", "--signature", "aaaa")
    assert answer == {"version": 1, "run": 1, "purged": 1, "dead_letters": 3}
    assert kept(program) == ["pages[0]", "pages[1]", "files[1]"]
    done = program.call(*purge, "--signature", "bbbb", code=0)
    assert done.stdout == "run 1: 2 dead letters removed, 1 left\n"
    assert program.json(*purge)["purged"] == 1
    assert (kept(program), kept(program, "2")) == ([], ["pages[0]"])


def test_purging_asks(program: Program) -> None:
    """On a terminal it takes a yes, without one it takes --yes; a no removes nothing and exits 1."""
    keep(program, letter(0, EXIT))
    error = program.json("dlq", "purge", "1", code=2)["error"]
    assert error["code"] == "usage"
    assert error["hint"] == "resile dlq purge 1 --yes"
    assert answered(program, "\n") == (1, "remove 1 dead letter of run 1 for good? [y/N] nothing was removed\n")
    assert kept(program) == ["pages[0]"]
    assert answered(program, "y\n") == (0, "remove 1 dead letter of run 1 for good? [y/N] ")
    assert kept(program) == []


def answered(program: Program, answer: str) -> tuple[int, str]:
    """What `dlq purge` does and says to somebody who types this answer on a terminal."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer.encode())
        words = [*program.argv, "dlq", "purge", "1"]
        done = subprocess.run(
            words,
            cwd=program.folder,
            env=program.env,
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        return done.returncode, done.stderr
    finally:
        os.close(ours)
        os.close(theirs)


def test_letters_of_a_driven_run_are_not_purged(program: Program) -> None:
    """Another engine has the run: exit 2, who it is, and everything stays."""
    keep(program, letter(0, EXIT))
    store = open_store(program.env["RESILE_DB"])
    lease = take(store, 1)
    error = program.json("dlq", "purge", "1", "--yes", code=2)["error"]
    assert error["code"] == "lease-held"
    assert error["message"].startswith(f"run 1 is driven by process {os.getpid()} on ")
    store.release_lease(lease)
    store.close()
    assert kept(program) == ["pages[0]"]
