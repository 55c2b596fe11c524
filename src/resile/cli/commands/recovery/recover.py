"""`recover`: the plan, then rounds in which failed jobs run again with what they lacked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from resile.cli.commands.run import drive
from resile.cli.display import output
from resile.cli.parse import Call, refusal
from resile.commands.documents.recovery import Granted, PlannedRecovery, Recovered
from resile.commands.recovery.planning import RecoveryOptions, RoundPlan, plan_round
from resile.commands.recovery.rounds import carry_out, run_hook
from resile.commands.run import RunOutcome
from resile.commands.start.call import ResourceLimits
from resile.commands.store_handle import StoreHandle
from resile.model.limits import size
from resile.model.status import EXIT_CODES, status_clause

_OF_AGENT = ("timeout", "default")
_OF_RECOVERY = (
    *("dry-run", "memory-multiplier", "runtime-multiplier", "memory-max", "runtime-max", "retry-unknown"),
    *("park-unknown", "recovery-hook", "max-rounds"),
)


def recover(call: Call) -> int:
    """Recover a run: by what its attempts left as evidence, or by an agent."""
    command = call.text("agent")
    others = _OF_RECOVERY if command is not None else _OF_AGENT
    for key in others:
        if call.flag(key):
            verb = "does not go with" if command is not None else "goes with"
            raise refusal(f"--{key} {verb} --agent", "`resile recover --help` shows both ways")
    if command is not None:
        from resile.cli.commands.agents import recover as recover_by_agent

        return recover_by_agent(call, command)
    if call.server:
        hint = "run it on the server's machine, with --db; `--agent` works through a server"
        raise refusal("`resile recover` without --agent works on a database", hint)
    return Recovery(call, options_of(call)).go_through(dry_run=call.flag("dry-run"))


def options_of(call: Call) -> RecoveryOptions:
    """The options of a recovery."""
    if call.flag("retry-unknown") and call.flag("park-unknown"):
        raise refusal("--retry-unknown and --park-unknown exclude each other", "a failure runs again, or it waits")
    given = RecoveryOptions()
    factors: dict[str, float] = {}
    for key, default in (
        ("memory-multiplier", given.memory_multiplier),
        ("runtime-multiplier", given.runtime_multiplier),
    ):
        found = call.number(key)
        if found is not None and not 1 <= found <= 1000:
            raise refusal(f"--{key} is a number from 1 to 1000, not {found:g}", "a job never gets less than it had")
        factors[key] = default if found is None else found
    return RecoveryOptions(
        memory_multiplier=factors["memory-multiplier"],
        runtime_multiplier=factors["runtime-multiplier"],
        memory_bytes_max=call.size("memory-max") or given.memory_bytes_max,
        runtime_seconds_max=call.duration("runtime-max") or given.runtime_seconds_max,
        retry_unknown=call.flag("retry-unknown"),
        park_unknown=call.flag("park-unknown"),
        hook=call.word("recovery-hook"),
        rounds_max=call.whole("max-rounds") or given.rounds_max,
    )


class Recovery:
    """The rounds of one recovery, and what was planned in them."""

    def __init__(self, call: Call, options: RecoveryOptions) -> None:
        self._call = call
        self._options = options
        self._rounds = 0
        self._done: list[PlannedRecovery] = []

    def go_through(self, *, dry_run: bool = False) -> int:
        """Recover the run round by round until nothing helps any more; return the exit code."""
        call, options = self._call, self._options
        while True:
            plan = self._plan()
            spent = self._rounds >= options.rounds_max
            if not (call.json or (self._rounds and plan.status == "completed")):
                self._print(plan, spent=spent)
            if dry_run or spent or not plan.events:
                return self._conclude(plan)
            problem = run_hook(options.hook, call.run) if options.hook else ""
            if problem:
                output.say(f"resile: {problem}; nothing was run again")
                return self._conclude(plan)
            finished = self._carry_out(plan)
            if finished is None or finished.status == "interrupted":
                return EXIT_CODES["interrupted"]
            self._done += [job for job in plan.jobs if job.action != "stay"]
            self._rounds += 1

    def _plan(self) -> RoundPlan:
        """The plan of the next round."""
        with closing(StoreHandle(self._call.database)) as stores:
            return plan_round(stores.read(), self._call.run, self._options, self._rounds + 1)

    def _carry_out(self, plan: RoundPlan) -> RunOutcome | None:
        """Let the jobs of a plan run again."""
        call = self._call
        limits = ResourceLimits(max_parallel=call.whole("max-parallel"))
        launcher = None if self._rounds else call.launcher
        # The engine of each round has a store, and so a writer, of its own.
        with closing(StoreHandle(call.database)) as stores:
            return drive(call, lambda watch: carry_out(stores.write(), plan, limits, watch, launcher))

    def _conclude(self, plan: RoundPlan) -> int:
        """Say how the recovery ended."""
        code = EXIT_CODES[plan.status]
        document = Recovered(run=plan.run, status=plan.status, rounds=self._rounds, plan=[*self._done, *plan.jobs])
        if self._call.json:
            output.print_document(document)
        elif self._rounds:
            rounds = output.plural(self._rounds, "round")
            output.write_text(f"run {plan.run} {status_clause(plan.status)} after {rounds} of recovery\n")
        if self._call.launcher is not None:
            self._call.launcher.socket.close()
        return code

    def _print(self, plan: RoundPlan, *, spent: bool) -> None:
        """Print a plan."""
        import sys

        page = output.Page(self._call.color, sys.stdout, output.place_of(self._call))
        output.write_text("\n".join(_plan_lines(plan, self._rounds + 1, self._options, spent, page)) + "\n")


def _plan_lines(
    plan: RoundPlan, number: int, options: RecoveryOptions, spent: bool, page: output.Page
) -> Iterator[str]:
    """A plan: each failed job with its evidence, its grant and what runs again."""
    head = f"run {plan.run} {output.escape(plan.workflow)} {page.status(plan.status, status_clause(plan.status))}"
    if not plan.jobs:
        yield f"{head}; there is nothing to recover"
        return
    if spent:
        yield f"{head}; {output.plural(options.rounds_max, 'round')} of recovery did not help (--max-rounds)"
    elif not plan.events:
        yield f"{head}; nothing is left that a recovery could do"
    else:
        yield f"{head}; recovery, round {number} of {options.rounds_max}"
    for job in plan.jobs:
        name = page.paint("bold", output.escape(job.step))
        yield from page.wrap(f"  {name}, job {job.job}: {job.diagnosis}: {output.escape(job.evidence)}", "    ")
        yield from page.wrap(f"    {_consequence(job, plan, spent)}", "      ")


def _consequence(job: PlannedRecovery, plan: RoundPlan, spent: bool) -> str:
    """What becomes of one job."""
    if spent and job.action == "retry":
        return "stays as it is"
    match job.action:
        case "retry":
            grant = "".join(f"{text}; " for text in _growth(job.granted, job.next))
            return f"{grant}runs again: {', '.join(map(output.escape, job.again))}"
        case "park":
            return "is parked: it waits for `resile judge`"
    if job.diagnosis == "unknown" and job.job in plan.parked:
        return "stays parked; `resile judge` decides about it, --retry-unknown runs it again"
    if job.diagnosis == "unknown" and plan.status == "parked":
        return "stays as it is; `resile judge` decides first about what is parked"
    if job.diagnosis == "unknown":
        return "stays as it is; --retry-unknown runs it again, --park-unknown lets it wait for a judgement"
    return "stays as it is"


def _growth(had: Granted, gets: Granted) -> Iterator[str]:
    """The grants that change, in words."""
    if gets.memory_bytes != had.memory_bytes and gets.memory_bytes is not None:
        before = "unlimited" if had.memory_bytes is None else size(had.memory_bytes)
        yield f"memory {before} -> {size(gets.memory_bytes)}"
    if gets.runtime_seconds != had.runtime_seconds and gets.runtime_seconds is not None:
        before = "unlimited" if had.runtime_seconds is None else f"{had.runtime_seconds:g}s"
        yield f"runtime {before} -> {gets.runtime_seconds:g}s"
