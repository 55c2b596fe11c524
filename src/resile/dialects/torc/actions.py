"""Actions: commands that run at events of the workflow, of its jobs or of a worker.

    on_workflow_start, on_worker_start          a step that all other steps wait for, in this order
    on_jobs_ready                               a step that waits for the needs of its jobs; the jobs wait for it
    on_jobs_complete                            a step that runs when its jobs are over, whatever their status
    on_workflow_complete, on_worker_complete    `end`, in this order

A run on one machine has one worker. The commands of an action run in the output directory, up to the first that fails.
A failed action is tolerated.
`schedule_nodes` starts no process: on a cluster, it requests allocations at the same events, and where a job is ready
without one (`auto_schedule_on_ready_jobs`). An action about ready jobs then holds before the commands that those jobs
wait for, because these need nodes, too.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, plain
from resile.dialects.native.nodes import StepPart, node_of, word
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import Place
from resile.dialects.torc.cluster import report_cluster_only
from resile.dialects.torc.commands import ENVIRONMENT, escape_for_bash, script_of, script_of_all, torc_on_path
from resile.dialects.torc.dependencies import Names
from resile.dialects.torc.jobs import Datum, Job
from resile.dialects.torc.keys import ACTION
from resile.dialects.torc.values import read_list
from resile.errors import shorten
from resile.model.cluster import AUTO

_ABOUT_JOBS = ("on_jobs_ready", "on_jobs_complete")
_MAY_BE_ABOUT_JOBS = (*_ABOUT_JOBS, AUTO)
_AT_START = ("on_workflow_start", "on_worker_start")
_AT_END = ("on_workflow_complete", "on_worker_complete")
_IN_OUTPUT = 'mkdir -p "$RESILE_OUTPUT_DIR" && cd "$RESILE_OUTPUT_DIR" || exit; '
_OF_NODES = ("scheduler", "scheduler_type", "num_allocations", "start_one_worker_per_node", "max_parallel_jobs")


class Action(Struct, frozen=True):
    """Commands and the event at which they run."""

    trigger: str
    commands: tuple[Scalar, ...]
    jobs: tuple[str, ...]
    node: Mapping


def read_actions(
    reading: Reading,
    node: Node | None,
    jobs: dict[str, Job],
    schedulers: dict[str, Node],
    names: Names,
    machines: dict[str, int],
) -> tuple[list[Action], list[dict[str, Any]]]:
    """Read the actions that run commands, and those that request machines for jobs that use several `machines`."""
    actions: list[Action] = []
    allocations: list[dict[str, Any]] = []
    for entry, fields in read_list(reading, node, ACTION, "trigger_type", "action_type"):
        trigger, kind = fields["trigger_type"], fields["action_type"]
        chosen = _find_jobs(reading, entry, fields, jobs, names)
        is_commands = kind == "run_commands"
        for key in _OF_NODES if is_commands else ("commands",):
            if key in entry.entries:
                reading.report.error("conflict", f"`{key}` has no meaning with `{kind}`", entry.entries[key][0])
        needed = "commands" if is_commands else "scheduler"
        if needed not in entry.entries or (is_commands and not fields.get("commands")):
            reading.report.error("value", f"`{kind}` needs `{needed}`", entry)
        elif is_commands and trigger == AUTO:
            reading.report.error("conflict", f"`{AUTO}` has no meaning with `{kind}`", entry)
        elif is_commands:
            if fields.get("persistent"):
                place = entry.entries["persistent"][0]
                reading.report.notice("persistent", "commands run once, not for every worker", place)
            actions.append(Action(trigger, fields["commands"], chosen, entry))
        elif names.find_known({fields["scheduler"].text: fields["scheduler"]}, schedulers, "scheduler"):
            report_cluster_only(reading, entry, "`schedule_nodes`")
            _refuse_idle_machines(reading, entry, fields, jobs, schedulers, machines)
            if trigger == "on_worker_start" and fields.get("persistent"):
                message = "each worker that starts schedules nodes, whose workers schedule more, until the run ends"
                reading.report.warning("persistent", message, entry.entries["persistent"][0])
            allocation = {
                "scheduler": fields["scheduler"],
                "trigger": trigger,
                "steps": chosen,
                "count": fields.get("num_allocations", 1),
                "worker_per_node": fields.get("start_one_worker_per_node", False),
                "worker_parallel_max": fields.get("max_parallel_jobs"),
                "persistent": fields.get("persistent", False),
            }
            allocations.append(allocation | {"at": entry})
    return actions, allocations


def _refuse_idle_machines(
    reading: Reading,
    entry: Mapping,
    fields: dict[str, Any],
    jobs: dict[str, Job],
    schedulers: dict[str, Node],
    machines: dict[str, int],
) -> None:
    """Refuse an allocation of several machines of which its jobs use one, as Torc does."""
    name = fields["scheduler"].text
    nodes = plain(schedulers[name])["nodes"]
    using = [job.name for job in jobs.values() if job.texts.get("scheduler") == name]
    fits = not using or any(machines.get(job, 1) == nodes for job in using)
    if nodes > 1 and "scheduler_type" in fields and not fields.get("start_one_worker_per_node") and not fits:
        message = (
            f"the scheduler `{shorten(name)}` allocates {nodes} nodes, and none of its jobs has `num_nodes: {nodes}`"
        )
        hint = f"write `num_nodes: {nodes}` into their requirements, or `start_one_worker_per_node: true` here"
        reading.report.error("nodes", message, entry, hint=hint)


def _find_jobs(
    reading: Reading, entry: Mapping, fields: dict[str, Any], jobs: dict[str, Job], names: Names
) -> tuple[str, ...]:
    """Find the jobs that an action names or matches."""
    given = [key for key in ("jobs", "job_name_regexes") if key in entry.entries]
    if fields["trigger_type"] not in _MAY_BE_ABOUT_JOBS:
        for key in given:
            message = f"`{key}` changes nothing: `{fields['trigger_type']}` is not about single jobs"
            reading.report.warning("conflict", message, entry.entries[key][0], hint=f"take `{key}` out")
    elif not given and fields["trigger_type"] in _ABOUT_JOBS:
        hint = "list `jobs` or `job_name_regexes`"
        reading.report.error("value", f"`{fields['trigger_type']}` needs to know of which jobs", entry, hint=hint)
    listed = names.find_known({node.text: node for node in fields.get("jobs", ())}, jobs, "job")
    matching = names.find_matching({node.text: node for node in fields.get("job_name_regexes", ())}, jobs, "job")
    return tuple(dict.fromkeys((*listed, *matching))) if fields["trigger_type"] in _MAY_BE_ABOUT_JOBS else ()


class Steps(Struct):
    """The native steps of a file, and the needs of each: names, or `a|` where the end of `a` is enough."""

    entries: dict[str, tuple[Scalar, Node]]
    needs: dict[str, tuple[str, ...]]

    def add(self, name: str, at: Place, keys: dict[str, Any], needs: tuple[str, ...] = ()) -> None:
        """Add a step with the position `at`."""
        self.entries[name] = word(name, at), StepPart(at, **keys).to_node()
        self.needs[name] = needs

    def make_node(self, at: Place) -> Mapping:
        """Make the native `steps`, with the needs of each."""
        key = word("needs", at)
        needed: dict[str, Node] = {}
        for name, needs in self.needs.items():
            step = self.entries[name][1]
            if needs and isinstance(step, Mapping):
                items = [needed.get(need) or needed.setdefault(need, _make_need(need, at)) for need in needs]
                step.entries["needs"] = key, Sequence(items, step.line, step.column)
        return Mapping(self.entries, at.line, at.column)


def whatever_became_of(job: str) -> str:
    """The need of a step that waits for the end of a job, whatever its status."""
    return f"{job}|"


def _make_need(need: str, at: Place) -> Node:
    """Make a native need."""
    if not need.endswith("|"):
        return word(need, at)
    return node_of({"any_of": need[:-1], "skip_satisfies": True, "failure_satisfies": True}, at)


def place_actions(reading: Reading, steps: Steps, actions: list[Action], user_data: dict[str, Datum]) -> None:
    """Add steps for the actions, and make jobs wait for them."""
    jobs = list(steps.entries)
    first: tuple[str, ...] = ()
    for action in _triggered_by(_AT_START, actions):
        first = (_add(reading, steps, action, user_data, first),)
    for action in actions:
        if action.trigger == "on_jobs_complete":
            _add(reading, steps, action, user_data, tuple(whatever_became_of(job) for job in action.jobs))
        elif action.trigger == "on_jobs_ready":
            needs = tuple(dict.fromkeys(need for job in action.jobs for need in steps.needs[job]))
            name = _add(reading, steps, action, user_data, needs or first)
            for job in action.jobs:
                # Jobs that become ready together wait for the action; one that was ready earlier may already run.
                if set(steps.needs[job]) == set(needs):
                    steps.needs[job] = (*needs, name)
    for name in jobs:
        if not steps.needs[name]:
            steps.needs[name] = first
    last = _triggered_by(_AT_END, actions)
    if last:
        steps.add("end", last[0].node, _keys_of(reading, last, user_data))


def place_allocations(steps: Steps, allocations: list[dict[str, Any]], jobs: dict[str, Job]) -> list[Node]:
    """Make the requests for allocations, with the steps of their triggers."""
    placed: list[Node] = []
    for one in allocations:
        given = {key: value for key, value in one.items() if key != "at"}
        chains = [_commands_before(steps, job, jobs) for job in given["steps"]]
        if given["trigger"] == "on_jobs_ready":
            given["steps"] = tuple(dict.fromkeys(chain[-1] for chain in chains))
        elif given["trigger"] == AUTO:
            given["steps"] = tuple(dict.fromkeys(name for chain in chains for name in chain))
        placed.append(node_of(given, one["at"]))
    return placed


def _commands_before(steps: Steps, job: str, jobs: dict[str, Job]) -> list[str]:
    """A job, and the steps of actions that it waits for, the first that runs last."""
    chain = [job]
    while earlier := [need for need in steps.needs[chain[-1]] if need.removesuffix("|") not in jobs]:
        chain.append(earlier[0])
    return chain


def _triggered_by(triggers: tuple[str, ...], actions: list[Action]) -> list[Action]:
    return [action for trigger in triggers for action in actions if action.trigger == trigger]


def _add(reading: Reading, steps: Steps, action: Action, user_data: dict[str, Datum], needs: tuple[str, ...]) -> str:
    """Add a step for an action, whose failure is tolerated; return its name."""
    name = _find_free_name(action.trigger, steps.entries)
    steps.add(name, action.node, _keys_of(reading, [action], user_data), needs)
    return name


def _keys_of(reading: Reading, actions: list[Action], user_data: dict[str, Datum]) -> dict[str, Any]:
    """The keys of a step for actions: each stops at its first failed command, and the failure is tolerated."""
    scripts = [
        script_of([escape_for_bash(reading, command.text, command) for command in action.commands])
        for action in actions
    ]
    rules = [{"then": "tolerate", "text": f"{actions[0].trigger}: an action"}]
    begin = ENVIRONMENT + torc_on_path(reading, scripts, user_data, actions[0].node) + _IN_OUTPUT
    return {"shell": begin + script_of_all(scripts), "rules": rules}


def _find_free_name(wanted: str, taken: dict[str, Any]) -> str:
    """Find a name that no step has."""
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name
