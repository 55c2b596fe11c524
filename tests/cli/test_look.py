"""`status`, `logs`, `events`: what they show, while a run goes and afterwards."""

from __future__ import annotations

import subprocess

import msgspec

from resile.commands.events.names import ALIASES, EVENT_TYPES
from tests.cli.program import Program
from tests.cli.terminal import Terminal

TALK = """\
resile: 1
name: talk
steps:
  chat:
    shell: echo out; echo err >&2; test -e again || { touch again; exit 7; }
    retry: {max: 1}
  quiet: {shell: "true"}
"""


def test_logs_of_every_attempt(program: Program) -> None:
    """Both streams of each attempt stand under a heading, and silent ones are left out."""
    program.call("run", program.write(TALK), code=0)
    parts = [f"==> chat, attempt {attempt}, std{name} <==\n{name}\n" for attempt in (1, 2) for name in ("out", "err")]
    assert program.call("logs", "1", code=0).stdout == "".join(parts)
    assert program.call("logs", "1", "chat", "--attempt", "2", code=0).stdout == "".join(parts[2:])
    assert program.call("logs", "1", "chat", "--stderr", code=0).stdout == parts[1] + parts[3]
    quiet = program.call("logs", "1", "quiet", code=0)
    assert (quiet.stdout, quiet.stderr) == ("", "quiet: nothing was printed\n")
    filtered = program.call("logs", "1", "quiet", "--stderr", code=0)
    assert (filtered.stdout, filtered.stderr) == ("", "quiet: nothing was printed that these options ask for\n")


def test_the_logs_of_a_map_are_those_of_its_items(program: Program) -> None:
    """A map prints nothing itself, so `logs` says how to see an item, and that command shows it."""
    program.write(
        "resile: 1\nname: t\nsteps:\n- id: each\n  map: {input: [a], steps: [{id: say, shell: 'echo ${item}'}]}\n"
    )
    program.call("run", "flow.yaml", code=0)
    hint = "  hint: it is a map; `resile logs 1 'each[0]'` shows its first item\n"
    assert program.call("logs", "1", "each", code=0).stderr == f"each: nothing was printed\n{hint}"
    assert program.call("logs", "1", "each[0]", code=0).stdout == "==> each[0]/say, attempt 1, stdout <==\na\n"


def test_one_stream_of_one_attempt_is_raw(program: Program) -> None:
    """One stream of one attempt comes byte for byte, without a heading."""
    program.call("run", program.write(TALK), code=0)
    assert program.call("logs", "1", "chat", "--attempt", "1", "--stdout", code=0).stdout == "out\n"


def test_logs_as_json(program: Program) -> None:
    """`logs --json` is one document with the text of each stream of each attempt."""
    program.call("run", program.write(TALK), code=0)
    document = program.json("logs", "1", "chat", "--attempt", "1")
    assert document == {
        "version": 1,
        "run": 1,
        "logs": [
            {"job": 1, "step": "chat", "attempt": 1, "stream": "stdout", "text": "out\n"},
            {"job": 1, "step": "chat", "attempt": 1, "stream": "stderr", "text": "err\n"},
        ],
    }
    assert program.json("logs", "1", "-f", code=2)["error"]["code"] == "usage"


def test_logs_of_a_step_that_is_not_there(program: Program) -> None:
    """A step that the run does not have is exit 2."""
    program.call("run", program.write(TALK), code=0)
    assert program.json("logs", "1", "chatt", code=2)["error"]["message"] == "run 1 has no step 'chatt'"


def test_logs_of_an_attempt_that_is_not_there(program: Program) -> None:
    """A number that no attempt has is exit 2 and the hint says which there are; a silent attempt is no error."""
    program.call("run", program.write(TALK), code=0)
    for words, message, hint in (
        (("1", "--attempt", "9"), "run 1 has no attempt 9", "its attempts: 1 to 2"),
        (("1", "chat", "--attempt", "3"), "step 'chat' of run 1 has no attempt 3", "its attempts: 1 to 2"),
        (("1", "quiet", "--attempt", "2"), "step 'quiet' of run 1 has no attempt 2", "its only attempt: 1"),
    ):
        error = program.json("logs", *words, code=2)["error"]
        assert (error["message"], error["hint"]) == (message, hint)
        assert message in program.call("logs", *words, "-f", code=2).stderr
    assert program.call("logs", "1", "quiet", "--attempt", "1", code=0).stdout == ""


def test_logs_exported(program: Program) -> None:
    """`logs --export` writes a file for each stream with output, named by step and, as people know it, by numbers."""
    program.call("run", program.write(TALK), code=0)
    assert program.json("logs", "1", "--export", "here") == {"version": 1, "run": 1, "folder": "here", "files": 4}
    names = sorted(path.name for path in (program.folder / "here").rglob("*") if path.is_file())
    kinds = [f"a{attempt}.{ending}" for attempt in (1, 2) for ending in "eo"]
    assert names == [f"chat_{kind}" for kind in kinds] + [f"job_wf1_j1_r1_{kind}" for kind in kinds]


def test_logs_followed_while_a_step_runs(program: Program) -> None:
    """`logs -f` shows what a running step prints at once, and ends with the run."""
    gate, up = program.gate("gate"), program.gate("up")
    program.write(
        "resile: 1\nname: slow\nsteps:\n  talk: {shell: echo one; echo up > up; read line < gate; echo two}\n"
    )
    with program.start("run", "flow.yaml") as run:
        up.wait()
        with program.start("logs", "1", "-f") as logs:
            logs.until("out", "one\n")
            assert "two" not in logs.text["out"]
            gate.open()
            assert logs.end() == 0
            assert logs.text["out"] == "==> talk, attempt 1, stdout <==\none\ntwo\n"
        assert run.end() == 0


def test_a_followed_step_has_nothing_of_the_next_one_in_its_slot(program: Program) -> None:
    """Each line as it is written, and the end, although another step then writes to the same file."""
    gate, up, other = program.gate("gate"), program.gate("up"), program.gate("other")
    program.write(
        "resile: 1\nname: slow\nsteps:\n- {id: talk, shell: echo one; echo up > up; read line < gate; echo two}\n"
        "- {id: next, shell: echo other; echo up > up; read line < other}\n"
    )
    with program.start("run", "flow.yaml", "--max-parallel", "1") as run:
        up.wait()
        with program.start("logs", "1", "talk", "-f") as logs:
            logs.until("out", "one\n")
            gate.open()
            up.wait()
            other.open()
            assert logs.end() == 0
            assert logs.text["out"] == "==> talk, attempt 1, stdout <==\none\ntwo\n"
        assert run.end() == 0


def test_events_as_json_lines(program: Program) -> None:
    """`events list --json` prints one object on each line with exactly the documented keys, in order."""
    program.call("run", program.write(TALK), "--max-parallel", "1", code=0)
    lines = program.call("events", "list", "1", "--json", code=0).stdout.splitlines()
    events = [msgspec.json.decode(line) for line in lines]
    keys = ["seq", "at", "type", "run", "scope", "step", "job", "attempt", "status", "because", "data"]
    assert [list(event) for event in events] == [keys] * len(events)
    assert [event["type"] for event in events if event["step"] == "chat"] == [
        "step_started",
        "attempt_started",
        "attempt_failed",
        "retry_scheduled",
        "attempt_started",
        "attempt_succeeded",
        "step.exit",
        "step_completed",
    ]
    assert [event["type"] for event in events][:2] == ["playbook_started", "workflow_initialized"]
    assert [event["type"] for event in events][-2:] == ["workflow_completed", "playbook_completed"]
    assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})


def test_events_filtered(program: Program) -> None:
    """Types can be named as other systems name them, several at once, and `--after` skips what was seen."""
    program.call("run", program.write(TALK), "--max-parallel", "1", code=0)
    listed = program.call(
        "events", "list", "1", "--type", "action_failed", "--type", "retry_scheduled", "--json", code=0
    )
    events = [msgspec.json.decode(line) for line in listed.stdout.splitlines()]
    assert [event["type"] for event in events] == ["attempt_failed", "retry_scheduled"]
    later = program.call("events", "list", "1", "--type", "action_failed", "--after", str(events[0]["seq"]), code=0)
    assert later.stdout == ""
    words = program.call("events", "list", "1", "--type", "playbook_completed", code=0).stdout.split()
    assert words[2] == "playbook_completed"


def test_every_alias_names_an_event() -> None:
    """Other systems' names stand for events that a run really writes, and none of them is one itself."""
    assert set(ALIASES.values()) <= set(EVENT_TYPES)
    assert set(ALIASES).isdisjoint(EVENT_TYPES)


def test_the_story_of_a_job(program: Program) -> None:
    """`--story` tells what led to each event of one job and nothing else; a job that is not there is an error."""
    text = "resile: 1\nname: s\nsteps:\n  a: {shell: exit 3}\n  b: {shell: 'true', needs: [a]}\n  z: {shell: 'true'}\n"
    program.call("run", program.write(text), "--max-parallel", "1", code=1)
    lines = program.call("events", "list", "1", "--story", "2", "--json", code=0).stdout.splitlines()
    told = [(event["type"], event["step"]) for event in map(msgspec.json.decode, lines)]
    assert told[0] == ("playbook_started", None)
    assert told[-2:] == [("step_failed", "a"), ("step_canceled", "b")]
    assert all(name != "z" for _, name in told)
    one = program.call("events", "list", "1", "--story", "2", "--type", "step_canceled", code=0).stdout
    assert [line.split()[2:4] for line in one.splitlines()] == [["step_canceled", "b"]]
    assert "has no events of a job 99" in program.call("events", "list", "1", "--story", "99", code=2).stderr
    assert "--names" in program.call("events", "list", "1", "--story", "2", "--names", "noetl", code=2).stderr


def test_events_of_a_canceled_run_in_either_spelling(program: Program) -> None:
    """`canceled` can be spelled with two l, as other systems do."""
    program.gate("gate")
    up = program.gate("up")
    program.write("resile: 1\nname: slow\nsteps:\n  wait: {shell: echo up > up; read line < gate}\n")
    with program.start("run", "flow.yaml") as run:
        up.wait()
        program.call("cancel", "1", code=0)
        assert run.end() == 3
    for spelled in ("playbook_canceled", "playbook_cancelled", "execution.cancelled"):
        assert len(program.call("events", "list", "1", "--type", spelled, code=0).stdout.splitlines()) == 1


def test_events_followed(program: Program) -> None:
    """`events follow` goes on while the run goes, and ends with the run's last event."""
    gate, up = program.gate("gate"), program.gate("up")
    program.write("resile: 1\nname: slow\nsteps:\n  wait: {shell: echo up > up; read line < gate}\n")
    with program.start("run", "flow.yaml") as run:
        up.wait()
        with program.start("events", "follow", "1", "--json") as events:
            events.until("out", '"attempt_started"')
            assert "step_completed" not in events.text["out"]
            gate.open()
            assert events.end() == 0
        assert run.end() == 0
    assert events.text["out"] == program.call("events", "list", "1", "--json", code=0).stdout
    assert msgspec.json.decode(events.text["out"].splitlines()[-1])["type"] == "playbook_completed"


def test_status_while_a_run_goes(program: Program) -> None:
    """A run in progress is `running`, with its steps as they are."""
    gate, up = program.gate("gate"), program.gate("up")
    program.write(
        "resile: 1\nname: slow\nsteps:\n  wait: {shell: echo up > up; read line < gate}\n"
        "  then: {shell: 'true', needs: [wait]}\n"
    )
    with program.start("run", "flow.yaml") as run:
        up.wait()
        run.until("err", "wait started")
        document = program.json("status", "1")
        assert (document["status"], [job["status"] for job in document["jobs"]][:2]) == (
            "running",
            ["running", "blocked"],
        )
        assert program.json("status")["runs"][0]["status"] == "running"
        assert "  resile logs 1 -f  # follow what its steps print\n" in program.call("status", "1", code=0).stdout
        gate.open()
        assert run.end() == 0


def test_the_list_of_runs(program: Program) -> None:
    """`status` alone lists the runs, newest first, as a table or with exactly the documented keys."""
    program.call("run", program.write(TALK), code=0)
    program.call("run", program.write("resile: 1\nname: no\nsteps:\n  a: {shell: exit 1}\n", "no.yaml"), code=1)
    runs = program.json("status")["runs"]
    assert [list(run) for run in runs] == [
        ["run", "workflow", "status", "started_at", "ended_at", "duration_seconds", "steps", "labels", "first_failure"]
    ] * 2
    assert [(run["run"], run["workflow"], run["status"]) for run in runs] == [
        (2, "no", "failed"),
        (1, "talk", "completed"),
    ]
    lines = program.call("status", code=0).stdout.splitlines()
    assert lines[0].split() == ["RUN", "STATUS", "WORKFLOW", "STARTED", "TOOK", "DONE"]
    assert [line.split()[:3] for line in lines[1:]] == [["2", "failed", "no"], ["1", "completed", "talk"]]


def test_one_run_for_people(program: Program) -> None:
    """`status RUN` shows the summary and a table of the steps."""
    program.call(
        "run",
        program.write("resile: 1\nname: no\nsteps:\n  a: {shell: exit 3}\n  b: {shell: 'true', needs: [a]}\n"),
        code=1,
    )
    lines = program.call("status", "1", code=0).stdout.splitlines()
    assert lines[1] == "2 steps: 1 failed, 1 canceled"
    head = next(number for number, line in enumerate(lines) if line.startswith("STEP "))
    assert lines[head].split() == ["STEP", "STATUS", "TRIES", "EXIT", "TIME"]
    assert lines[head + 1].split()[:4] == ["a", "failed", "1", "3"]
    assert lines[head + 2].split() == ["b", "canceled", "a", "failed"]


def test_a_broken_pipe_ends_quietly(program: Program) -> None:
    """A reader that leaves ends a looking command without a word, and does not disturb a run."""
    steps = "".join(f"  s{number}: {{shell: echo x}}\n" for number in range(120))
    program.write(f"resile: 1\nname: many\nsteps:\n{steps}")
    command = " ".join(f"'{word}'" for word in program.argv)
    running = f"{{ {command} run flow.yaml 2>&1; echo $? > run.code; }} | head -1"
    # More than a pipe holds, so that it can't end before the reader has left.
    looking = f"{{ {command} events list 1 --json 2>err; echo $? > ls.code; }} | head -1"
    done = subprocess.run(
        ["bash", "-c", f"{running}; {looking}"],
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert [line[:8] for line in done.stdout.splitlines()] == ["run 1: m", '{"seq":1']
    assert (program.folder / "run.code").read_text() == "0\n"
    assert (program.folder / "ls.code").read_text() == "141\n"
    assert (program.folder / "err").read_text() == ""


def test_nothing_to_show(program: Program) -> None:
    """Where there is no database there are no runs; the commands that need one say so, and nothing is made."""
    assert program.json("status") == {"version": 1, "runs": []}
    assert program.call("status", code=0).stdout == "no runs; `resile run FILE` makes one\n"
    for words in (("status", "1"), ("logs", "1"), ("events", "list", "1"), ("parked", "1"), ("metrics", "1")):
        assert program.json(*words, code=2)["error"]["message"].startswith("there is no database"), words
    assert list(program.folder.iterdir()) == []


def test_events_on_a_narrow_terminal(program: Program) -> None:
    """The data of an event is wrapped as names and values; a pipe gets one line with its JSON for each event."""
    program.call("run", program.write("resile: 1\nname: x\nsteps: {a: {shell: echo no luck >&2; exit 3}}\n"), code=1)
    for words in (("events", "ls", "1"), ("explain", "1", "--story", "a")):
        with Terminal(program, *words, columns=40) as terminal:
            assert terminal.end() == 0
        lines = terminal.text.splitlines()
        assert max(map(len, lines)) <= 40
        assert 'kind=exit message="exit code 3: no luck"' in " ".join(line.strip() for line in lines)
        piped = program.call(*words, code=0).stdout
        assert '"kind":"exit","message":"exit code 3: no luck"' in piped
