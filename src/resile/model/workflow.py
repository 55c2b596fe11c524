"""The workflow: steps, what they do, and the edges between them. Frozen, complete, and free of behaviour.

    Workflow -> Step -> action   (Shell, Noop, Agent, ...)
                     -> needs    (groups: all must hold, each by any of its members)
                     -> arcs     (`next`: taken instead of waited for)
                     -> rules    (the ladder, rules.py)
                     -> fan-out  (fanout.py)

Text that may hold `${...}` is kept as written and rendered when an attempt starts, because only then are
the values known.
"""

from typing import Any, Literal

from msgspec import Struct

from resile.model.builtin_actions import (
    Ask,
    Case,
    Check,
    Collect,
    Effect,
    Log,
    Memory,
    MemoryFile,
    Script,
    Transform,
)
from resile.model.cluster import Cluster
from resile.model.fanout import FanOut
from resile.model.limits import GRACE_SECONDS_DEFAULT, LOOPS_DEFAULT
from resile.model.rules import NOWHERE, Origin, Rule, SuccessActions

CaptureForm = Literal[
    "text", "json", "lines", "number", "bool", "stderr", "exit_code", "combined", "value", "success", "duration"
]  # fmt: skip
Templates = Literal["dollar", "liquid", "jinja"]


class Shell(Struct, frozen=True, tag="shell", omit_defaults=True):
    """A shell command; plain words run without a shell."""

    command: str
    program: str = "sh"
    stdin: str = ""


class Noop(Struct, frozen=True, tag="noop"):
    """Does nothing and succeeds: a point where edges meet."""


class Agent(Struct, frozen=True, tag="agent", omit_defaults=True):
    """A prompt for an agent's command line; limits hold where its output reports cost and tokens (0: none)."""

    prompt: str
    command: tuple[str, ...] = ("claude", "-p")
    prompt_by: Literal["argument", "stdin"] = "argument"
    cost_max: float = 0.0
    tokens_max: int = 0


class Validate(Struct, frozen=True, tag="validate", omit_defaults=True):
    """A command whose failure is of kind `check`."""

    command: str
    program: str = "sh"


class WriteFile(Struct, frozen=True, tag="write_file", omit_defaults=True):
    """A file made from text."""

    path: str
    content: str
    mode: int = 0o644


class Http(Struct, frozen=True, tag="http", omit_defaults=True):
    """A request; statuses of 400 and above fail, or all but the expected ones. A body is text, or JSON data.

    `params` go behind the url, `form` is the body of a form. `envelope` prints the status and headers with the answer.
    """

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str | None = None
    json: Any = None
    expect_status: tuple[int, ...] = ()
    params: Any = None
    form: Any = None
    envelope: bool = False
    is_verified: bool = True


class Python(Struct, frozen=True, tag="python", omit_defaults=True):
    """Python code, written in the workflow or in a file of its own, and the inputs of its `main` function.

    `names` are parameters that are looked for among everything the step sees, where a playbook has the code. `places`
    are values that stand in the code itself, as data, under these names. `status_fails`: a status `error` is a failure.
    """

    source: str = ""
    file: str = ""
    inputs: dict[str, Any] = {}
    names: tuple[str, ...] = ()
    places: dict[str, Any] = {}
    status_fails: bool = True


class Query(Struct, frozen=True, tag="query", omit_defaults=True):
    """Statements for a database, written in the workflow or in a file of their own; or rows for one of its tables.

    `auth` names the variable of the environment, `<AUTH>_DSN`, that says how to reach it.
    """

    engine: Literal["duckdb", "postgres"]
    statements: str = ""
    file: str = ""
    auth: str = ""
    database: str = ""
    params: Any = None
    table: str = ""
    rows: Any = None
    columns: dict[str, str] = {}
    key: tuple[str, ...] = ()


class Given(Struct, frozen=True, array_like=True):
    """One argument of a call: a value (JSON data, or a pickle in it), what a step gave, an input, the item,
    or how the run went, which `end` can ask.

    A list or a mapping with such arguments inside holds them as pairs of `kind` and `value`.
    """

    kind: Literal["value", "step", "input", "item", "execution", "list", "mapping"]
    value: Any = None


class Function(Struct, frozen=True, tag="function", omit_defaults=True):
    """A call of a Python function: its name in a module, or in a file that is no module of a package.

    The file is found from the folder of the workflow.
    """

    name: str
    module: str = ""
    file: str = ""
    args: tuple[Given, ...] = ()
    kwargs: dict[str, Given] = {}
    workers: Literal["processes", "threads"] = "processes"


class Child(Struct, frozen=True, tag="workflow", omit_defaults=True):
    """Another workflow, run as one step in a scope of its own; `inputs` are data whose texts may refer to values.

    `result` is the step of it whose value is its value; without one it has those of all its steps. One that `shares` is
    a part of the workflow around it: its steps see what the step sees, and the last of them gives the value.
    """

    path: str
    workflow: "Workflow"
    inputs: dict[str, Any] = {}
    result: str = ""
    shares: bool = False


Action = (
    Shell
    | Noop
    | Agent
    | Validate
    | WriteFile
    | Http
    | Python
    | Function
    | Query
    | Child
    | FanOut
    | Script
    | Log
    | Memory
    | Ask
    | Collect
)


class Need(Struct, frozen=True, array_like=True):
    """Waits for all of `any_of`; satisfied by any success among them.

    `skip_satisfies` marks an edge of list order: a skipped step lets the next one run.
    """

    any_of: tuple[str, ...]
    skip_satisfies: bool = False


class Condition(Struct, frozen=True, array_like=True):
    """A question about values, answered by the runtime and fed back as an event.

    `value` is a literal or one reference, `js` an expression with `${...}` for values, `code` statements without,
    `jinja` a template. `case` is the number of one of the step's cases, which must have come true. Where there are
    others besides, all must hold, and for `none` none of them may.
    """

    source: str
    language: Literal["value", "js", "code", "jinja", "case", "none"] = "value"
    origin: Origin = NOWHERE
    besides: tuple["Condition", ...] = ()


class Arc(Struct, frozen=True, array_like=True):
    """One `next` arc; without a condition it is always taken. `args` are values for the step that it leads to."""

    step: str
    when: Condition | None = None
    args: dict[str, Any] = {}


class Capture(Struct, frozen=True, array_like=True):
    """A name that an attempt's output gives a value to."""

    name: str
    form: CaptureForm = "text"


class Resources(Struct, frozen=True, omit_defaults=True):
    """What a step takes of the machine while it runs; zero asks for nothing."""

    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0
    runtime_seconds: float | None = None


class Step(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A node of the definition.

    One that runs `in_order` waits, in each item of a fan-out, until all items before it are over.

    `args` are values for its texts and its code. `aliases` are other names under which it sees outputs of steps.
    """

    name: str
    action: Action
    needs: tuple[Need, ...] = ()
    arcs: tuple[Arc, ...] = ()
    arcs_mode: Literal["all", "first"] = "all"
    join: Literal["any", "all"] = "any"
    when: Condition | None = None
    rules: tuple[Rule, ...] = ()
    on_loss: Literal["retry", "park"] = "retry"
    on_success: SuccessActions | None = None
    timeout_seconds: float | None = None
    grace_seconds: float | None = None
    env: dict[str, str] = {}
    working_dir: str = ""
    capture: tuple[Capture, ...] = ()
    outputs: tuple[str, ...] = ()
    resources: Resources | None = None
    commit_required: bool = False
    critical: bool = False
    called_only: bool = False
    in_order: bool = False
    transform: Transform | None = None
    checks: tuple[Check, ...] = ()
    cases: tuple[Case, ...] = ()
    effects: tuple[Effect, ...] = ()
    args: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    group: str = ""
    origin: Origin = NOWHERE


class Input(Struct, frozen=True, omit_defaults=True):
    """A value that the caller gives."""

    kind: Literal["text", "number", "bool", "json"] = "text"
    default: Any = None
    required: bool = False
    schema: Any = None


class Secret(Struct, frozen=True, omit_defaults=True):
    """Where a secret's value comes from: an environment variable or a file."""

    env: str = ""
    file: str = ""


class Workflow(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A compiled definition. `end` is always there; a file that defines none gets a Noop.

    `templates` is the language of its texts; `failure_key` the word by which messages call what answers a failure.
    """

    name: str
    dialect: str
    file: str
    folder: str
    steps: tuple[Step, ...]
    end: Step
    inputs: dict[str, Input] = {}
    secrets: dict[str, Secret] = {}
    env: dict[str, str] = {}
    env_files: tuple[str, ...] = ()
    max_parallel: int | None = None
    grace_seconds: float = GRACE_SECONDS_DEFAULT
    loops_max: int = LOOPS_DEFAULT
    failure_handlers: dict[str, tuple[Rule, ...]] = {}
    templates: Templates = "dollar"
    failure_key: Literal["on_failure", "on_fail"] = "on_failure"
    memory_file: MemoryFile | None = None
    memory_namespace: str = "default"
    cluster: Cluster | None = None
