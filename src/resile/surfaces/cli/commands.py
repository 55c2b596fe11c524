"""The table of commands: what `resile` understands, what its help says and what a shell completes.

    COMMANDS --> help.py (texts)   arguments.py (parsing)   completion.py (shell scripts)   main.py (dispatch)

Plain data and no imports but the model's limits, because every start of the program loads it. A command names the
module and the function that carry it out; those are loaded only when it is called.
"""

from __future__ import annotations

from resile.model.limits import LOOPS_MAX, PARALLEL_MAX, RETRIES_MAX

WHOLE_MAX = 10**18 - 1


class Option:
    """One option: its spellings, the name of its value ("" for a switch), and what a value must be.

    `kind` is text, count (a whole number from 1), whole (from 0), number (above 0), file or folder; a whole number is
    at most `most`.
    """

    __slots__ = ("choices", "help", "kind", "many", "most", "names", "value")

    def __init__(
        self,
        names: str,
        text: str,
        *,
        value: str = "",
        kind: str = "text",
        many: bool = False,
        choices: tuple[str, ...] = (),
        most: int = WHOLE_MAX,
    ) -> None:
        self.names = tuple(names.split())
        self.help = text
        self.value = value
        self.kind = kind
        self.many = many
        self.choices = choices
        self.most = most

    @property
    def key(self) -> str:
        """The name under which a call keeps it: the long spelling without its dashes."""
        return self.names[-1].lstrip("-")


class Argument:
    """One positional word; `kind` is run (an id), file, step, or text; `count` is 1, ? (optional) or + (several)."""

    __slots__ = ("choices", "count", "kind", "name")

    def __init__(self, name: str, kind: str, count: str = "1", choices: tuple[str, ...] = ()) -> None:
        self.name = name
        self.kind = kind
        self.count = count
        self.choices = choices

    def usage(self) -> str:
        """The argument as a usage line writes it."""
        return {"1": self.name, "?": f"[{self.name}]", "+": f"{self.name}..."}[self.count]


class Command:
    """One command; `target` is `module:function` of this package, `function(call) -> exit code`."""

    __slots__ = ("about", "arguments", "examples", "exits", "group", "name", "options", "summary", "target")

    def __init__(
        self,
        name: str,
        group: str,
        target: str,
        summary: str,
        *,
        about: str = "",
        arguments: tuple[Argument, ...] = (),
        options: tuple[Option, ...] = (),
        examples: tuple[str, ...] = (),
        exits: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.group = group
        self.target = target
        self.summary = summary
        self.about = about
        self.arguments = arguments
        self.options = options
        self.examples = examples
        self.exits = exits


JSON = Option("--json", "print one JSON document on stdout and nothing else there")
COLOR = Option("--color", "color the output; auto obeys NO_COLOR", value="WHEN", choices=("auto", "always", "never"))
DB = Option(
    "--db", "the database: a path or sqlite:///PATH (else $RESILE_DB, else the user's own)", value="DB", kind="file"
)
HELP = Option("-h --help", "show this help")
# Every command takes these, after its name or before it.
COMMON = (DB, JSON, COLOR, HELP)

_RUN = Argument("RUN", "run")
_PARALLEL = Option("--max-parallel", "run at most N steps at a time", value="N", kind="count", most=PARALLEL_MAX)
_CAPACITY = (
    _PARALLEL,
    Option("--cpus", "CPUs to share out among steps that ask for some", value="N", kind="number"),
    Option("--memory", "memory to share out, such as 8g", value="SIZE"),
    Option("--gpus", "GPUs to share out", value="N", kind="whole"),
)
_DEBUG = Option("--debug", "print every event with its data: waits, counters, expressions; and tracebacks")
_TYPE = Option("--type", "only events of this type; other systems' names work too", value="TYPE", many=True)
_AFTER = Option("--after", "only events with a higher seq", value="SEQ", kind="whole")

# What can be decided about a parked failure.
VERDICTS = ("retry", "retry-with", "skip", "fail")

_USAGE = "2  the file or the call is wrong; nothing ran and nothing was written"
_RUN_EXITS = (
    "0  the run completed; tolerated failures included",
    "1  the run failed",
    _USAGE,
    "3  the run was canceled",
    "4  parked: failures wait for judgement; see `resile failures RUN`",
    "130  interrupted; `resile resume RUN` goes on",
)
_LOOK_EXITS = ("0  shown", "2  there is no such run or step, or the call is wrong")

GROUPS = ("Run", "Look", "More")

COMMANDS = (
    Command(
        "run",
        "Run",
        "run:run",
        "run a workflow to its end, with live progress",
        about=(
            "Every transition is on disk before anything follows from it. Ctrl-C once lets running steps finish, "
            "twice ends them; in both cases, and after kill -9, `resile resume` goes on."
        ),
        arguments=(Argument("FILE", "file"),),
        options=(
            Option("--input", "a value for an input of the workflow", value="NAME=VALUE", many=True),
            Option("--input-file", "an input whose value is the content of a file", value="NAME=PATH", many=True),
            *_CAPACITY,
            Option("--output", "folder for the output of steps", value="DIR", kind="folder"),
            Option(
                "--on-fail-max-loops",
                "at most N jumps and remedies in each scope (the file's max_loops)",
                value="N",
                kind="whole",
                most=LOOPS_MAX,
            ),
            Option(
                "--retry-max",
                "at most N retries of each step that has `retry`",
                value="N",
                kind="whole",
                most=RETRIES_MAX,
            ),
            Option("--no-failure-routing", "no retry, run or goto; rules, handlers and park stay"),
            _DEBUG,
        ),
        examples=(
            "resile run release.yaml",
            "resile run release.yaml --input target=staging --max-parallel 4",
            "resile run release.yaml --json > result.json",
        ),
        exits=_RUN_EXITS,
    ),
    Command(
        "resume",
        "Run",
        "run:resume",
        "go on with a run that was interrupted or killed",
        about=(
            "What had finished does not run again; steps that still run are adopted. A run that has ended is left "
            "as it is and gives its own exit code."
        ),
        arguments=(_RUN,),
        options=(*_CAPACITY, _DEBUG),
        examples=("resile resume 7", "resile resume 7 --max-parallel 8"),
        exits=_RUN_EXITS,
    ),
    Command(
        "rerun",
        "Run",
        "run:rerun",
        "run it again: all of it, or what did not complete",
        about="The same run goes again with the next epoch: attempts and budgets count from the start.",
        arguments=(_RUN,),
        options=(
            Option("--failed-only", "keep what completed, run the rest"),
            Option("--as-new", "make a new run of the same definition and inputs"),
            *_CAPACITY,
            _DEBUG,
        ),
        examples=("resile rerun 7 --failed-only", "resile rerun 7 --as-new"),
        exits=_RUN_EXITS,
    ),
    Command(
        "cancel",
        "Run",
        "act:cancel",
        "end a run properly: stop its steps, then run `end`",
        about="Asks the engine that drives the run; where none does, drives it to its end here.",
        arguments=(_RUN,),
        options=(Option("--reason", "why, for the record", value="TEXT"),),
        examples=("resile cancel 7 --reason 'wrong branch'",),
        exits=("0  canceled, or it had ended", "2  there is no such run, or the call is wrong"),
    ),
    Command(
        "judge",
        "Run",
        "judge:judge",
        "decide about a parked failure",
        about=(
            "JOB is an id or a step's name, as `resile failures RUN` shows them. `retry` runs the step again, "
            "`retry-with` does so with more memory or time, `skip` goes on as if it had succeeded, `fail` lets the "
            "failure stand. An engine that drives the run goes on at once; else `resile resume` does, or --resume."
        ),
        arguments=(_RUN, Argument("JOB", "step"), Argument("VERDICT", "text", "1", VERDICTS)),
        options=(
            Option("--output", "skip: the step's output, as JSON or as text", value="OUTPUT"),
            Option("--memory", "retry-with: memory for the step, such as 8g", value="SIZE"),
            Option("--runtime", "retry-with: time for the step, such as 90m", value="DURATION"),
            Option("--reason", "why, for the record", value="TEXT"),
            Option("--resume", "drive the run on afterwards"),
            _PARALLEL,
            _DEBUG,
        ),
        examples=(
            "resile judge 7 test retry --reason 'the network is back'",
            "resile judge 7 solve retry-with --memory 16g --resume",
            "resile judge 7 review skip --output approved",
            "resile judge 7 deploy fail",
        ),
        exits=(
            "0  judged; with --resume as for `resile resume`",
            "2  no such job, it is not parked (any more), or the call is wrong",
        ),
    ),
    Command(
        "reset-status",
        "Run",
        "act:reset_status",
        "set steps back to the start without running them",
        about="`resile resume RUN` then runs them.",
        arguments=(_RUN,),
        options=(Option("--failed-only", "keep what completed"),),
        examples=("resile reset-status 7 --failed-only",),
        exits=("0  reset", "2  there is no such run, it is being driven, or the call is wrong"),
    ),
    Command(
        "status",
        "Look",
        "look:status",
        "list the runs, or show one: steps, routes, failures",
        arguments=(Argument("RUN", "run", "?"),),
        examples=("resile status", "resile status 7", "resile status 7 --json"),
        exits=_LOOK_EXITS,
    ),
    Command(
        "logs",
        "Look",
        "look:logs",
        "show what the steps of a run printed",
        about="Both streams of every attempt, under a heading each; an attempt's one stream comes without.",
        arguments=(_RUN, Argument("STEP", "step", "?")),
        options=(
            Option("--attempt", "only this attempt", value="N", kind="count"),
            Option("--stdout", "only standard output"),
            Option("--stderr", "only standard error"),
            Option("-f --follow", "go on as more is printed, until the run has ended"),
            Option("--export", "write every attempt to files in a folder instead", value="DIR", kind="folder"),
        ),
        examples=(
            "resile logs 7",
            "resile logs 7 test --attempt 2 --stderr",
            "resile logs 7 -f",
            "resile logs 7 --export build/logs",
        ),
        exits=_LOOK_EXITS,
    ),
    Command(
        "events ls",
        "Look",
        "look:events_ls",
        "list the events of a run",
        about="With --json one object on each line (JSON Lines).",
        arguments=(_RUN,),
        options=(_TYPE, _AFTER),
        examples=("resile events ls 7", "resile events ls 7 --type step_failed --json"),
        exits=_LOOK_EXITS,
    ),
    Command(
        "events follow",
        "Look",
        "look:events_follow",
        "print the events of a run as they happen",
        about="Ends when the run has ended or nothing drives it. With --json one object on each line.",
        arguments=(_RUN,),
        options=(_TYPE, _AFTER),
        examples=("resile events follow 7", "resile events follow 7 --type retry_scheduled"),
        exits=_LOOK_EXITS,
    ),
    Command(
        "failures",
        "Look",
        "judge:failures",
        "show the parked failures of a run",
        about="Each with its message, the end of its output, its attempts, and how to judge it.",
        arguments=(_RUN,),
        examples=("resile failures 7", "resile failures 7 --json"),
        exits=_LOOK_EXITS,
    ),
    Command(
        "metrics",
        "Look",
        "metrics:metrics",
        "show how the rules of a run did",
        about="How often each rule fired, what its repairs took, how many steps got back up; attempts and failures.",
        arguments=(_RUN,),
        examples=("resile metrics 7", "resile metrics 7 --json"),
        exits=_LOOK_EXITS,
    ),
    Command(
        "try",
        "More",
        "rehearse:rehearse",
        "try a step's answers against a supposed failure",
        about=(
            "Walks the rules of one step as if it had failed so. Handlers, scripts and called steps are run for real; "
            "the step itself and what comes before it are not. Nothing is kept."
        ),
        arguments=(Argument("FILE", "file"), Argument("STEP", "text")),
        options=(
            Option("--fail", "exit:CODE, signal:NAME, timeout, oom, lost, spawn, check or contract", value="FAILURE"),
            Option("--message", "what the step is supposed to have printed last", value="TEXT"),
            Option("--input", "a value for an input of the workflow", value="NAME=VALUE", many=True),
            _DEBUG,
        ),
        examples=(
            "resile try flow.yaml solve --fail exit:10",
            "resile try flow.yaml solve --fail signal:KILL",
            "resile try flow.yaml fetch --fail timeout --message 'no route to host'",
        ),
        exits=(
            "0  the step would get on: retry, recovered, fallback, tolerate or goto",
            "1  the step would fail",
            _USAGE,
            "4  the failure would be parked",
            "130  interrupted",
        ),
    ),
    Command(
        "check",
        "More",
        "check:check",
        "compile and lint files; nothing runs",
        about="Prints the dialect of each file and every finding with its line and a hint.",
        arguments=(Argument("FILE", "file", "+"),),
        examples=("resile check release.yaml", "resile check flows/*.yaml --json"),
        exits=("0  every file can be run", "2  some file can't, or the call is wrong"),
    ),
    Command(
        "completion",
        "More",
        "completion:completion",
        "print the completion script of a shell",
        arguments=(Argument("SHELL", "text", "1", ("bash", "zsh", "fish")),),
        examples=(
            'eval "$(resile completion bash)"    # in ~/.bashrc',
            'eval "$(resile completion zsh)"     # in ~/.zshrc, after compinit',
            "resile completion fish | source     # in config.fish",
        ),
        exits=("0  printed", "2  no such shell"),
    ),
    Command(
        "version",
        "More",
        "version:version",
        "show the versions of Resile, Python and SQLite",
        examples=("resile version", "resile version --json"),
        exits=("0  shown",),
    ),
)

COMMANDS_BY_NAME = {command.name: command for command in COMMANDS}
