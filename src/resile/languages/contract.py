"""The contract of template languages: their methods, and the services of a run that they may use.

    file loaded   language.check(text), names_in(text), check_url(url)
    attempt       visible = language.visible(run, job)       the names that the texts of one job can use
                  language.render_text, render_shell, render_data, render_url (text, visible), render_path
    question      language.condition(condition, run, job, at), language.code(run)

`resile.languages.registry.language_of(workflow)` finds the language. A language has no state: the engine implements
`Run` and keeps the state of a run. The five functions at the end render in the language of `visible`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from resile.core.events import Event
    from resile.core.state import Job, State
    from resile.languages.javascript.evaluate import Sandbox
    from resile.model.rules import Transition
    from resile.model.workflow import Condition, Http, Python, Query

Namespaces = dict[str, dict[str, Any]]
"""The memory of a run: values by key, by namespace."""


class JobRecord(Protocol):
    """A job, as the store lists it."""

    @property
    def id(self) -> int:
        """The number of the job."""

    @property
    def step(self) -> str:
        """The name of its step."""

    @property
    def scope(self) -> str:
        """The name of its scope."""

    @property
    def status(self) -> int:
        """The status, as a number."""


class Memory(Protocol):
    """The memory of a run."""

    def namespaces(self, job: Job) -> Namespaces:
        """The namespaces that a job can use."""

    def write(self, job: Job, changed: Namespaces) -> Namespaces:
        """Replace these namespaces; return the changes, for the outcome of the attempt to record."""


class Run(Protocol):
    """The services of a run for a language; the engine implements it (engine/evaluation/values.py)."""

    id: int
    state: State
    directory: str
    public_env: Mapping[str, str]
    debug: Callable[[str], None] | None

    @property
    def memory(self) -> Memory:
        """The memory of the run."""

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox for JavaScript, started with the first code."""

    def find(self, path: Sequence[str | int], job: Job) -> Any:
        """The value under a path such as ("steps", "build", "output") as a job sees it, or MISSING."""

    def output(self, job: Job) -> Any:
        """The output of a job."""

    def text(self, job: Job) -> str:
        """What the last attempt of a job wrote to stdout."""

    def history(self, job: Job) -> list[Any]:
        """The output of each successful attempt of a job in this epoch, oldest first."""

    def env_of(self, job: Job) -> Mapping[str, str]:
        """The environment variables of a job, with secrets."""

    def capturer(self, name: str, job: Job) -> str:
        """The step that captures a name visible to a job; empty if none does."""

    def job_rows(self) -> Iterator[JobRecord]:
        """Every job of the run, including those the state has dropped."""

    def events(self) -> Iterator[Event]:
        """The log of the run."""

    def redact(self, text: str) -> str:
        """The text without secrets, even encoded ones."""


class Code(Protocol):
    """Evaluates the JavaScript that decides which steps run next."""

    def steps_to_run(self, code: str, job: Job, at: float) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """The steps that `run_js` names, or None; and the problems of the code."""

    def target(
        self, transitions: tuple[Transition, ...], code: str, job: Job, at: float
    ) -> tuple[str, bool, tuple[str, ...]]:
        """The step to go to, if any; whether a transition says to stop; the problems of the code."""


class Visible(Protocol):
    """The names and values that the texts of one job can use."""

    @property
    def language(self) -> Language[Any]:
        """The language of these texts."""

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of the step; empty in a language without arguments."""

    def __call__(self, name: str) -> Any:
        """The value of a `${...}` reference; MISSING if the reference belongs to the shell."""


Seen = TypeVar("Seen", bound=Visible)


class Program(Struct, frozen=True):
    """One of our programs that runs a step: its kind, and its settings as JSON data."""

    kind: Literal["http", "python", "playbook", "sql", "write"]
    settings: dict[str, Any]
    may_use_file: bool = False


class Language(Protocol[Seen]):
    """One template language. `mark` begins every value in a text; `has_references` tells whether `${...}` is one.

    A language that `may_wait` renders some texts in another process (waiting.py).
    """

    mark: str
    has_references: bool
    may_wait: bool

    def names_in(self, text: str) -> frozenset[str]:
        """The names that a text uses."""

    def check(self, text: str) -> str:
        """Why a text could never be rendered; empty if it can."""

    def check_url(self, url: str) -> tuple[str, str]:
        """What is wrong with the URL of a request in a workflow file, and a hint; both empty if it is valid."""

    def visible(self, run: Run, job: Job) -> Seen:
        """The names and values that the texts of a job can use."""

    def render_text(self, text: str, visible: Seen) -> str:
        """The text with its values, unquoted; raises ValueRefused."""

    def render_shell(self, text: str, visible: Seen, program: str = "sh") -> str:
        """The command with its values, each quoted for its position; raises ValueRefused."""

    def render_data(self, data: Any, visible: Seen) -> Any:
        """The data with values in its texts; a text that is one value keeps its type. Raises ValueRefused."""

    def render_url(self, url: str, visible: Seen) -> str:
        """The URL with its values percent-encoded; no value can change its server or leave its folder."""

    def render_path(self, path: str, visible: Seen, folder: str) -> str:
        """The path of a file with its values, relative to `folder`; no value leads out of the folder it stands in."""

    def program(self, action: Http | Python | Query, name: str, folder: str, shared: str, visible: Seen) -> Program:
        """The program that runs a step, with its values; `folder` is the workflow's, `shared` one for the whole run."""

    def condition(self, condition: Condition, run: Run, job: Job, at: float) -> tuple[bool, str]:
        """Whether one condition holds, and its problem."""

    def code(self, run: Run) -> Code:
        """The JavaScript evaluator with the names of this language."""


def render_text(text: str, visible: Visible) -> str:
    """Render a text."""
    return visible.language.render_text(text, visible)


def render_shell(text: str, visible: Visible, program: str = "sh") -> str:
    """Render a command."""
    return visible.language.render_shell(text, visible, program)


def render_data(data: Any, visible: Visible) -> Any:
    """Render data."""
    return visible.language.render_data(data, visible)


def render_path(path: str, visible: Visible, folder: str) -> str:
    """Render a path."""
    return visible.language.render_path(path, visible, folder)


def render_url(url: str, visible: Visible) -> str:
    """Render a url."""
    return visible.language.render_url(url, visible)
