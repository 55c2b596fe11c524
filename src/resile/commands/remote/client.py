"""`RemoteClient`: the commands on a server. It refuses commands that need a database.

with RemoteClient("http://127.0.0.1:8700", token) as client:
    client.status(7)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import msgspec
from msgspec import Struct, structs

from resile.commands.client import Client
from resile.commands.documents import answers
from resile.commands.documents import dead_letters as letter_documents
from resile.commands.documents import jobs as job_documents
from resile.commands.documents import remote as remote_documents
from resile.commands.documents import runs as run_documents
from resile.commands.documents import tokens as token_documents
from resile.commands.remote.connection import Connection, Unreachable
from resile.commands.store_handle import StoreHandle
from resile.errors import ResileError
from resile.explain.report import Explanation
from resile.model.status import RUN_ENDED

if TYPE_CHECKING:
    from resile.commands.database.prune import PruneFilter
    from resile.commands.inspect import RunFilter
    from resile.commands.judge import Judgement
    from resile.commands.load import Loaded
    from resile.commands.logs import AttemptOutput, LogFilter, LogPart
    from resile.commands.redrive import RedriveCall
    from resile.commands.run import EngineListener, RunOutcome
    from resile.commands.start.call import Given, ResourceLimits, RunCall
    from resile.core.actions import Note
    from resile.executors.local.prestart import Prestarted
    from resile.model.failure import Failure
    from resile.store.contract import RunRow

JOBS_AT_ONCE = 90
_END = b": end\n"


class _Started(Struct, frozen=True):
    """The answer to the start of a run."""

    run: int
    status: str


class _Accepted(Struct, frozen=True):
    """The answer to an act."""

    run: int


class _Items(Struct, frozen=True):
    """The dead letters that run again."""

    items: list[str]


class _NoStore(StoreHandle):
    """Stands in for a store, and refuses the commands that a server does not offer."""

    def exists(self) -> bool:
        """True, because only the server knows whether there is a store."""
        return True

    def read(self) -> NoReturn:
        """Raise the error of a command that a server does not offer."""
        hint = "run the command on the server's machine, with --db"
        raise ResileError("not-on-server", "a server does not offer this: it needs the database", hint=hint)

    doubt = write = create = read


class RemoteClient(Client):
    """The commands on one server."""

    def __init__(self, url: str, token: str = "") -> None:
        self._stores = _NoStore()
        self._server = Connection(url, token)

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def run(self, call: RunCall, listener: EngineListener, launcher: Prestarted | None = None) -> RunOutcome:  # noqa: ARG002
        """Hand a workflow to the server, and follow its run to the end."""
        from resile.commands.start.notices import warning_lines

        found, loaded = self._submit(call, 0, "")
        if loaded.taken_for:
            listener.introduce(loaded.taken_for)
        return self._follow(found.run, listener, notices=warning_lines(loaded.warnings, call.path))

    def submit(self, call: RunCall, *, priority: int = 0, key: str = "") -> answers.SubmittedRun:
        """Hand a run to the server."""
        found, _ = self._submit(call, priority, key)
        return answers.SubmittedRun(run=found.run, status=found.status)

    def _submit(self, call: RunCall, priority: int, key: str) -> tuple[_Started, Loaded]:
        """Hand a run to the server; return its number, and the workflow that this process compiled."""
        from resile.commands.remote.submit import body_of

        body, loaded = body_of(call, priority, key)
        return self._server.post("/runs", body, _Started), loaded

    def wait(self, run: int, listener: EngineListener, act: Callable[[], object] | None = None) -> RunOutcome:
        """Follow a run until it ends or waits for judgement."""
        return self._follow(run, listener, act)

    def _follow(
        self,
        run: int,
        listener: EngineListener,
        act: Callable[[], object] | None = None,
        notices: Iterable[str] = (),
    ) -> RunOutcome:
        from resile.commands.remote.progress import follow_run

        return follow_run(self._server, run, listener, act, notices)

    def create_token(self, name: str, role: str, expires_seconds: float | None) -> token_documents.NewTokenDocument:
        """Make a token for the server."""
        body = {"name": name, "role": role}
        if expires_seconds is not None:
            body["expires"] = _seconds(expires_seconds)
        return self._server.post("/tokens", body, token_documents.NewTokenDocument)

    def tokens(self) -> token_documents.TokenList:
        """List the tokens."""
        return token_documents.TokenList(tokens=list(self._server.items("/tokens", token_documents.TokenDocument)))

    def revoke_token(self, name: str) -> token_documents.RevokedToken:
        """Revoke a token."""
        self._server.delete(f"/tokens/{quote(name, safe='')}")
        return token_documents.RevokedToken(name=name)

    def resume(
        self,
        run: int,
        limits: ResourceLimits,
        listener: EngineListener,
        launcher: Prestarted | None = None,  # noqa: ARG002
    ) -> RunOutcome:
        """Let the server go on with a run, and follow the run; return the outcome at once if the run has ended."""
        from resile.commands.remote.progress import ended_run

        act = partial(self._server.post, f"/runs/{run}/resume", _limits(limits), _Accepted)
        try:
            return self._follow(run, listener, act)
        except ResileError as error:
            if error.code != "run-ended":
                raise
        return ended_run(self._server, run)

    def rerun(
        self,
        run: int,
        limits: ResourceLimits,
        listener: EngineListener,
        launcher: Prestarted | None = None,  # noqa: ARG002
        *,
        failed_only: bool = False,
        as_new: bool = False,
        inputs: Given | None = None,
    ) -> RunOutcome:
        """Let the server run the same definition again, in this run or as a new one, and follow it."""
        if as_new and failed_only:
            from resile.commands.run import new_is_whole

            raise new_is_whole()
        body: dict[str, Any] = {"failed_only": failed_only, "as_new": as_new, **_limits(limits)}
        if inputs:
            from resile.commands.remote.submit import given_values
            from resile.model import codec

            log = self._server.get(f"/runs/{run}/log", remote_documents.RunLog)
            workflow = codec.decode(log.definition.encode())
            body["inputs"] = given_values(workflow, inputs, are_others_known=True)
        if as_new:
            return self._follow(self._server.post(f"/runs/{run}/rerun", body, _Started).run, listener)
        return self._follow(run, listener, partial(self._server.post, f"/runs/{run}/rerun", body, _Accepted))

    def cancel(self, run: int, reason: str, listener: EngineListener) -> answers.CancelResult:
        """Ask the server to cancel a run; if no engine drives the run, wait for its end."""
        status = self.status(run).status
        if status in RUN_ENDED:
            return answers.CancelResult(run=run, status=status, requested=False)
        act = partial(self._server.post, f"/runs/{run}/cancel", {"reason": reason}, _Accepted)
        try:
            if status == "running":
                act()
                return answers.CancelResult(run=run, status="running", requested=True)
            status = self._follow(run, listener, act).status
        except ResileError as error:
            if error.code != "run-ended":
                raise
            status = self.status(run).status
        return answers.CancelResult(run=run, status=status, requested=False)

    def reset(self, run: int, *, failed_only: bool = False) -> answers.ResetResult:
        """Reset steps to the start without running them."""
        return self._server.post(f"/runs/{run}/reset", {"failed_only": failed_only}, answers.ResetResult)

    def runs(self, only: RunFilter | None = None) -> run_documents.RunList:
        """List the runs that a filter accepts, newest first."""
        from resile.commands.inspect import RunFilter

        only = only or RunFilter()
        since = datetime.fromtimestamp(only.since, UTC).isoformat() if only.since else ""
        found = self._server.items(
            "/runs",
            run_documents.RunSummary,
            only.limit,
            status=",".join(only.statuses),
            workflow=only.workflow,
            since=since,
            label=[f"{name}:{value}" for name, value in only.labels.items()],
        )
        return run_documents.RunList(runs=list(found))

    def status(self, run: int) -> run_documents.RunDocument:
        """Describe one run in full."""
        return self._server.get(f"/runs/{run}", run_documents.RunDocument)

    def jobs(self, run: int) -> list[job_documents.KeyedJob]:
        """List the jobs of a run."""
        return list(self._server.items(f"/runs/{run}/jobs", job_documents.KeyedJob))

    def job(self, run: int, job: int) -> job_documents.JobDocument:
        """Describe one job of a run, with every attempt that it had."""
        return self._server.get(f"/runs/{run}/jobs/{job}", job_documents.JobDocument)

    def events(
        self, run: int, types: Sequence[str] = (), after: int = 0, names: str = "", job: int = 0
    ) -> Iterator[run_documents.Event]:
        """List the events of a run so far."""
        path = f"/runs/{run}/events"
        return self._server.items(path, run_documents.Event, type=list(types), after=after, names=names, job=job)

    def follow_events(self, run: int, types: Sequence[str] = (), after: int = 0) -> Iterator[run_documents.Event]:
        """List the events of a run as they come, until no engine drives it; a stream that breaks off is resumed."""
        # Ask for all types of events, so that the place to resume at is known.
        wanted = _own_names(types)
        while True:
            opened = self._server.lines(f"/runs/{run}/events/stream", {}, after=after, until_idle=True)
            try:
                with opened as stream:
                    for line in stream:
                        if line == _END:
                            return
                        if line.startswith(b"data: "):
                            event = msgspec.json.decode(line[6:], type=run_documents.Event)
                            after = event.seq
                            if not wanted or event.type in wanted:
                                yield event
            except Unreachable:
                # Wait until the server is back, or give up.
                self._server.patiently(partial(self._server.get, "/version", dict))

    def logs(self, run: int, wanted: LogFilter | None = None, *, follow: bool = False) -> Iterator[LogPart]:
        """Read the output of a run's steps; with `follow` until no engine drives the run."""
        from resile.commands.logs import LogFilter
        from resile.commands.remote.logs import logs

        return logs(self._server, run, wanted or LogFilter(), follow=follow)

    def attempt_output(self, run: int, note: Note) -> AttemptOutput | None:
        """Find the output of the attempt that an event names."""
        from resile.commands.remote.logs import attempt_output

        return attempt_output(self._server, run, note)

    def export_logs(self, run: int, folder: str) -> answers.LogExport:
        """Write the output of every attempt to files in a folder of this machine."""
        from resile.commands.remote.logs import export_logs

        return export_logs(self._server, run, folder)

    def run_row(self, run: int) -> RunRow:
        """The row of a run, with the fields that the run's document has."""
        from resile.store.contract import RunRow

        found = self.status(run)
        return RunRow(id=run, workflow=found.workflow, dialect=found.dialect, definition="", status=found.status)

    def parked_failures(self, run: int) -> answers.ParkedFailures:
        """List the failures that wait for judgement."""
        document = self.status(run)
        found = list(self._server.items(f"/runs/{run}/failures", answers.ParkedFailure))
        return answers.ParkedFailures(run=run, workflow=document.workflow, status=document.status, failures=found)

    def judge(self, run: int, job: str, judgement: Judgement) -> answers.JudgementResult:
        """Judge a parked failure; the server goes on with the run."""
        body: dict[str, Any] = {"job": job, "verdict": judgement.verdict, "reason": judgement.reason}
        if judgement.memory_bytes or judgement.runtime_seconds:
            body["verdict"] = "retry_with"
            body["memory"] = str(judgement.memory_bytes or "")
            body["runtime"] = _seconds(judgement.runtime_seconds) if judgement.runtime_seconds else ""
        if judgement.verdict == "skip":
            body["output"] = judgement.output
        if judgement.confidence is not None:
            body["confidence"] = judgement.confidence
        found = self._server.post(f"/runs/{run}/judgements", body, answers.JudgementResult)
        return structs.replace(found, driven=True)

    def answer(self, run: int, step: str, text: str) -> answers.JudgementResult:
        """Answer the question of a step; the server goes on with the run."""
        body = {"step": step, "text": text}
        found = self._server.post(f"/runs/{run}/answers", body, answers.JudgementResult)
        return structs.replace(found, driven=True)

    def explain(self, run: int, step: str | None = None) -> Explanation:
        """Explain the failures of a run, or everything about one step, job or item."""
        return self._server.get(f"/runs/{run}/explain", Explanation, step=step)

    def story(self, run: int, step: str) -> Iterator[run_documents.Event]:
        """List the events of one step of a run and of what caused them, causes first."""
        return self._server.items(f"/runs/{run}/events", run_documents.Event, story=step)

    def last_failures(self, run: int, jobs: Sequence[int]) -> dict[int, Failure]:
        """Find the last failure of each of these jobs, with the end of what it printed."""
        found: dict[int, Failure] = {}
        for start in range(0, len(jobs), JOBS_AT_ONCE):
            some = list(jobs[start : start + JOBS_AT_ONCE])
            page = self._server.get(f"/runs/{run}/last-failures", remote_documents.JobFailures, job=some)
            found |= {one.job: one.failure for one in page.failures}
        return found

    def metrics(self, run: int) -> answers.RunMetrics:
        """Count the attempts and the rules of a run."""
        return self._server.get(f"/runs/{run}/metrics", answers.RunMetrics)

    def graph(self, run: int) -> answers.Graph:
        """The steps of a run and the edges between them, with their statuses."""
        return self._server.get(f"/runs/{run}/drawing", answers.Graph)

    def prune(self, only: PruneFilter, *, dry_run: bool = False) -> answers.Pruned:
        """Delete ended runs with their logs and letters; with `dry_run` only list them."""
        return self._server.post("/prune", {**structs.asdict(only), "dry_run": dry_run}, answers.Pruned)

    def dead_letters(self, run: int, step: str | None = None) -> Iterator[letter_documents.DeadLetter]:
        """Read the dead letters of a run as a stream."""
        return self._server.items(f"/runs/{run}/dead-letters", letter_documents.DeadLetter, step=step)

    def dead_letter(self, run: int, item: str, step: str | None = None) -> letter_documents.DeadLetterDocument:
        """Find one dead letter by the id or the index of its item."""
        return self._server.get(_letter_path(run, item), letter_documents.DeadLetterDocument, step=step)

    def dead_letter_statistics(self, run: int, step: str | None = None) -> letter_documents.LetterStatistics:
        """Count the dead letters of a run by failure, error and hour."""
        return self._server.get(f"/runs/{run}/letter-statistics", letter_documents.LetterStatistics, step=step)

    def _counts(self, run: int, step: str | None, signature: str | None = None) -> remote_documents.LetterCounts:
        path = f"/runs/{run}/letter-counts"
        return self._server.get(path, remote_documents.LetterCounts, step=step, signature=signature)

    def count_dead_letters(self, run: int, step: str | None = None, signature: str | None = None) -> int:
        """Count the dead letters that a purge would remove."""
        return self._counts(run, step, signature).count

    def maps_with_dead_letters(self, run: int, step: str | None = None) -> list[str]:
        """List the maps that have dead letters, by their paths."""
        return self._counts(run, step).maps

    def purge(self, run: int, step: str | None = None, signature: str | None = None) -> letter_documents.PurgeResult:
        """Remove dead letters for good."""
        before = self._counts(run, step, signature).total
        self._server.delete(f"/runs/{run}/dead-letters", step=step, signature=signature)
        left = self._counts(run, None).total
        return letter_documents.PurgeResult(run=run, purged=before - left, dead_letters=left)

    def remove_dead_letter(self, run: int, item: str, step: str | None = None) -> None:
        """Remove one dead letter for good."""
        self._server.delete(_letter_path(run, item), step=step)

    def preview_redrive(self, call: RedriveCall) -> letter_documents.RedrivePreview:
        """List the items that a redrive would run."""
        path = f"/runs/{call.run}/redrive-preview"
        return self._server.post(path, _redrive_body(call), letter_documents.RedrivePreview)

    def redrive(self, call: RedriveCall, listener: EngineListener) -> letter_documents.RedriveResult:
        """Let the server run dead letters again, and follow it."""
        from resile.commands.redrive import UNFINISHED

        preview = self.preview_redrive(call)
        if not preview.selected:
            return self._redrive_result(call.run, None, "finished", 0, [])
        before = {letter.item_id: letter.failure_count for letter in self.dead_letters(call.run)}
        chosen: set[str] = set()

        def act() -> None:
            """Ask for the redrive."""
            path = f"/runs/{call.run}/dead-letters/retry"
            chosen.update(self._server.post(path, _redrive_body(call), _Items).items)

        status = self._follow(call.run, listener, act).status
        left = [
            letter.failure_count > before.get(letter.item_id, 0)
            for letter in self.dead_letters(call.run)
            if letter.item_id in chosen
        ]
        shown = status if status in UNFINISHED else "finished"
        return self._redrive_result(call.run, preview.map, shown, len(chosen), left)

    def _redrive_result(
        self, run: int, name: str | None, status: str, selected: int, left: list[bool]
    ) -> letter_documents.RedriveResult:
        """The result of a redrive; `left` tells for each item that is still a dead letter whether it ran."""
        from resile.model.status import EXIT_CODES

        unfinished: dict[str, int] = {word: code for word, code in EXIT_CODES.items() if word == status}
        return letter_documents.RedriveResult(
            run=run,
            map=name,
            status=status,
            selected=selected,
            succeeded=selected - len(left),
            failed=sum(left),
            left=len(left),
            dead_letters=self._counts(run, None).total,
            exit_code=unfinished.get(status, int(bool(left))),
        )


def _letter_path(run: int, item: str) -> str:
    return f"/runs/{run}/dead-letters/{quote(item, safe='')}"


def _redrive_body(call: RedriveCall) -> dict[str, Any]:
    """The selection of a redrive."""
    return {
        "items": list(call.items),
        "filter": call.filter or "",
        "step": call.step or "",
        "signature": call.signature or "",
        "force": call.force,
        "max_parallel": call.parallel,
    }


def _seconds(seconds: float) -> str:
    """A duration as the API takes it."""
    return f"{int(seconds)}s" if seconds == int(seconds) else f"{round(seconds * 1000)}ms"


def _limits(limits: ResourceLimits) -> dict[str, Any]:
    """The resources that a caller lets a run use, for the body of a request; the others stay as they are."""
    named = {
        "max_parallel": limits.max_parallel,
        "cpus": limits.cpus,
        "memory_bytes": limits.memory_bytes,
        "gpus": limits.gpus,
    }
    return {name: value for name, value in named.items() if value is not None}


def _own_names(types: Sequence[str]) -> frozenset[str]:
    """The wanted types of events, by our own names."""
    from resile.commands.events.names import ALIASES

    return frozenset(ALIASES.get(name, name) for name in types)
