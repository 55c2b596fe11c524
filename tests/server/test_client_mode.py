"""The command line against a server: each verb prints and exits as on the database that the server serves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import resile
from resile.commands.client import Client
from resile.commands.remote.client import RemoteClient
from resile.errors import ResileError

from . import flows
from .service import DEADLINE_SECONDS, Caller, Server, masked

QUESTION = """
resile: 1
name: question
steps:
  review: {ask: "is it good?"}
"""


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A server with five runs: completed, failed, parked, with dead letters, with a question."""
    server = Server(tmp_path_factory.mktemp("client"))
    caller = Caller(server)
    for text in (flows.HELLO, flows.FAILS):
        server.api.finish(text, file="flow.yaml", labels={"team": "data"})
    server.api.wait_for(server.api.start(flows.PARKED), "step_parked")
    server.api.finish(flows.LETTERS)
    server.api.wait_for(server.api.start(QUESTION), "step_parked")
    yield caller
    server.close()


RUNS = (1, 2, 3, 4)
TEXTS = [
    *(f"{verb} {run}" for run in RUNS for verb in ("status", "logs", "explain", "parked", "dlq list")),
    *("metrics 2", "metrics 4", "graph 4", "graph 2 --format dot", "events list 4", "events follow 2"),
    *("status 99", "logs 99", "events list 99", "events follow 99", "dlq list 99", "explain 99"),
    *("ls", "ls --label team=data --workflow hello --since 1d", "ls --status nonsense"),
    *("failures 5", "logs 1 greet --attempt 1 --stdout", "logs 1 greet --attempt 2", "logs 1 nothing"),
    *("logs 4 --tail 1 --since 1d", "logs 3 -f", "explain 2 after", "explain 2 nothing", "explain 2 --story after"),
    *("events list 1 --names noetl", "events list 2 --story 2", "events list 2 --story 77"),
    *("dlq list 4 --limit 1", "dlq list 4 --step nothing", "dlq show 4 each[0]", "dlq show 4 1", "dlq stats 4"),
    *("dlq stats 1", "dlq export 4", "dlq retry 4 --dry-run", "dlq retry 4 --dry-run --filter (("),
    *("prune --older-than 1h --dry-run", "prune", "cancel 2", "resume 2", "resume 1", "run flow.yaml --dry-run"),
    *("judge 2 broken retry", "judge 3 nothing retry", "judge 3 after retry", "answer 3 flaky yes", "token ls"),
]
DOCUMENTS = [
    *(f"{verb} {run}" for run in (2, 3) for verb in ("status", "logs", "explain", "parked", "metrics", "graph")),
    *("ls --status failed,parked --limit 1", "events list 1 --type step_completed --after 3", "status 99", "resume 2"),
    *(
        "judge 2 broken retry",
        "dlq list 4",
        "dlq show 4 0",
        "dlq stats 4",
        "dlq retry 4 --dry-run",
        "dlq retry 3 --dry-run",
        "judge 3 nothing retry",
    ),
]


@pytest.mark.parametrize("words", [*TEXTS, *(f"{words} --json" for words in DOCUMENTS)])
def test_a_verb_says_the_same(caller: Caller, words: str) -> None:
    """On the database, and through the server that serves it."""
    caller.file("flow.yaml", flows.HELLO)
    local, remote = (caller.call(*words.split(" "), remote=remote) for remote in (False, True))
    assert (masked(remote.stdout), remote.returncode) == (masked(local.stdout), local.returncode)
    assert masked(remote.stderr) == masked(local.stderr)


def test_submit_and_follow(caller: Caller) -> None:
    """`submit` prints the number; `submit --wait` and `run` exit as the run ends, and print what `run` prints."""
    file = caller.file("hello.yaml", flows.HELLO)
    made = msgspec.json.decode(caller.remote("submit", file, "--json", "--key", "mine"))
    again = msgspec.json.decode(caller.remote("submit", file, "--json", "--key", "mine"))
    assert made["run"] == again["run"]
    local = caller.call("run", file, remote=False)
    done = caller.call("run", file, remote=True)
    run = re.compile(r"\brun \d+|\d+\.\d s")
    assert (run.sub("", done.stdout), done.returncode) == (run.sub("", local.stdout), 0)
    assert [masked(line) for line in done.stderr.splitlines()[1:]] == [
        masked(line) for line in local.stderr.splitlines()[1:]
    ]
    failed = caller.call("submit", caller.file("fails.yaml", flows.FAILS), "--wait", remote=True)
    assert (failed.returncode, "exit code 7" in failed.stdout) == (1, True)


def test_run_shows_what_steps_print(caller: Caller) -> None:
    """`--verbose` reads the output of the attempts over HTTP."""
    done = caller.call("run", caller.file("hello.yaml", flows.HELLO), "--verbose", remote=True)
    assert {"greet | 0123456789", "greet ! oops"} <= set(done.stderr.splitlines())


def test_files_beside_are_sent(caller: Caller) -> None:
    """A child workflow and the items of a map are on the server; the folder here is not."""
    caller.file("child.yaml", "resile: 1\nname: child\nsteps:\n  inner: {shell: 'echo from the child'}\n")
    caller.file("items.json", '["x", "y"]')
    text = """
resile: 1
name: parent
inputs: {who: {type: text, required: true}}
steps:
  call: {workflow: child.yaml}
  each: {map: {input: items.json, steps: {one: {shell: 'echo item ${item} ${inputs.who}; pwd'}}}}
"""
    number = re.compile(r"run (\d+)")
    done = caller.call("run", caller.file("parent.yaml", text), "--input", "who=me", remote=True)
    assert done.returncode == 0, done
    found = number.search(done.stdout)
    assert found is not None
    logs = caller.remote("logs", found[1])
    assert "from the child" in logs
    assert "item x me" in logs
    assert f"\n{caller.server.folder}\n" not in logs


def test_a_file_elsewhere_is_not_sent(caller: Caller, tmp_path: Path) -> None:
    """Only what is below the folder of the workflow."""
    (tmp_path / "child.yaml").write_text("resile: 1\nname: child\nsteps:\n  inner: {shell: 'true'}\n")
    path = os.path.relpath(tmp_path / "child.yaml", caller.server.folder)
    file = caller.file("out.yaml", f"resile: 1\nname: p\nsteps:\n  call: {{workflow: {path}}}\n")
    done = caller.call("submit", file, remote=True)
    assert (done.returncode, "not below the folder" in done.stderr) == (2, True)


def test_a_wrong_file_is_refused_with_its_lines(caller: Caller) -> None:
    """As on the database; the server is not asked."""
    file = caller.file("wrong.yaml", "resile: 1\nname: w\nsteps:\n  a: {shel: 'true'}\n")
    local, remote = (caller.call("submit", file, remote=remote) for remote in (False, True))
    assert (remote.stderr, remote.returncode) == (local.stderr, 2)


def test_a_judgement_makes_the_run_go_on(caller: Caller) -> None:
    """The server drives it, with --resume the command follows it, and a second judge is refused."""
    api = caller.server.api
    run = api.start(flows.PARKED)
    api.wait_for(run, "step_parked")
    assert "its engine goes on" in caller.remote("judge", str(run), "flaky", "skip", "--reason", "seen")
    api.wait_for(run)
    assert api.get(f"/runs/{run}").json["status"] == "completed"
    second = caller.call("judge", str(run), "flaky", "retry", remote=True)
    assert second.returncode == 2
    run = api.start(flows.PARKED)
    api.wait_for(run, "step_parked")
    done = caller.call("judge", str(run), "flaky", "fail", "--resume", remote=True)
    assert (done.returncode, f"run {run} parked failed" in done.stdout) == (1, True)
    lines = [re.sub(r"^[\d:]+ ", "", line) for line in done.stderr.splitlines()]
    assert lines[0] == f"run {run}: flaky (job 1) is judged fail"
    assert "flaky started" not in lines, "what was before the judgement is not shown again"
    assert "flaky failed after 1 attempt" in lines


def test_warnings_come_first(caller: Caller) -> None:
    """`run` says them before the progress of the run, as on the database."""
    text = "name: w\nfailure_handlers: [{name: h, rules: [{exit_codes: [9], max_retries: 1}]}]\n"
    file = caller.file("warned.yaml", text + "jobs: [{name: a, command: 'true', failure_handler: h}]\n")
    lines = caller.call("run", file, remote=True).stderr.splitlines()
    assert ["`max_retries: 1` is one attempt" in line for line in lines][:3] == [False, True, False], lines


def test_an_answer_and_a_cancel(caller: Caller) -> None:
    """A question is answered; a parked run is canceled to its end."""
    api = caller.server.api
    run = api.start(QUESTION)
    api.wait_for(run, "step_parked")
    assert "is answered" in caller.remote("answer", str(run), "review", "yes")
    api.wait_for(run)
    run = api.start(flows.PARKED)
    api.wait_for(run, "step_parked")
    assert caller.remote("cancel", str(run)) == f"run {run} was canceled\n"


def test_a_rerun_and_dead_letters(caller: Caller) -> None:
    """`rerun` follows the next epoch; `dlq retry` and `dlq purge` count what they did."""
    api = caller.server.api
    run = str(api.finish(flows.LETTERS))
    document = msgspec.json.decode(caller.remote("dlq", "retry", run, "--json", code=1))
    assert [document[name] for name in ("map", "selected", "succeeded", "failed", "left")] == ["each", 2, 0, 2, 2]
    directory = msgspec.json.decode(caller.remote("dlq", "list", run, "--json"))["dead_letters"]
    assert [letter["failure_count"] for letter in directory] == [2, 2]
    purged = msgspec.json.decode(caller.remote("dlq", "purge", run, "--yes", "--json"))
    assert (purged["purged"], purged["dead_letters"]) == (2, 0)
    assert "epoch" not in caller.remote("rerun", run, code=1)
    assert api.get(f"/runs/{run}").json["epoch"] == 2
    assert caller.call("resume", run, remote=True).returncode == 1


def test_a_driven_run_is_not_resumed(caller: Caller, tmp_path: Path) -> None:
    """It says that it is being driven; `cancel` asks its engine; `logs -f` ends with it."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = caller.server.api.start(flows.WAITS, inputs={"gate": str(gate)})
    caller.server.api.wait_for(run, "attempt_started")
    refused = caller.call("resume", str(run), remote=True)
    assert (refused.returncode, "is being driven" in refused.stderr) == (2, True)
    for words in ("rerun", "rerun --json", "reset --failed-only", "reset --failed-only --json"):
        verb, *options = words.split(" ")
        local, remote = (caller.call(verb, str(run), *options, remote=remote) for remote in (False, True))
        assert (remote.stdout, remote.stderr, remote.returncode) == (local.stdout, local.stderr, 2), words
    local, remote = (caller.call("resume", str(run), "--json", remote=remote) for remote in (False, True))
    codes = [msgspec.json.decode(said.stdout)["error"]["code"] for said in (local, remote)]
    assert codes == ["lease-held", "lease-held"]
    follower = subprocess.Popen(
        [sys.executable, "-m", "resile.cli.main", "logs", str(run), "hold", "--attempt", "1", "--stdout", "-f"],
        env={**caller.server.env, "RESILE_SERVER": caller.server.api.url},
        stdout=subprocess.PIPE,
    )
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"begun\n"
    gate.write_text("go\n")
    assert (follower.stdout.read(), follower.wait(DEADLINE_SECONDS)) == (b"went\n", 0)
    follower.stdout.close()
    assert f"run {run} completed" in caller.remote("cancel", str(run))


def test_a_follower_outlives_its_server(serve: Callable[..., Server], tmp_path: Path) -> None:
    """Events and output go on where they broke off, once the server is back at its address."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server = serve()
    port = str(server.port)
    run = server.api.start(flows.WAITS, inputs={"gate": str(gate)})
    server.api.wait_for(run, "attempt_started")
    env = {**server.env, "RESILE_SERVER": server.api.url}
    program = [sys.executable, "-m", "resile.cli.main"]
    followers = [
        subprocess.Popen([*program, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for words in (
            ["events", "follow", str(run), "--json"],
            ["logs", str(run), "hold", "--attempt", "1", "--stdout", "-f"],
        )
    ]
    firsts = [follower.stdout.readline() for follower in followers if follower.stdout is not None]
    assert server.stop() == 0
    following = serve("--port", port)
    gate.write_text("go\n")
    following.api.wait_for(run)
    events, logs = (
        first + follower.stdout.read()
        for first, follower in zip(firsts, followers, strict=True)
        if follower.stdout is not None
    )
    assert [follower.wait(DEADLINE_SECONDS) for follower in followers] == [0, 0]
    seqs = [msgspec.json.decode(line)["seq"] for line in events.splitlines()]
    assert seqs == [event["seq"] for event in following.api.get(f"/runs/{run}/events").json["items"]]
    assert logs == b"begun\nwent\n"


def test_tokens(serve: Callable[..., Server], tmp_path: Path) -> None:
    """401 and 403 say what to do; a token comes from the variable or from a file; steps do not see it."""
    secret, file, known = "s" * 43, tmp_path / "token", tmp_path / "tokens"
    file.write_text(secret + "\n")
    known.write_text(f"boss admin {secret}\n")
    caller = Caller(serve("--token-file", str(known)))
    made = caller.remote("token", "create", "eyes", "--role", "viewer", "--json", RESILE_TOKEN=secret)
    low = msgspec.json.decode(made)["secret"]
    missing = caller.call("ls", remote=True)
    assert (missing.returncode, "RESILE_TOKEN" in missing.stderr) == (2, True)
    flow = caller.file("env.yaml", "resile: 1\nname: e\nsteps:\n  a: {shell: 'echo [$RESILE_TOKEN]'}\n")
    forbidden = caller.call("submit", flow, remote=True, RESILE_TOKEN=low)
    assert (forbidden.returncode, "needs the role operator" in forbidden.stderr) == (2, True)
    assert caller.remote("run", flow, "--token-file", str(file), "--json")
    assert "[]" in caller.remote("logs", "1", RESILE_TOKEN=secret)
    assert "eyes" in caller.remote("token", "ls", RESILE_TOKEN=secret)
    caller.remote("token", "revoke", "eyes", RESILE_TOKEN=secret)
    assert "eyes" not in caller.remote("token", "ls", RESILE_TOKEN=secret)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("ls --server http://127.0.0.1:1", "no server answers at http://127.0.0.1:1: Connection refused"),
        ("ls --server nonsense", "is not the address of a server"),
        ("ls --server http://127.0.0.1:1 --db x.db", "exclude each other"),
        ("db check --server http://127.0.0.1:1", "works on this machine"),
        ("check flow.yaml --server http://127.0.0.1:1", "works on this machine"),
        ("server --server http://127.0.0.1:1", "works on this machine"),
        ("judge 1 a retry --max-parallel 2 --server http://127.0.0.1:1", "and here the server does"),
        ("run flow.yaml --credentials x --server http://127.0.0.1:1", "--credentials works on this machine"),
        ("run flow.py --server http://127.0.0.1:1", "a workflow in Python is not sent"),
    ],
)
def test_what_is_refused(tmp_path: Path, words: str, message: str) -> None:
    """With exit 2, a message and a hint."""
    (tmp_path / "flow.py").touch()
    env = {name: value for name, value in os.environ.items() if not name.startswith("RESILE_")}
    done = subprocess.run(
        [sys.executable, "-m", "resile.cli.main", *words.split()], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert (done.returncode, message in done.stderr, "hint: " in done.stderr) == (2, True, True), done.stderr


def test_plain_commands_do_not_load_it(caller: Caller) -> None:
    """Neither the HTTP client nor the commands on a server."""
    code = "import sys; sys.argv = ['resile', 'run', 'hello.yaml']; from resile.cli.main import carry_out; "
    code += "carry_out(sys.argv[1:]); print(*sorted(sys.modules))"
    caller.file("hello.yaml", flows.HELLO)
    env = {**caller.server.env, "RESILE_DB": caller.server.db}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=caller.server.folder, env=env, capture_output=True, text=True, timeout=60
    )
    loaded = done.stdout.split()
    assert "resile.commands.client" in loaded
    assert not {"http.client", "resile.commands.remote", "resile.cli.remote"} & set(loaded)


def test_from_python(caller: Caller) -> None:
    """`Client(url)` has the methods that the client of a database has."""
    api, url = caller.server.api, caller.server.api.url
    path = caller.server.folder / caller.file("hello.yaml", flows.HELLO)
    seen: list[str] = []
    client = resile.Client(url)
    done = client.submit(path, on_event=lambda event: seen.append(event["type"]))
    assert (done.status, done.exit_code, done.document["run"]) == ("completed", 0, done.id)
    assert seen[-1] == "playbook_completed"
    assert client.get(done.id) == resile.Client(caller.server.db).get(done.id)
    assert done.id in [run["run"] for run in client.runs()]
    assert client.resume(done.id).status == "completed"
    run = api.start(flows.PARKED)
    api.wait_for(run, "step_parked")
    assert client.judge(run, "flaky", "fail", reason="no")["driven"]
    api.wait_for(run)
    assert client.cancel(run)["status"] == "failed"
    assert client.explain(run)["status"] == "failed"
    letters = list(client.dead_letters(api.finish(flows.LETTERS)))
    assert [letter["index"] for letter in letters] == [0, 2]
    with pytest.raises(ResileError, match="there is no run 999"):
        client.get(999)
    with pytest.raises(ResileError, match="does not give out the result"):
        done.result("greet")
    with pytest.raises(ResileError, match="a token is for a server"):
        resile.Client("x.db", token="secret")


def test_what_a_server_does_not_offer() -> None:
    """Every command of a database is one of a server, or is refused."""
    offered = {name for name in vars(RemoteClient) if not name.startswith("_")}
    everything = {name for name in vars(Client) if not name.startswith("_")}
    left = everything - offered - {"at"}
    assert left <= {"check_database", "parked_step"}
