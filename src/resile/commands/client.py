"""`Client`: the object that a surface holds. The commands are its methods; they share one open store.

    with Client.at(db) as client:          the command line, Python programs
        client.status(7)
    Client(store)                          a surface that opens and closes its store itself

Each method imports its command when it is first called, because a surface needs few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from resile.commands.changed.client import ChangeCommands
from resile.commands.service.client import TokenCommands
from resile.commands.store_handle import StoreHandle

if TYPE_CHECKING:
    from resile.commands.database.prune import PruneFilter
    from resile.commands.documents import answers
    from resile.commands.documents import dead_letters as letter_documents
    from resile.commands.documents import jobs as job_documents
    from resile.commands.documents import runs as run_documents
    from resile.commands.inspect import RunFilter
    from resile.commands.judge import Judgement, ParkedStep
    from resile.commands.logs import AttemptOutput, LogFilter, LogPart
    from resile.commands.redrive import RedriveCall
    from resile.commands.run import EngineListener, RunOutcome
    from resile.commands.start.call import Given, ResourceLimits, RunCall
    from resile.core.actions import Note
    from resile.executors.local.prestart import Prestarted
    from resile.explain.report import Explanation
    from resile.model.failure import Failure
    from resile.store.contract import RunRow
    from resile.store.server_tables import SharedStore


class Client(ChangeCommands, TokenCommands):
    """The commands on one store."""

    def __init__(self, store: SharedStore) -> None:
        self._stores = StoreHandle(store=store)

    @classmethod
    def at(cls, db: str | None) -> Client:
        """A client that opens the store `db` when a command first needs it."""
        client = cls.__new__(cls)
        client._stores = StoreHandle(db)
        return client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store if this client opened it."""
        self._stores.close()

    def run(self, call: RunCall, listener: EngineListener, launcher: Prestarted | None = None) -> RunOutcome:
        """Run a workflow to its end."""
        from resile.commands.run import run

        return run(self._stores, call, listener, launcher)

    def submit(self, call: RunCall, *, priority: int = 0, key: str = "") -> answers.SubmittedRun:
        """Hand a run to the servers of this store."""
        from resile.commands.service.submit import submit

        return submit(self._stores, call, priority=priority, key=key)

    def wait(self, run: int, listener: EngineListener, act: Callable[[], object] | None = None) -> RunOutcome:
        """Follow a run that a server drives, until it ends or waits for judgement.

        `act` makes the run go on; earlier events are not shown.
        """
        from resile.commands.service.follow import wait

        return wait(self._stores.read(), run, listener, act)

    def resume(
        self, run: int, limits: ResourceLimits, listener: EngineListener, launcher: Prestarted | None = None
    ) -> RunOutcome:
        """Continue an interrupted or parked run."""
        from resile.commands.run import resume

        return resume(self._stores.write(), run, limits, listener, launcher)

    def rerun(
        self,
        run: int,
        limits: ResourceLimits,
        listener: EngineListener,
        launcher: Prestarted | None = None,
        *,
        failed_only: bool = False,
        as_new: bool = False,
        inputs: Given | None = None,
    ) -> RunOutcome:
        """Run the same definition again, in the next epoch of this run or as a new run; `inputs` replace its own."""
        from resile.commands.run import rerun

        store = self._stores.write()
        return rerun(store, run, limits, listener, launcher, failed_only=failed_only, as_new=as_new, inputs=inputs)

    def cancel(self, run: int, reason: str, listener: EngineListener) -> answers.CancelResult:
        """Cancel a run: ask its engine to, or end it here where no engine drives it."""
        from resile.commands.run import cancel

        return cancel(self._stores.write(), run, reason, listener)

    def reset(self, run: int, *, failed_only: bool = False) -> answers.ResetResult:
        """Reset steps to the start without running them."""
        from resile.commands.run import reset

        return reset(self._stores.write(), run, failed_only=failed_only)

    def runs(self, only: RunFilter | None = None) -> run_documents.RunList:
        """List the runs that a filter accepts, newest first; none where there is no store."""
        from resile.commands.inspect import RunFilter, list_runs

        return list_runs(self._stores.read() if self._stores.exists() else None, only or RunFilter())

    def status(self, run: int) -> run_documents.RunDocument:
        """Describe one run in full."""
        from resile.commands.inspect import status

        return status(self._stores.read(), run)

    def jobs(self, run: int) -> list[job_documents.KeyedJob]:
        """List the jobs of a run."""
        from resile.commands.service.jobs import list_jobs

        return list_jobs(self._stores.read(), run)

    def job(self, run: int, job: int) -> job_documents.JobDocument:
        """Describe one job of a run, with every attempt that it had."""
        from resile.commands.service.jobs import describe_job

        return describe_job(self._stores.read(), run, job)

    def events(
        self, run: int, types: Sequence[str] = (), after: int = 0, names: str = "", job: int = 0
    ) -> Iterator[run_documents.Event]:
        """List the events of a run so far."""
        from resile.commands.inspect import events

        return events(self._stores.read(), run, types, after, names, job)

    def follow_events(self, run: int, types: Sequence[str] = (), after: int = 0) -> Iterator[run_documents.Event]:
        """List the events of a run as they come, until no engine drives it."""
        from resile.commands.inspect import follow_events

        return follow_events(self._stores.read(), run, types, after)

    def logs(self, run: int, wanted: LogFilter | None = None, *, follow: bool = False) -> Iterator[LogPart]:
        """Read the output of a run's steps; with `follow` until no engine drives the run."""
        from resile.commands.logs import LogFilter, follow_logs, logs

        return (follow_logs if follow else logs)(self._stores.read(), run, wanted or LogFilter())

    def attempt_output(self, run: int, note: Note) -> AttemptOutput | None:
        """Find the output of the attempt that an event names."""
        from resile.commands.logs import attempt_output

        return attempt_output(self._stores.read(), run, note)

    def run_row(self, run: int) -> RunRow:
        """The row of a run in the store."""
        from resile.engine.replay import row_of

        return row_of(self._stores.read(), run)

    def export_logs(self, run: int, folder: str) -> answers.LogExport:
        """Write the output of every attempt to files in a folder."""
        from resile.commands.logs import export_logs

        return export_logs(self._stores.read(), run, folder)

    def parked_failures(self, run: int) -> answers.ParkedFailures:
        """List the failures that wait for judgement."""
        from resile.commands.judge import parked_failures

        return parked_failures(self._stores.read(), run)

    def judge(self, run: int, job: str, judgement: Judgement) -> answers.JudgementResult:
        """Judge a parked failure."""
        from resile.commands.judge import judge

        return judge(self._stores.write(), run, job, judgement)

    def parked_step(self, run: int, job: str) -> ParkedStep:
        """The step of one parked failure, with its workflow."""
        from resile.commands.judge import parked_step

        return parked_step(self._stores.read(), run, job)

    def answer(self, run: int, step: str, text: str) -> answers.JudgementResult:
        """Answer the question of a step."""
        from resile.commands.judge import answer

        return answer(self._stores.write(), run, step, text)

    def explain(self, run: int, step: str | None = None) -> Explanation:
        """Explain the failures of a run, or everything about one step, job or item."""
        from resile.commands.inspect import explain

        return explain(self._stores.read(), run, step)

    def story(self, run: int, step: str) -> Iterator[run_documents.Event]:
        """List the events of one step of a run and of what caused them, causes first."""
        from resile.commands.logs import story

        return story(self._stores.read(), run, step)

    def last_failures(self, run: int, jobs: Sequence[int]) -> dict[int, Failure]:
        """Find the last failure of each of these jobs, with the end of what it printed."""
        from resile.commands.inspect import last_failures

        return last_failures(self._stores.read(), run, jobs)

    def metrics(self, run: int) -> answers.RunMetrics:
        """Count the attempts and the rules of a run."""
        from resile.commands.metrics import metrics

        return metrics(self._stores.read(), run)

    def check_database(self, runs: Sequence[int] = (), *, accept: bool = False) -> answers.DatabaseCheck:
        """Check the database and some of its runs, or all; `accept` makes it usable although events of it are lost."""
        from resile.commands.database.check import check_database

        return check_database(self._stores, runs, accept=accept)

    def graph(self, run: int) -> answers.Graph:
        """The steps of a run and the edges between them, with their statuses."""
        from resile.commands.graph.build import graph_of_run

        return graph_of_run(self._stores.read(), run)

    def prune(self, only: PruneFilter, *, dry_run: bool = False) -> answers.Pruned:
        """Delete ended runs with their logs and letters; with `dry_run` only list them."""
        from resile.commands.database.prune import prune

        return prune(self._stores, only, dry_run=dry_run)

    def dead_letters(self, run: int, step: str | None = None) -> Iterator[letter_documents.DeadLetter]:
        """Read the dead letters of a run as a stream."""
        from resile.commands.dead_letters import letters

        return letters(self._stores.read(), run, step)

    def dead_letter(self, run: int, item: str, step: str | None = None) -> letter_documents.DeadLetterDocument:
        """Find one dead letter by the id or the index of its item."""
        from resile.commands.dead_letters import letter

        return letter(self._stores.read(), run, item, step)

    def dead_letter_statistics(self, run: int, step: str | None = None) -> letter_documents.LetterStatistics:
        """Count the dead letters of a run by failure, error and hour."""
        from resile.commands.dead_letters import statistics

        return statistics(self._stores.read(), run, step)

    def count_dead_letters(self, run: int, step: str | None = None, signature: str | None = None) -> int:
        """Count the dead letters that a purge would remove."""
        from resile.commands.dead_letters import count

        return count(self._stores.read(), run, step, signature)

    def maps_with_dead_letters(self, run: int, step: str | None = None) -> list[str]:
        """List the maps that have dead letters, by their paths."""
        from resile.commands.dead_letters import map_names

        return map_names(self._stores.read(), run, step)

    def purge(self, run: int, step: str | None = None, signature: str | None = None) -> letter_documents.PurgeResult:
        """Remove dead letters for good."""
        from resile.commands.dead_letters import purge

        return purge(self._stores.write(), run, step, signature)

    def remove_dead_letter(self, run: int, item: str, step: str | None = None) -> None:
        """Remove one dead letter for good."""
        from resile.commands.dead_letters import remove

        remove(self._stores.write(), run, item, step)

    def preview_redrive(self, call: RedriveCall) -> letter_documents.RedrivePreview:
        """List the items that a redrive would run."""
        from resile.commands.redrive import preview

        return preview(self._stores.read(), call)

    def redrive(self, call: RedriveCall, listener: EngineListener) -> letter_documents.RedriveResult:
        """Run dead letters again."""
        from resile.commands.redrive import redrive

        return redrive(self._stores.write(), call, listener)
