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

from resile.model.fanout import FanOut
from resile.model.limits import GRACE_SECONDS_DEFAULT, LOOPS_DEFAULT
from resile.model.rules import Origin, Rule, SuccessActions

CaptureForm = Literal["text", "json", "lines", "number", "bool", "stderr", "exit_code", "combined"]


class Shell(Struct, frozen=True, tag="shell", omit_defaults=True):
    """A shell command; plain words run without a shell."""

    command: str
    program: str = "sh"


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
    """A request; statuses of 400 and above fail, or all but the expected ones. A body is text, or JSON data."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str | None = None
    json: Any = None
    expect_status: tuple[int, ...] = ()


class Python(Struct, frozen=True, tag="python", omit_defaults=True):
    """Python code, written in the workflow or in a file of its own, and the inputs of its `main` function."""

    source: str = ""
    file: str = ""
    inputs: dict[str, Any] = {}


class Child(Struct, frozen=True, tag="workflow", omit_defaults=True):
    """Another workflow, run as one step."""

    path: str
    inputs: dict[str, str] = {}


Action = Shell | Noop | Agent | Validate | WriteFile | Http | Python | Child | FanOut


class Need(Struct, frozen=True, array_like=True):
    """Waits for all of `any_of`; satisfied by any success among them.

    `skip_satisfies` marks an edge of list order: a skipped step lets the next one run.
    """

    any_of: tuple[str, ...]
    skip_satisfies: bool = False


class Condition(Struct, frozen=True, array_like=True):
    """A question about values, answered by the runtime and fed back as an event."""

    source: str
    language: Literal["value", "js"] = "value"
    origin: Origin = Origin()


class Arc(Struct, frozen=True, array_like=True):
    """One `next` arc; without a condition it is always taken."""

    step: str
    when: Condition | None = None


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
    """A node of the definition."""

    name: str
    action: Action
    needs: tuple[Need, ...] = ()
    arcs: tuple[Arc, ...] = ()
    arcs_mode: Literal["all", "first"] = "all"
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
    origin: Origin = Origin()


class Input(Struct, frozen=True, omit_defaults=True):
    """A value that the caller gives."""

    kind: Literal["text", "number", "bool", "json"] = "text"
    default: Any = None
    required: bool = False


class Secret(Struct, frozen=True, omit_defaults=True):
    """Where a secret's value comes from: an environment variable or a file."""

    env: str = ""
    file: str = ""


class Workflow(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A compiled definition. `end` is always there; a file that defines none gets a Noop."""

    name: str
    dialect: str
    file: str
    folder: str
    steps: tuple[Step, ...]
    end: Step
    inputs: dict[str, Input] = {}
    secrets: dict[str, Secret] = {}
    env: dict[str, str] = {}
    max_parallel: int | None = None
    grace_seconds: float = GRACE_SECONDS_DEFAULT
    loops_max: int = LOOPS_DEFAULT
    failure_handlers: dict[str, tuple[Rule, ...]] = {}
