"""Actions: commands that run when something has happened to the workflow, to its jobs or to a worker.

    on_workflow_start, on_worker_start          a step that everything else waits for, in this order
    on_jobs_ready                               a step that waits for what its jobs wait for, and they for it
    on_jobs_complete                            a step that runs when its jobs are over, however they ended
    on_workflow_complete, on_worker_complete    `end`, in this order

A run on one machine has one worker. An action that fails is tolerated, except in `end`, whose failure fails the run.
`schedule_nodes` starts no process: it is kept for a cluster.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.reading.context import Reading
from resile.dialects.torc.cluster import kept_for_clusters
from resile.dialects.torc.commands import ENVIRONMENT, for_bash, script_of
from resile.dialects.torc.jobs import Job, Names
from resile.dialects.torc.keys import ACTION
from resile.dialects.torc.values import read_list
from resile.model.cluster import Allocation, Scheduler, Trigger
from resile.model.rules import Origin, Rule
from resile.model.workflow import Need, Noop, Shell, Step

BEGIN = "begin"
_ABOUT_JOBS = ("on_jobs_ready", "on_jobs_complete")
_AT_START = ("on_workflow_start", "on_worker_start")
_AT_END = ("on_workflow_complete", "on_worker_complete")
_OF_COMMANDS = ("commands",)
_OF_NODES = ("scheduler", "scheduler_type", "num_allocations", "start_one_worker_per_node", "max_parallel_jobs")


class Action(Struct, frozen=True):
    """Commands and when they run."""

    trigger: Trigger
    commands: tuple[Scalar, ...]
    jobs: tuple[str, ...]
    node: Mapping


def read_actions(
    reading: Reading, node: Node | None, jobs: dict[str, Job], schedulers: dict[str, Scheduler], names: Names
) -> tuple[list[Action], tuple[Allocation, ...]]:
    """The actions that run commands, and those that ask for machines."""
    actions: list[Action] = []
    allocations: list[Allocation] = []
    for entry, fields in read_list(reading, node, ACTION, "trigger_type", "action_type"):
        trigger, kind = fields["trigger_type"], fields["action_type"]
        chosen = _jobs(reading, entry, fields, jobs, names)
        is_commands = kind == "run_commands"
        for word in _OF_NODES if is_commands else _OF_COMMANDS:
            if word in entry.entries:
                reading.report.error("conflict", f"`{word}` has no meaning with `{kind}`", entry.entries[word][0])
        needed = "commands" if is_commands else "scheduler"
        if needed not in entry.entries or (is_commands and not fields.get("commands")):
            reading.report.error("value", f"`{kind}` needs `{needed}`", entry)
        elif is_commands:
            if fields.get("persistent"):
                place = entry.entries["persistent"][0]
                reading.report.notice("persistent", "a run on this machine has one worker: this runs once", place)
            actions.append(Action(trigger, fields["commands"], chosen, entry))
        elif names.known({fields["scheduler"].text: fields["scheduler"]}, schedulers, "scheduler"):
            kept_for_clusters(reading, entry, "`schedule_nodes`")
            allocations.append(_allocation(fields, chosen))
    return actions, tuple(allocations)


def _allocation(fields: dict[str, Any], jobs: tuple[str, ...]) -> Allocation:
    """One request for machines."""
    return Allocation(
        fields["scheduler"].text,
        fields["trigger_type"],
        jobs,
        fields.get("num_allocations", 1),
        fields.get("start_one_worker_per_node", False),
        fields.get("max_parallel_jobs"),
        fields.get("persistent", False),
    )


def _jobs(
    reading: Reading, entry: Mapping, fields: dict[str, Any], jobs: dict[str, Job], names: Names
) -> tuple[str, ...]:
    """The jobs that an action is about."""
    given = [word for word in ("jobs", "job_name_regexes") if word in entry.entries]
    if fields["trigger_type"] not in _ABOUT_JOBS:
        for word in given:
            message = f"`{word}` changes nothing: `{fields['trigger_type']}` is not about single jobs"
            reading.report.warning("conflict", message, entry.entries[word][0], hint=f"take `{word}` out")
    elif not given:
        hint = "list `jobs` or `job_name_regexes`"
        reading.report.error("value", f"`{fields['trigger_type']}` needs to know of which jobs", entry, hint=hint)
    listed = names.known({node.text: node for node in fields.get("jobs", ())}, jobs, "job")
    matching = names.matching({node.text: node for node in fields.get("job_name_regexes", ())}, jobs, "job")
    return tuple(dict.fromkeys((*listed, *matching))) if fields["trigger_type"] in _ABOUT_JOBS else ()


class Placed(Struct, frozen=True):
    """The steps of a workflow with those of its actions, and its end."""

    steps: tuple[Step, ...]
    end: Step


def place_actions(reading: Reading, steps: tuple[Step, ...], actions: list[Action], begin: str) -> Placed:
    """Put the actions among the jobs."""
    by_name = {step.name: step for step in steps}
    added: dict[str, Step] = {}
    before = ""
    for trigger in _AT_START:
        for action in [action for action in actions if action.trigger == trigger]:
            before = _add(reading, by_name, added, action, (Need((before,)),) if before else ())
    first = Need((before,)) if before else None
    for action in actions:
        if action.trigger == "on_jobs_complete":
            _add(reading, by_name, added, action, tuple(Need((job, begin)) for job in action.jobs))
        elif action.trigger == "on_jobs_ready":
            needs = tuple(dict.fromkeys(need for job in action.jobs for need in by_name[job].needs))
            name = _add(reading, by_name, added, action, needs or ((first,) if first else ()))
            for job in action.jobs:
                # Those that become ready now wait for the commands; one that was ready earlier may be running.
                if set(by_name[job].needs) == set(needs):
                    by_name[job] = replace(by_name[job], needs=(*needs, Need((name,))))
    if first is not None:
        for name, step in by_name.items():
            if not step.needs and name != begin:
                by_name[name] = replace(step, needs=(first,))
    last = [action for trigger in _AT_END for action in actions if action.trigger == trigger]
    commands = [command for action in last for command in action.commands]
    end = Step(
        name="end",
        action=_shell(reading, commands) if commands else Noop(),
        origin=_origin(last[0]) if last else Origin(1, 1),
    )
    return Placed((*by_name.values(), *added.values()), end)


def _add(
    reading: Reading, taken: dict[str, Step], added: dict[str, Step], action: Action, needs: tuple[Need, ...]
) -> str:
    """A step for an action; its name."""
    name = free_name(action.trigger, {**taken, **added})
    rules = (Rule(then="tolerate", text=f"{action.trigger}: an action", origin=_origin(action)),)
    shell = _shell(reading, list(action.commands))
    added[name] = Step(name=name, action=shell, needs=needs, rules=rules, origin=_origin(action))
    return name


def _shell(reading: Reading, commands: list[Scalar]) -> Shell:
    """Commands one after the other."""
    return Shell(ENVIRONMENT + script_of([for_bash(reading, command.text, command) for command in commands]), "bash")


def _origin(action: Action) -> Origin:
    """Where an action stands."""
    return Origin(action.node.line, action.node.column)


def free_name(wanted: str, taken: dict[str, Any]) -> str:
    """A name that no step has."""
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name
