"""More rows of the table of commands (table.py): those of daily use."""

from __future__ import annotations

from resile.cli.grammar import Command, Option
from resile.model.limits import LOOPS_MAX, PARALLEL_MAX, RETRIES_MAX

DIALECTS = ("native", "prodigy", "visor", "torc", "noetl")
COMPILE_OPTIONS = (
    Option("--dialect NAME", "the system a file is written for; else its shape decides", choices=DIALECTS),
    Option("--profile NAME", "the profile of a Prodigy file whose environment to add"),
)

EXECUTOR = Option(
    "--executor FILE", "run the steps on a cluster, as this TOML file says; local: on this machine", kind="file"
)
PARALLEL = Option("--max-parallel N", "run at most N steps at a time", kind="count", most=PARALLEL_MAX)
CAPACITY = (
    PARALLEL,
    Option("--cpus N", "CPUs for steps that ask for some", kind="number"),
    Option("--memory SIZE", "memory for steps that ask for some, such as 8g"),
    Option("--gpus N", "GPUs for steps that ask for some", kind="whole"),
)
INPUTS = (
    Option("--input NAME=VALUE", "a value for an input of the workflow", many=True),
    Option("--input-file NAME=PATH", "an input whose value is the content of a file", many=True),
    Option("--inputs FILE", "inputs from a file of YAML or JSON; --input wins", kind="file", many=True),
)
CHOICE = (
    Option("--from STEP...", "only these steps and all that follow them; the others count as done", many=True),
    Option("--only STEP...", "only these steps; the others count as done", many=True),
    Option("--skip STEP...", "all steps but these, which count as done", many=True),
)
LIMITS = (
    Option(
        "--max-loops N",
        "at most N jumps and remedies in each scope (the file's max_loops)",
        old="--on-fail-max-loops",
        kind="whole",
        most=LOOPS_MAX,
    ),
    Option("--retry-max N", "at most N retries of each step that has `retry`", kind="whole", most=RETRIES_MAX),
    Option("--label NAME=VALUE", "a label, by which `ls` finds the run", many=True),
    Option("--no-failure-routing", "no retry, run or goto; rules, handlers and park stay"),
    Option("--base COMMIT", "the branch or commit that `pr` and `files` of a Visor file are compared with"),
    Option("--force", "start although input files or data that jobs of a Torc file read are missing"),
)

CACHED = Option("--cached", "take over what has not changed since the last completed run of this workflow here")
RERUN = (
    Option("--failed-only", "keep what completed, run the rest"),
    Option("--changed", "take the file as it is now; run what changed since it ran, and all that hangs below"),
    Option("--dry-run", "with --changed: list the steps that would run, each with its reason"),
    Option("--force", "with --changed: although input files or data that jobs of a Torc file read are missing"),
    Option("--as-new", "make a new run of the same definition and inputs"),
)
RERUN_ABOUT = (
    "The run starts its next epoch: attempts and budgets count from zero. Inputs that are not given keep their "
    "values. The run keeps its own copy of the file, except with --changed; to use a changed file in a new run, call "
    "`resile run FILE`."
)

RUN_FILTERS = (
    Option("--status STATUS", "only runs with this status, or one of several: failed,parked"),
    Option("--workflow NAME", "only runs of the workflow of this name"),
    Option("--since TIME", "only runs that started since: 90m, 7d, 2026-11-17T06:00:00Z"),
    Option("--label NAME=VALUE", "only runs with this label", many=True),
    Option("--limit N", "the newest N runs; 100 by default", kind="count"),
)

LS = Command(
    "ls",
    "commands.runs:list_runs",
    "list the runs: by status, workflow, time or label",
    about=(
        "Several conditions must all hold. On a terminal the newest run is last; in a pipe and in the JSON it is "
        "first. `resile status` without RUN does the same."
    ),
    options=RUN_FILTERS,
    examples=(
        "resile ls",
        "resile ls --status failed,parked --since 7d",
        "resile ls --workflow nightly --label team=data --limit 5 --json",
    ),
    exits=("0  listed", "2  the call is wrong"),
)

GRAPH = Command(
    "graph FILE|RUN",
    "commands.inspect.graph:graph",
    "draw the steps of a file or a run and what connects them",
    about=(
        "Shows needs, arcs, what follows a success and what answers a failure, and the steps inside maps, child "
        "workflows and handlers. A run is colored by the status of its steps. A word of digits is a run; write ./7 for "
        "a file of that name."
    ),
    options=(
        Option("--format FORMAT", "text by default", choices=("text", "svg", "dot", "mermaid")),
        *COMPILE_OPTIONS,
    ),
    examples=(
        "resile graph release.yaml",
        "resile graph 7 --format svg > run-7.svg",
        "resile graph release.yaml --format dot | dot -Tpng > release.png",
    ),
    exits=("0  drawn", "2  the file can't be run, there is no such run, or the call is wrong"),
)

INIT = Command(
    "init [FILE]",
    "commands.files:init",
    "write a first workflow that fails and gets back up",
    about="The file has a comment at each part, and runs as it is. Without FILE it is called flow.yaml.",
    options=(Option("--force", "overwrite an existing file"),),
    examples=("resile init", "resile init nightly.yaml"),
    exits=("0  written", "2  the file is there or can't be written, or the call is wrong"),
)

SCHEMA = Command(
    "schema",
    "commands.files:schema",
    "print the JSON Schema of the native file, for editors",
    about=(
        "Editors complete and check keys with it; it has the texts of the reference page. It knows the shape of a "
        "file; `resile check` also knows whether names lead somewhere."
    ),
    options=(Option("--dialect NAME", "whose file it describes", choices=("native",)),),
    examples=("resile schema > resile.schema.json",),
    exits=("0  printed", "2  the call is wrong"),
)

DB_COPY = Command(
    "db copy FROM TO [RUN]...",
    "commands.db:copy",
    "copy runs with their logs from one database to another",
    about=(
        "FROM and TO are written as with --db. Without RUN all runs are copied. A run keeps its number, its events, "
        "its results and its dead letters; a number that is taken in TO is refused. What steps printed stays in its "
        "folder. A run that an engine drives is refused."
    ),
    examples=("resile db copy resile.db postgresql://db.example/flows", "resile db copy old.db new.db 7 9"),
    exits=("0  copied", "2  a run is in TO already or is being driven, or the call is wrong"),
)

PRUNE = Command(
    "prune",
    "commands.db:prune",
    "delete runs that have ended, and give their space back",
    about=(
        "Deletes events, steps, logs and dead letters. Several conditions must all hold; at least one must be given. A "
        "run that has not ended stays: running, parked or interrupted. The database file gets smaller unless an "
        "engine drives a run meanwhile; a later prune then makes it smaller."
    ),
    options=(
        Option("--older-than DURATION", "only runs that ended longer ago, such as 30d"),
        Option("--keep-last N", "keep the newest N runs of those that the other options select", kind="whole"),
        Option("--status STATUS", "only completed, failed or canceled runs, or several: failed,canceled"),
        Option("--workflow NAME", "only runs of the workflow of this name"),
        Option("--dry-run", "only list the runs that would be deleted"),
    ),
    examples=(
        "resile prune --older-than 30d --dry-run",
        "resile prune --keep-last 100 --workflow nightly",
        "resile prune --older-than 7d --status completed",
    ),
    exits=("0  deleted, or there was nothing to delete", "2  no condition, or the call is wrong"),
)

CONFIG = Command(
    "config",
    "commands.config:config",
    "show each value of the configuration and its source",
    about=(
        "Values come from resile.toml in this folder or the nearest one above, then from ~/.config/resile/config.toml; "
        "the variables RESILE_DB, RESILE_OUTPUT_DIR, RESILE_SERVER, RESILE_MAX_PARALLEL and RESILE_AGENT win over "
        "files, and options over all. Keys: db, output, server (in your own file only), max_parallel, agent, executor. "
        "Paths are relative to the folder of their file."
    ),
    options=(
        Option("--output DIR", "as in `run`", kind="folder"),
        Option("--max-parallel N", "as in `run`", kind="count", most=PARALLEL_MAX),
    ),
    examples=("resile config", "resile config --json"),
    exits=("0  shown", "2  a file has an unknown key or a wrong value, or the call is wrong"),
)

_LIST = "`resile ls` lists the runs"
_RUN = "`resile run FILE` starts a workflow"
_CANCEL = "`resile cancel RUN` ends a run"
_PRUNE = "`resile prune` deletes runs that have ended"
_STATUS = "`resile status RUN` shows a run"
_CHECK = "`resile check FILE` checks a file"
# Commands of other programs, each with the one that does it here.
ELSEWHERE = {
    **dict.fromkeys(("list", "history", "runs", "ps", "jobs"), _LIST),
    **dict.fromkeys(("start", "exec", "execute", "trigger", "up"), _RUN),
    **dict.fromkeys(("stop", "kill", "abort", "terminate", "down"), _CANCEL),
    **dict.fromkeys(("delete", "rm", "remove", "clean", "gc", "purge"), _PRUNE),
    **dict.fromkeys(("show", "describe", "get", "inspect", "info"), _STATUS),
    **dict.fromkeys(("validate", "lint", "verify"), _CHECK),
    **dict.fromkeys(("tail", "follow"), "`resile logs RUN -f` follows the output of a run"),
    **dict.fromkeys(("log", "output"), "`resile logs RUN` shows the output of a run"),
    **dict.fromkeys(("retry", "restart"), "`resile rerun RUN --failed-only` runs what failed again"),
    **dict.fromkeys(("continue", "unpause"), "`resile resume RUN` goes on with a run"),
    **dict.fromkeys(("why", "debug"), "`resile explain RUN` explains failures"),
    **dict.fromkeys(("dag", "plot", "visualize", "draw"), "`resile graph FILE` draws the steps"),
    **dict.fromkeys(("new", "create"), "`resile init` writes a first workflow"),
    "convert": "`resile migrate FILE` translates a file of another system",
}
