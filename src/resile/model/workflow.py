"""The workflow: steps, their actions, and the edges between them. Frozen, complete, and free of behaviour.

    Workflow -> Step -> action   (Shell, Noop, Agent, ...)
                     -> needs    (groups: all must hold, each by any of its members)
                     -> arcs     (`next`: taken instead of waited for)
                     -> rules    (the ladder: match -> limit -> wait -> repair -> then)

Steps, rules and fan-outs contain each other, so they are defined together; rules.py, fanout.py and builtin_actions.py
have the parts without steps. Every dialect's failure handling compiles to a list of rules. Everything in a rule is
bounded: `limit` is a number, `wait` has a ceiling, `repair` a maximum depth.

Text that may contain `${...}` is stored as written; the engine renders it when an attempt starts, when the values are
known.
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
from resile.model.executor import ExecutorSettings
from resile.model.fanout import ErrorPolicy, Source
from resile.model.limits import GRACE_SECONDS_DEFAULT, LOOPS_DEFAULT
from resile.model.rules import NOWHERE, Backoff, Escalation, Match, Origin, Then, Transition

CaptureForm = Literal[
    "text", "json", "lines", "number", "bool", "stderr", "exit_code", "combined", "value", "success", "duration", "file"
]  # fmt: skip
Templates = Literal["dollar", "liquid", "jinja"]
EDITION = 2
"""The edition of the core's decisions that new definitions follow."""


class Shell(Struct, frozen=True, tag="shell", omit_defaults=True):
    """A shell command; plain words run without a shell. With `errexit` it stops at the first line that fails."""

    command: str
    program: str = "sh"
    stdin: str = ""
    errexit: bool = False


class Noop(Struct, frozen=True, tag="noop"):
    """Does nothing and succeeds: a point where edges meet."""


class Agent(Struct, frozen=True, tag="agent", omit_defaults=True):
    """A prompt for an agent's command line; limits apply if its output reports cost and tokens (0: no limit)."""

    prompt: str
    command: tuple[str, ...] = ("claude", "-p")
    prompt_by: Literal["argument", "stdin"] = "argument"
    cost_max: float = 0.0
    tokens_max: int = 0


class Validate(Struct, frozen=True, tag="validate", omit_defaults=True):
    """A command whose failure is of kind `check`."""

    command: str
    program: str = "sh"
    errexit: bool = False


class WriteFile(Struct, frozen=True, tag="write_file", omit_defaults=True):
    """Writes text to a file; `format` is what the content must be."""

    path: str
    content: str
    mode: int = 0o644
    format: Literal["text", "json", "yaml"] = "text"


class Http(Struct, frozen=True, tag="http", omit_defaults=True):
    """A request; statuses of 400 and above fail, or all but the expected ones. A body is text, or JSON data.

    `params` are added to the url, `form` is the body of a form. `envelope` prints status and headers with the response.
    `save_to` is the file that the body goes to; the output is then its path.
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
    save_to: str = ""


class Python(Struct, frozen=True, tag="python", omit_defaults=True):
    """Python code, in the workflow or in a file, and the inputs of its `main` function.

    `names` are parameters that the engine looks up among all variables of the step, for the code of a playbook.
    `places` are values that the code uses under these names, as data. `status_fails` makes a result with status `error`
    a failure.
    """

    source: str = ""
    file: str = ""
    inputs: dict[str, Any] = {}
    names: tuple[str, ...] = ()
    places: dict[str, Any] = {}
    status_fails: bool = True


class DatabaseSecret(Struct, frozen=True, omit_defaults=True):
    """A secret of DuckDB by `name`: where PostgreSQL is (`<CREDENTIAL>_DSN`), or the two keys of an object store."""

    name: str
    kind: Literal["postgres", "gcs", "s3"]
    credential: str
    scope: str = ""


class Query(Struct, frozen=True, tag="query", omit_defaults=True):
    """Statements for a database, in the workflow or in a file; or rows for one of its tables.

    `auth` names the environment variable, `<AUTH>_DSN`, with the connection string; `secrets` are for DuckDB.
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
    secrets: tuple[DatabaseSecret, ...] = ()


class Given(Struct, frozen=True, array_like=True):
    """One argument of a call: a value, a step's output, an input, the item, or (for `end`) the outcome of the run.

    A value is JSON data, or a pickle inside JSON.

    A list or a mapping of such arguments holds them as pairs of `kind` and `value`.
    """

    kind: Literal["value", "step", "input", "item", "execution", "list", "mapping"]
    value: Any = None


class Function(Struct, frozen=True, tag="function", omit_defaults=True):
    """A call of a Python function, by its name in a module, or in a file outside any package.

    The file's path is relative to the workflow's folder.
    """

    name: str
    module: str = ""
    file: str = ""
    args: tuple[Given, ...] = ()
    kwargs: dict[str, Given] = {}
    workers: Literal["processes", "threads"] = "processes"


class Child(Struct, frozen=True, tag="workflow", omit_defaults=True):
    """Another workflow, run as one step in its own scope; `inputs` are data whose texts may refer to values.

    `result` is the child's step whose value becomes this step's value; without one it has the values of all its steps.
    A child that `shares` is part of the workflow around it: its steps see the variables of this step, and the last one
    gives the value.
    """

    path: str
    workflow: "Workflow"
    inputs: dict[str, Any] = {}
    result: str = ""
    shares: bool = False


class FanOut(Struct, frozen=True, tag="map", omit_defaults=True):
    """One scope for each item, called `scope[index]`, or after the step where `scope` is empty.

    `item_name` is another name for `item` in texts. `branch` begins the names of the branches of worktrees; without
    `merge` the commits of items stay there. The start of a run decides about `auto`: `worktree` in a git checkout.
    """

    source: Source
    steps: tuple["Step", ...]
    policy: ErrorPolicy = ErrorPolicy()
    max_parallel: int | None = None
    item_timeout_seconds: float | None = None
    isolation: Literal["none", "worktree", "auto"] = "none"
    scope: str = ""
    item_name: str = ""
    redrive_parallel: int | None = None
    branch: str = ""
    merge: bool = True


Action = (
    Shell
    | Agent
    | Validate
    | Http
    | Python
    | Function
    | WriteFile
    | Child
    | FanOut
    | Script
    | Log
    | Memory
    | Ask
    | Collect
    | Query
    | Noop
)


class Need(Struct, frozen=True, array_like=True):
    """Waits until all of `any_of` have ended; one success among them satisfies it.

    `skip_satisfies` marks an edge of list order: a skipped step lets the next one run. With `failure_satisfies` a
    failed or canceled one does.
    """

    any_of: tuple[str, ...]
    skip_satisfies: bool = False
    failure_satisfies: bool = False


class Condition(Struct, frozen=True, array_like=True):
    """A condition on values; the engine evaluates it and reports the answer as an event.

    `value` is a literal or one reference, `js` an expression with `${...}` for values, `code` statements without,
    `jinja` a template. `case` is the number of one of the step's cases, which must hold. All conditions in `besides`
    must hold too; for `none` none of them may.
    """

    source: str
    language: Literal["value", "js", "code", "jinja", "case", "none"] = "value"
    origin: Origin = NOWHERE
    besides: tuple["Condition", ...] = ()


class Arc(Struct, frozen=True, array_like=True):
    """One `next` arc; without a condition it is always taken. `args` are values for its target step."""

    step: str
    when: Condition | None = None
    args: dict[str, Any] = {}


class Repair(Struct, frozen=True, omit_defaults=True):
    """Steps that run before a job is retried or counted as recovered: its own steps, or named steps of the scope.

    `on_failure` says what a failed repair means: `ignore` continues as after a success, `next` leaves the failure to
    the rules below, `fail` ends the climb.
    """

    steps: tuple["Step", ...] = ()
    calls: tuple[str, ...] = ()
    calls_js: str = ""
    timeout_seconds: float | None = None
    on_failure: Literal["ignore", "next", "fail"] = "next"


class Rule(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One answer to a failure.

    `limit` counts the firings of this rule, or with `limit_of` job those of all rules of the job's step.

    `when` is a condition on the failure that must hold.

    `routing` marks a rule that the file calls retry, run or goto, which a caller may turn off.

    `retries_anyway` marks a rule that the file calls retry: a caller may cap its limit, and it retries even if its code
    names no step to run.

    `halts` makes a `fail`, or a repair that failed the step, end the whole scope.
    """

    then: Then
    text: str
    match: Match = Match()
    when: Condition | None = None
    limit: int = 1
    limit_of: Literal["rule", "job"] = "rule"
    wait: Backoff | None = None
    repair: Repair | None = None
    change: Escalation | None = None
    target: str = ""
    target_js: str = ""
    transitions: tuple[Transition, ...] = ()
    cost: int = 0
    routing: bool = False
    retries_anyway: bool = False
    halts: bool = False
    origin: Origin = NOWHERE


class SuccessActions(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Actions after a success, in this order: own steps, named steps, a jump back.

    Running the steps spends `run_cost` of the loop budget, the jump `cost`. Where one `validates`, its failure is a
    failure of the attempt: the rules answer it, as they answer a failed command.
    """

    steps: tuple["Step", ...] = ()
    validates: bool = False
    calls: tuple[str, ...] = ()
    calls_js: str = ""
    target: str = ""
    target_js: str = ""
    transitions: tuple[Transition, ...] = ()
    cost: int = 0
    run_cost: int = 0
    origin: Origin = NOWHERE


class Capture(Struct, frozen=True, array_like=True):
    """A variable that is set from an attempt's output."""

    name: str
    form: CaptureForm = "text"


class Resources(Struct, frozen=True, omit_defaults=True):
    """The resources that a step holds while it runs; zero asks for none.

    `enforce`: an attempt that uses more memory is ended. `memory_auto`: the memory is what the step needed in earlier
    runs; 0 in the first run. CPUs, memory and GPUs are those of one of its `nodes`.
    """

    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0
    runtime_seconds: float | None = None
    enforce: bool = False
    memory_auto: bool = False
    nodes: int = 1


class Step(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A node of the definition.

    A step that runs `in_order` waits, in each item of a fan-out, until all earlier items are over.

    `args` are values for its texts and its code. `aliases` are other names for the outputs of steps.

    `reads` are files and folders, `reads_data` is data, whose contents its results depend on (`rerun --changed`).

    A step that `runs_on` labels waits for a worker of a server that has all of them.

    A step that is `left_out` of a run counts as done as soon as it could start. A step that `begins` a run does not
    wait for the arcs that lead to it.
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
    reads: tuple[str, ...] = ()
    reads_data: dict[str, Any] = {}
    outputs: tuple[str, ...] = ()
    resources: Resources | None = None
    runs_on: tuple[str, ...] = ()
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
    left_out: bool = False
    begins: bool = False
    origin: Origin = NOWHERE


class Input(Struct, frozen=True, omit_defaults=True):
    """A value that the caller of the workflow passes."""

    kind: Literal["text", "number", "bool", "json"] = "text"
    default: Any = None
    required: bool = False
    schema: Any = None


class Secret(Struct, frozen=True, omit_defaults=True):
    """The source of a secret's value: an environment variable or a file; a run can do without an optional one."""

    env: str = ""
    file: str = ""
    is_optional: bool = False


class Workflow(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A compiled definition. `end` is always set; a file that defines none gets a Noop.

    `templates` is the language of its texts; `failure_key` is the key for failure handling that messages name.
    With `condition_errors` fail, a condition that throws fails its step; else it does not hold.
    Every `monitor_seconds` a sample is taken of what running attempts use; 0 takes none.
    `edition` is the edition of the core's decisions that its runs follow: a log folds as it did when it was written.
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
    condition_errors: Literal["skip", "fail"] = "skip"
    monitor_seconds: float = 0.0
    edition: int = 1
    executor: ExecutorSettings | None = None


# The types that contain each other, in place of their names: msgspec would have Python compile each name, and the first
# text that Python compiles costs a millisecond.
Child.__annotations__["workflow"] = Workflow
Condition.__annotations__["besides"] = tuple[Condition, ...]
for _owner in (FanOut, Repair, SuccessActions):
    _owner.__annotations__["steps"] = tuple[Step, ...]
