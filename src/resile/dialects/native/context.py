"""State of the native reader: the workflow's settings, its scopes, and drafts of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.graph.ancestors import Ancestors
from resile.dialects.reading.context import Reading, Source, Text
from resile.dialects.reading.diagnostics import Diagnostics
from resile.model.fanout import ErrorPolicy
from resile.model.rules import Origin
from resile.model.workflow import Arc, Need, Rule, Step, SuccessActions, Workflow

if TYPE_CHECKING:
    from resile.dialects.compile import Compiled

FANOUT_DEPTH_MAX = 8
_HANGS_ON = frozenset(
    ("on_failure", "on_fail", "max_attempts", "max_retries", "fail_workflow", "handler_failure_fatal")
)


How = Literal["needs", "next", "run", "goto", "transitions"]


class NameUse(Struct, frozen=True, gc=False):
    """A reference to a step by name, resolved once all steps are known."""

    owner: str
    how: How
    node: Scalar
    by_default: bool = False


class Defaults(Struct, frozen=True, gc=False):
    """Settings that a step inherits; `before` names the earlier commands if the step is in a handler.

    `errexit`: does a command of several lines stop at the first one that fails? None: it does, but the file is silent.
    """

    program: str = "sh"
    env: dict[str, str] = {}
    working_dir: str = ""
    before: tuple[str, ...] | None = None
    errexit: bool | None = None


class Scope(Struct):
    """Steps that can name each other: those of a workflow, or those that run for each item of a fan-out.

    `around` is the scope of the fan-out's step and `owner` that step's name; `is_inside` means that the fan-out is in a
    handler. `names_in_code` are (owner, text literal) pairs from `run_js`; a literal that equals a step's name is a
    reference to that step. `captured` maps names that handlers capture to the step of the handler. `inner` maps the
    steps of fan-outs in this scope to the step that runs them.
    """

    around: Scope | None = None
    owner: str = ""
    is_inside: bool = False
    texts: list[Text] = field(default_factory=list)
    named: list[NameUse] = field(default_factory=list)
    names_in_code: list[tuple[str, str]] = field(default_factory=list)
    captured: dict[str, str] = field(default_factory=dict)
    inner: dict[str, str] = field(default_factory=dict)
    drafts: dict[str, StepDraft] = field(default_factory=dict)
    called: frozenset[str] = frozenset()
    ancestors: Ancestors | None = None


class UnknownName(Struct, frozen=True, gc=False):
    """A name that is missing in an item's scope; reported once the outer scopes are known."""

    scope: Scope
    how: How
    node: Scalar | Mapping
    name: str


class Readers(Struct, frozen=True):
    """Readers that call each other recursively: a step contains steps, a step contains a workflow.

    `compile_part` passes them in with the reading, which avoids circular imports.
    """

    step: Callable[[NativeReading, str, Mapping, Scalar | Mapping, Defaults], StepDraft]
    scope: Callable[[NativeReading, dict[str, StepDraft], bool], tuple[Step, ...]]
    workflow: Callable[[NativeReading, Mapping], Workflow | None]


class CallStack(Struct):
    """Files being compiled, outermost first, with the number of steps below each; `known` has the compiled ones."""

    open: list[str]
    counts: list[int]
    known: dict[str, tuple[Compiled, int]] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)


class Policy(Struct, frozen=True):
    """An error policy, and the node that names its custom item handler, if any."""

    settings: ErrorPolicy
    custom: Scalar | None = None


class Answer(Struct, frozen=True):
    """A step's failure settings, from `on_failure` and the keys beside it, with the position of each.

    `key` is `on_failure` or `on_fail`; `tolerates` is set if its value is just `true`.
    """

    fields: dict[str, Any]
    places: dict[str, Origin]
    key: str = ""
    tolerates: bool = False
    by_default: frozenset[str] = frozenset()

    def at(self, *fields: str) -> Origin:
        """Position of the first of these fields that is set."""
        return next((self.places[field] for field in fields if field in self.places), Origin())


class Needed(Struct, frozen=True, gc=False):
    """A long list of needs with their nodes; steps with identical lists share `needs`."""

    needs: tuple[Need, ...]
    nodes: list[Scalar | Mapping]

    def __iter__(self) -> Iterator[tuple[Need, Scalar | Mapping]]:
        """Each need with its node."""
        return zip(self.needs, self.nodes, strict=True)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.needs)


Needs = Needed | tuple[tuple[Need, Scalar | Mapping], ...]
"""The needs of a step, each with its node."""


class NativeReading(Reading):
    """State of reading a native file: the workflow's defaults for steps, and references between steps.

    `scope` is the one whose steps are being read, `scopes` are all of them, outer ones first. `lists` are the
    `handlers`; `handlers_used` are those that a policy or a step names. `policy` is the default of maps without an
    `error_policy`. `call_stack` has the files of called workflows; `level` counts the inline workflows around this one;
    `dialect` is that of the user's file. `needs` caches needs by their text, since most are repeated. `onward` and
    `needing` are the words that hints use for `next` and `needs`. `parts` caches compiled inline workflows by the
    identity of their nodes, which copies of a step share. `errexit` is the default of a workflow; False for files of
    other systems.
    """

    readers: Readers

    def __init__(self, source: Source, report: Diagnostics, dialect: str = "native", is_checked: bool = False) -> None:
        super().__init__(source, report)
        self.dialect = dialect
        self.is_checked = is_checked
        self.errexit: bool | None = None
        self.onward = "`next` leads on to another step"
        self.needing = "`needs`"
        self.parts: dict[int, tuple[Workflow | None, str]] = {}
        self.agent: dict[str, Any] = {}
        self.handlers: dict[str, tuple[Rule, ...]] = {}
        self.defaults: Answer | None = None
        self.scope = Scope(texts=self.texts)
        self.scopes = [self.scope]
        self.unknown_names: list[UnknownName] = []
        self.lists: dict[str, list[Node]] = {}
        self.handlers_used: set[str] = set()
        self.policy: Policy | None = None
        self.policy_used = False
        self.call_stack: CallStack | None = None
        self.level = 0
        self.needs: dict[str, Need] = {}
        self.need_lists: dict[tuple[Any, ...], tuple[Need, ...]] = {}

    @contextmanager
    def enter_scope(self, scope: Scope) -> Iterator[None]:
        """Read the steps of another scope; collect its texts and names there."""
        outer = self.scope, self.owner, self.depth
        self.scope, self.owner, self.depth = scope, "", 0
        self.texts = scope.texts
        self.scopes.append(scope)
        yield
        self.scope, self.owner, self.depth = outer
        self.texts = self.scope.texts


class ForEach(Struct, frozen=True):
    """Settings beside `foreach: true`: how the fan-out over a step's output runs."""

    within: Defaults
    place: Origin
    policy: Policy | None = None
    max_parallel: int | None = None
    on_finish: SuccessActions | None = None
    in_turn: bool = False


class StepDraft(Struct, gc=False):
    """A step before its references are resolved; they keep their nodes for error messages."""

    step: Step
    node: Mapping
    key: Scalar | Mapping
    needs: Needs = ()
    arcs: tuple[tuple[Arc, Scalar], ...] = ()
    foreach: ForEach | None = None
    fanout: str = ""


def place_of(reading: Reading, node: Mapping, key: str) -> Origin:
    """Position of a key."""
    return reading.origin(node.entries[key][0])


def is_dangling(item: Node) -> str:
    """Return `on_failure` or `on_fail` if a list item has it but no action of its own, else an empty text."""
    if not isinstance(item, Mapping) or not item.entries.keys() <= _HANGS_ON:
        return ""
    return next((word for word in ("on_failure", "on_fail") if word in item.entries), "")
