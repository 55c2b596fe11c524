"""The table of commands: what `resile` understands, what its help says and what a shell completes.

    COMMANDS --> help.py (texts)   parse.py (parsing)   complete.py (shell completion)   main.py (dispatch)

Plain data and no imports but the model's limits, because every start of the program loads it. A command names its
module and its function, which are loaded only when it is called. Commands of two words (`events list`) make a family
under their first word.
"""

from __future__ import annotations

from resile.cli.grammar import Command, Option
from resile.cli.table_agents import AGENT_COMMANDS, RECOVERY_COMMANDS, RESOURCES
from resile.cli.table_daily import (
    CACHED,
    CAPACITY,
    CHOICE,
    COMPILE_OPTIONS,
    CONFIG,
    DB_COPY,
    EXECUTOR,
    GRAPH,
    INIT,
    INPUTS,
    LIMITS,
    LS,
    PARALLEL,
    PRUNE,
    RERUN,
    RERUN_ABOUT,
    RUN_FILTERS,
    SCHEMA,
)
from resile.cli.table_server import SERVER_COMMANDS
from resile.model.limits import PARALLEL_MAX

_JUNIT = Option("--junit FILE", "write a report of the run as JUnit's XML", kind="file")
_DEBUG = Option("--debug", "print every event with its data: waits, counters, expressions; and tracebacks")
_VERBOSE = Option("-v --verbose", "print what steps print, line by line, each with the name of its step")
_WATCH = (_VERBOSE, _DEBUG)
_TYPE = Option("--type TYPE", "only events of this type; other systems' names work too", kind="event", many=True)
_AFTER = Option("--after SEQ", "only events with a higher seq", kind="whole")
_NAMES = Option("--names SYSTEM", "use the event names of another system", choices=("noetl",))

_STEP = Option("--step NAME", "only items of this map, if the run has several")
_SIGNATURE = Option("--signature SIGNATURE", "only items whose last failure has this signature")

_CREDENTIALS = Option(
    "--credentials FILE", "YAML with the secrets of a NoETL file: NAME: {token: …, password: …}", kind="file"
)

_USAGE = "2  the file or the call is wrong; nothing ran and nothing was written"
_RUN_EXITS = (
    "0  the run completed; tolerated failures included",
    "1  the run failed",
    _USAGE,
    "3  the run was canceled",
    "4  parked: failures wait for judgement; see `resile parked RUN`",
    "130  interrupted; `resile resume RUN` goes on",
)
_LOOK_EXITS = ("0  shown", "2  there is no such run or step, or the call is wrong")

_LETTER_EXITS = ("0  shown", "2  there is no such run, map or item, or the call is wrong")

_RUN = (
    Command(
        "run FILE",
        "commands.run:run",
        "run a workflow to its end, with live progress",
        about=(
            "FILE is a workflow file, or - for standard input. "
            "Every transition is on disk before the engine acts on it. Ctrl-C once lets running steps finish, "
            "twice ends them; in both cases, and after kill -9, `resile resume` goes on."
        ),
        options=(
            *INPUTS,
            *CHOICE,
            CACHED,
            Option("--dry-run", "print the plan: order, groups, what each step would run; nothing runs"),
            *CAPACITY,
            _CREDENTIALS,
            _JUNIT,
            Option("--output DIR", "folder for the output of steps", kind="folder"),
            EXECUTOR,
            *LIMITS,
            *COMPILE_OPTIONS,
            *_WATCH,
        ),
        examples=(
            "resile run release.yaml",
            "resile run release.yaml --input target=staging --max-parallel 4",
            "resile run release.yaml --json > result.json",
            "resile run release.yaml --from test --dry-run",
            "resile run - < release.yaml",
        ),
        exits=_RUN_EXITS,
        drives=True,
    ),
    Command(
        "resume RUN",
        "commands.run:resume",
        "go on with a run that was interrupted or killed",
        about=(
            "Finished steps do not run again; steps that still run are taken over. A run that has ended does not "
            "change; the exit code is that of the run."
        ),
        options=(*CAPACITY, _CREDENTIALS, _JUNIT, *_WATCH),
        examples=("resile resume 7", "resile resume 7 --max-parallel 8"),
        exits=_RUN_EXITS,
        drives=True,
    ),
    Command(
        "rerun RUN",
        "commands.run:rerun",
        "run all steps of a run again, or those that did not complete, or that changed",
        about=RERUN_ABOUT,
        options=(
            *RERUN,
            *INPUTS,
            *CAPACITY,
            _CREDENTIALS,
            _JUNIT,
            *_WATCH,
        ),
        examples=("resile rerun 7 --failed-only", "resile rerun 7 --changed --dry-run", "resile rerun 7 --as-new"),
        exits=_RUN_EXITS,
        drives=True,
    ),
    Command(
        "cancel RUN",
        "commands.run:cancel",
        "end a run properly: stop its steps, then run `end`",
        about="Asks the engine that drives the run; without an engine, this command drives the run to its end.",
        options=(Option("--reason TEXT", "why, for the record"),),
        examples=("resile cancel 7 --reason 'wrong branch'",),
        exits=("0  canceled, or it had ended", "2  there is no such run, or the call is wrong"),
    ),
    Command(
        "answer RUN STEP TEXT",
        "commands.judge:answer",
        "answer the question of a step",
        about="TEXT is the step's output. An engine that drives the run goes on at once; else `resile resume` does.",
        options=(Option("--resume", "drive the run on afterwards"), PARALLEL, *_WATCH),
        examples=("resile answer 7 review approved --resume",),
        exits=(
            "0  answered; with --resume as for `resile resume`",
            "2  no such step, it asks nothing (any more), or the call is wrong",
        ),
    ),
    Command(
        "judge RUN JOB VERDICT",
        "commands.judge:judge",
        "decide about a parked failure",
        about=(
            "JOB is an id or a name, as `resile parked RUN` shows them. `retry` runs the step again, "
            "`retry-with` runs it with more memory or time, `skip` goes on as if it had succeeded, `fail` makes "
            "the failure final. An engine that drives the run goes on at once; else `resile resume` does, or --resume."
        ),
        options=(
            Option("--output OUTPUT", "skip: the step's output, as JSON or as text"),
            Option("--memory SIZE", "retry-with: memory for the step, such as 8g"),
            Option("--runtime DURATION", "retry-with: time for the step, such as 90m"),
            Option("--reason TEXT", "why, for the record"),
            Option("--save-rule", "show the rule that decides so next time; once confirmed, write it to the file"),
            Option("--yes", "with --save-rule: do not ask"),
            Option("--resume", "drive the run on afterwards"),
            PARALLEL,
            *_WATCH,
        ),
        examples=(
            "resile judge 7 test retry --reason 'the network is back'",
            "resile judge 7 solve retry-with --memory 16g --resume",
            "resile judge 7 review skip --output approved",
            "resile judge 7 deploy fail",
            "resile judge 7 fetch retry --save-rule --yes",
        ),
        exits=(
            "0  judged; with --resume as for `resile resume`",
            "1  the rule of --save-rule was not confirmed; nothing was judged or written",
            "2  no such job, it is not parked (any more), or the call is wrong",
        ),
    ),
    Command(
        "reset RUN",
        "commands.run:reset",
        "set steps back to the start without running them",
        about="`resile resume RUN` then runs them.",
        options=(Option("--failed-only", "keep what completed"),),
        examples=("resile reset 7 --failed-only",),
        exits=("0  reset", "2  there is no such run, it is being driven, or the call is wrong"),
    ),
    *RECOVERY_COMMANDS,
)

_LOOK = (
    LS,
    GRAPH,
    Command(
        "status [RUN]",
        "commands.inspect.look:status",
        "list the runs, or show one: steps, routes, failures",
        options=RUN_FILTERS,
        examples=("resile status", "resile status 7", "resile status 7 --json"),
        exits=_LOOK_EXITS,
    ),
    Command(
        "logs RUN [STEP]",
        "commands.inspect.look:logs",
        "show what the steps of a run printed",
        about="Prints both streams of every attempt, each under a heading; a single stream has no heading. A pipe gets"
        " the bytes; on a terminal control characters other than colors show as their codes.",
        options=(
            Option("--attempt N", "only this attempt", kind="count"),
            Option("--tail N", "only the last N lines of each stream of each attempt", kind="whole"),
            Option("--since WHEN", "only attempts that had not ended by then: 10m ago, or a time"),
            Option("--stdout", "only standard output"),
            Option("--stderr", "only standard error"),
            Option("--raw", "print control characters to a terminal, too"),
            Option("-f --follow", "print new output as it appears, until the run has ended"),
            Option("--export DIR", "write every attempt to files in a folder instead, named by step", kind="folder"),
        ),
        examples=(
            "resile logs 7",
            "resile logs 7 test --attempt 2 --stderr",
            "resile logs 7 -f --tail 20",
            "resile logs 7 --export build/logs",
        ),
        exits=_LOOK_EXITS,
    ),
    Command(
        "events list RUN",
        "commands.inspect.look:events_list",
        "list the events of a run",
        about="With --json one object on each line (JSON Lines). `--job-id RUN` is the same as RUN.",
        options=(
            _TYPE,
            _AFTER,
            Option("--story JOB", "only the events of one job and their causes, causes first", kind="whole"),
            _NAMES,
        ),
        examples=(
            "resile events list 7",
            "resile events list 7 --type step_failed --json",
            "resile events list 7 --story 3",
        ),
        exits=_LOOK_EXITS,
    ),
    Command(
        "events follow RUN",
        "commands.inspect.look:events_follow",
        "print the events of a run as they happen",
        about="Ends when the run has ended or no engine drives it. With --json one object on each line.",
        options=(_TYPE, _AFTER),
        examples=("resile events follow 7", "resile events follow 7 --type retry_scheduled"),
        exits=_LOOK_EXITS,
    ),
    Command(
        "parked RUN",
        "commands.judge:list_parked",
        "show the parked failures of a run",
        about="Each with its message, the end of its output, its attempts, and how to judge it.",
        examples=("resile parked 7", "resile parked 7 --json"),
        exits=_LOOK_EXITS,
    ),
    Command(
        "explain RUN [STEP]",
        "commands.inspect.explain:explain",
        "explain failures: their causes, the rules that answered",
        about=(
            "Without STEP: every failure, in order, down to the cause, through repairs, items and child workflows. "
            "With STEP, a step's name, a job's id or an item such as map[3]: its whole history, or why it did not run. "
            "With --story: the events of one step and of all that led to them; with --json one object on each line."
        ),
        options=(Option("--story STEP", "the events of one step, with their causes before them"),),
        examples=("resile explain 7", "resile explain 7 publish", "resile explain 7 'map[3]' --json"),
        exits=_LOOK_EXITS,
    ),
    Command(
        "metrics RUN",
        "commands.inspect.metrics:metrics",
        "show statistics of the rules of a run",
        about="How often each rule fired, how long its repairs took, how many steps recovered; attempts and failures.",
        examples=("resile metrics 7", "resile metrics 7 --json"),
        exits=_LOOK_EXITS,
    ),
    RESOURCES,
)

_DEAD_LETTERS = (
    Command(
        "dlq list RUN",
        "commands.dlq:list_letters",
        "list the items of a run that failed for good",
        options=(_STEP, Option("--limit N", "at most N of them (50, with --json all)", kind="count")),
        examples=("resile dlq list 7", "resile dlq list 7 --step resize --json"),
        exits=_LETTER_EXITS,
    ),
    Command(
        "dlq show RUN ITEM",
        "commands.dlq:show",
        "show one item: its data and every failure",
        about="ITEM is an item's id, such as map[3], or its index.",
        options=(_STEP,),
        examples=("resile dlq show 7 'map[3]'", "resile dlq show 7 3 --json"),
        exits=_LETTER_EXITS,
    ),
    Command(
        "dlq stats RUN",
        "commands.dlq:stats",
        "count dead letters by failure, kind of error and hour",
        options=(_STEP,),
        examples=("resile dlq stats 7",),
        exits=_LETTER_EXITS,
    ),
    Command(
        "dlq retry RUN",
        "commands.dlq:retry",
        "run the items again, with live progress",
        about=(
            "Items that succeed leave the dead letters, those that fail again stay with a longer history. The run's "
            "verdict and the steps after its map do not change, unless --resume is given. After an interruption the "
            "same command goes on."
        ),
        options=(
            _STEP,
            Option(
                "--parallel --max-parallel N",
                "run at most N items at a time (else as many as the map may, else 5)",
                kind="count",
                most=PARALLEL_MAX,
            ),
            Option("--dry-run", "only list the items that would run"),
            Option("--filter JS", "only items for which this JavaScript over `item` and `letter` holds"),
            _SIGNATURE,
            Option("--force", "also items that wait for a person's review"),
            Option("--resume", "when no dead letter is left, go on with the steps that were canceled"),
            _CREDENTIALS,
            *_WATCH,
        ),
        examples=(
            "resile dlq retry 7 --dry-run",
            "resile dlq retry 7 --max-parallel 10",
            "resile dlq retry 7 --filter 'item.size < 1000 && letter.failure_count < 3'",
        ),
        exits=(
            "0  every selected item has succeeded",
            "1  some failed again; with --resume, the run is still failed",
            "2  the call is wrong, or another engine drives the run; nothing ran",
            "130  interrupted; the same command goes on",
        ),
    ),
    Command(
        "dlq export RUN [FILE]",
        "commands.dlq:export",
        "write dead letters as JSON Lines, to a file or stdout",
        options=(_STEP,),
        examples=("resile dlq export 7 letters.jsonl", "resile dlq export 7 | jq .error_signature"),
        exits=("0  written", "2  there is no such run or map, or the call is wrong"),
    ),
    Command(
        "dlq purge RUN",
        "commands.dlq:purge",
        "delete dead letters",
        options=(_STEP, _SIGNATURE, Option("--yes", "do not ask")),
        examples=("resile dlq purge 7", "resile dlq purge 7 --signature 5ca1ab1e0ddba115 --yes"),
        exits=("0  removed", "1  not confirmed; nothing was removed", "2  no such run or map, or it is being driven"),
    ),
)

_MORE = (
    INIT,
    Command(
        "rehearse FILE STEP",
        "commands.rehearse:rehearse",
        "try a step's answers against a supposed failure",
        about=(
            "Applies the rules of one step to a supposed failure. Handlers, scripts and called steps really run; the "
            "step itself and the steps before it do not. Nothing is stored."
        ),
        options=(
            Option("--fail FAILURE", "exit:CODE, signal:NAME, timeout, oom, lost, spawn, check or contract"),
            Option("--message TEXT", "the supposed last output of the step"),
            Option("--input NAME=VALUE", "a value for an input of the workflow", many=True),
            _DEBUG,
        ),
        examples=(
            "resile rehearse flow.yaml solve --fail exit:10",
            "resile rehearse flow.yaml solve --fail signal:KILL",
            "resile rehearse flow.yaml fetch --fail timeout --message 'no route to host'",
        ),
        exits=(
            "0  the step would go on: retry, recovered, fallback, tolerate or goto",
            "1  the step would fail",
            _USAGE,
            "4  the failure would be parked",
            "130  interrupted",
        ),
    ),
    Command(
        "check FILE...",
        "commands.files:check",
        "compile and lint files; nothing runs",
        about="Prints the dialect of each file and every finding with its line and a hint.",
        options=COMPILE_OPTIONS,
        examples=("resile check release.yaml", "resile check flows/*.yaml --json"),
        exits=("0  every file can be run", "2  some file can't, or the call is wrong"),
    ),
    Command(
        "migrate FILE",
        "commands.files:migrate",
        "translate a file of any dialect into a native one",
        about=(
            "The native file compiles to the same workflow; this is checked before it is written. A comment in it and "
            "a line on stderr mark each place whose meaning was ambiguous."
        ),
        options=(
            Option("-o --out OUT", "write to this file instead of stdout", kind="file"),
            Option("--force", "overwrite an existing file"),
            *COMPILE_OPTIONS,
        ),
        examples=("resile migrate workflow.yml", "resile migrate .visor.yaml -o flow.yaml"),
        exits=("0  translated", "2  the file can't be run or translated, OUT is there, or the call is wrong"),
    ),
    *AGENT_COMMANDS,
    SCHEMA,
    PRUNE,
    CONFIG,
    Command(
        "db check [RUN]",
        "commands.db:check",
        "check that the database is whole: its pages, logs and output",
        about=(
            "Folds the log of every run, or of RUN, and compares the result with the tables; looks for broken pages "
            "and for output that is gone. Nothing is changed. After a WAL was lost, --accept goes on with what is "
            "left: steps whose outcome is lost may run again. To make a backup, also while runs go on: "
            "sqlite3 FILE '.backup COPY'."
        ),
        options=(Option("--accept", "use a database that lost events as it is from now on"),),
        examples=("resile db check", "resile db check 7 --json"),
        exits=(
            "0  all is whole",
            "1  something is damaged",
            "2  there is no such database or run, or the call is wrong",
        ),
    ),
    DB_COPY,
    Command(
        "completion SHELL",
        "complete:completion",
        "print the completion script of a shell",
        examples=(
            'eval "$(resile completion bash)"    # in ~/.bashrc',
            'eval "$(resile completion zsh)"     # in ~/.zshrc, after compinit',
            "resile completion fish | source     # in config.fish",
        ),
        exits=("0  printed", "2  no such shell"),
    ),
    Command(
        "version",
        "commands.files:version",
        "show the versions of Resile, Python and SQLite",
        examples=("resile version", "resile version --json"),
        exits=("0  shown",),
    ),
)

# By the heading under which the help lists them.
GROUPS = {"Run": _RUN, "Look": _LOOK, "Dead letters": _DEAD_LETTERS, "Server": SERVER_COMMANDS, "More": _MORE}
COMMANDS = (*_RUN, *_LOOK, *_DEAD_LETTERS, *SERVER_COMMANDS, *_MORE)
# Permanent short spellings.
ALIASES = {"events ls": "events list", "dlq ls": "dlq list"}
# Spellings of the previous version, accepted with a note.
RENAMED = {"failures": "parked", "reset-status": "reset", "try": "rehearse"}

COMMANDS_BY_NAME = {command.name: command for command in COMMANDS}

# The second words of commands that have two, by their first.
FAMILIES: dict[str, tuple[str, ...]] = {}
for _words in (command.name.split() for command in COMMANDS):
    if len(_words) == 2:
        FAMILIES[_words[0]] = (*FAMILIES.get(_words[0], ()), _words[1])
