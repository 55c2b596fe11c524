"""`Client`: the object that a surface holds. The commands are its methods; they share one open store.

    with Client.at(db) as client:          the command line, Python programs
        client.status(7)
    Client(store)                          a surface that opens and closes its store itself

Each method imports its command when it is first called, because a surface needs few of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from resile.commands.store_handle import StoreHandle

if TYPE_CHECKING:
    from resile.commands.documents import answers
    from resile.commands.documents import dead_letters as letter_documents
    from resile.commands.documents import runs as run_documents
    from resile.commands.judge import Judgement
    from resile.commands.logs import LogPart, Stream
    from resile.commands.redrive import RedriveCall
    from resile.commands.run import EngineListener, ResourceLimits, RunCall, RunOutcome
    from resile.executors.local.prestart import Prestarted
    from resile.explain.report import Explanation
    from resile.store.contract import Store


class Client:
    """The commands on one store."""

    def __init__(self, store: Store) -> None:
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
    ) -> RunOutcome:
        """Run the same definition and inputs again: in the next epoch of this run, or as a new run."""
        from resile.commands.run import rerun

        return rerun(self._stores.write(), run, limits, listener, launcher, failed_only=failed_only, as_new=as_new)

    def cancel(self, run: int, reason: str, listener: EngineListener) -> answers.CancelResult:
        """Cancel a run: ask its engine to, or end it here where no engine drives it."""
        from resile.commands.run import cancel

        return cancel(self._stores.write(), run, reason, listener)

    def reset(self, run: int, *, failed_only: bool = False) -> answers.ResetResult:
        """Reset steps to the start without running them."""
        from resile.commands.run import reset

        return reset(self._stores.write(), run, failed_only=failed_only)

    def runs(self) -> run_documents.RunList:
        """List the runs, newest first; empty where there is no store."""
        from resile.commands.inspect import list_runs

        return list_runs(self._stores.read() if self._stores.exists() else None)

    def status(self, run: int) -> run_documents.RunDocument:
        """Describe one run in full."""
        from resile.commands.inspect import status

        return status(self._stores.read(), run)

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

    def logs(
        self,
        run: int,
        step: str | None = None,
        attempt: int | None = None,
        stream: Stream = "both",
        *,
        follow: bool = False,
    ) -> Iterator[LogPart]:
        """Read the output of a run's steps; with `follow` until no engine drives the run."""
        from resile.commands.logs import follow_logs, logs

        return (follow_logs if follow else logs)(self._stores.read(), run, step, attempt, stream)

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

    def explain(self, run: int, step: str | None = None) -> Explanation:
        """Explain the failures of a run, or everything about one step, job or item."""
        from resile.commands.inspect import explain

        return explain(self._stores.read(), run, step)

    def metrics(self, run: int) -> answers.RunMetrics:
        """Count the attempts and the rules of a run."""
        from resile.commands.metrics import metrics

        return metrics(self._stores.read(), run)

    def check_database(self, runs: Sequence[int] = (), *, accept: bool = False) -> answers.DatabaseCheck:
        """Check the database and some of its runs, or all; `accept` makes it usable although events of it are lost."""
        from resile.commands.database.check import check_database

        return check_database(self._stores, runs, accept=accept)

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

    def preview_redrive(self, call: RedriveCall) -> letter_documents.RedrivePreview:
        """List the items that a redrive would run."""
        from resile.commands.redrive import preview

        return preview(self._stores.read(), call)

    def redrive(self, call: RedriveCall, listener: EngineListener) -> letter_documents.RedriveResult:
        """Run dead letters again."""
        from resile.commands.redrive import redrive

        return redrive(self._stores.write(), call, listener)
