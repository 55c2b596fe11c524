"""A native file that is being read: the workflow's settings, its scopes, and the steps on their way to the model."""

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
from resile.model.rules import Origin, Rule, SuccessActions
from resile.model.workflow import Arc, Need, Step, Workflow

if TYPE_CHECKING:
    from resile.dialects.compile import Compiled

FANOUT_DEPTH_MAX = 8
_HANGS_ON = frozenset(("on_failure", "on_fail", "max_attempts", "max_retries", "fail_workflow"))


How = Literal["needs", "next", "run", "goto", "transitions"]


class NameUse(Struct, frozen=True, gc=False):
    """A step of the workflow that another one names; looked at once all steps are known."""

    owner: str
    how: How
    node: Scalar
    by_default: bool = False


class Defaults(Struct, frozen=True, gc=False):
    """Where a step stands and what it takes over; `before` names the commands before it in a handler."""

    program: str = "sh"
    env: dict[str, str] = {}
    working_dir: str = ""
    before: tuple[str, ...] | None = None


class Scope(Struct):
    """Steps that know each other by name: those of the workflow, or those that run for each item of a fan-out.

    `around` is the scope that holds the fan-out, `owner` its step there; `is_inside`: in one of its handlers.
    `names_in_code` are (owner, text) in the code of `run_js`: where one names a step, that step counts as named.
    `captured` are names that handlers capture, with the step whose handler it is. `inner` names the steps that
    stand in fan-outs of this scope, with the step that runs them.
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
    """A name that the scope of an item does not know; reported once the names around it are known."""

    scope: Scope
    how: How
    node: Scalar | Mapping
    name: str


class Readers(Struct, frozen=True):
    """The readers that call each other in a circle: a step holds steps, a step holds a workflow.

    `compile_part` hands them to the reading, so that no module imports another that imports it.
    """

    step: Callable[[NativeReading, str, Mapping, Scalar | Mapping, Defaults], StepDraft]
    scope: Callable[[NativeReading, dict[str, StepDraft], bool], tuple[Step, ...]]
    workflow: Callable[[NativeReading, Mapping], Workflow | None]


class CallStack(Struct):
    """The files that are being compiled, outermost first, with the steps below each; and those that are done."""

    open: list[str]
    counts: list[int]
    known: dict[str, tuple[Compiled, int]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)


class Policy(Struct, frozen=True):
    """A policy, and the node that names the handler of its items, if it has one."""

    settings: ErrorPolicy
    custom: Scalar | None = None


class Answer(Struct, frozen=True):
    """What a step says about its failures, from `on_failure` and beside it: values and where each stands.

    `key` is `on_failure` or `on_fail`; `tolerates` is set where it is just `true`.
    """

    fields: dict[str, Any]
    places: dict[str, Origin]
    key: str = ""
    tolerates: bool = False
    by_default: frozenset[str] = frozenset()

    def at(self, *fields: str) -> Origin:
        """Where the first of these fields that is there stands."""
        return next((self.places[field] for field in fields if field in self.places), Origin())


class Needed(Struct, frozen=True, gc=False):
    """A long list of needs, each with its node; steps whose lists are written alike share the needs."""

    needs: tuple[Need, ...]
    nodes: list[Scalar | Mapping]

    def __iter__(self) -> Iterator[tuple[Need, Scalar | Mapping]]:
        """Each need with its node."""
        return zip(self.needs, self.nodes, strict=True)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.needs)


Needs = Needed | tuple[tuple[Need, Scalar | Mapping], ...]
"""What a step needs, each need with its node."""


class NativeReading(Reading):
    """A native file being read: what the workflow says for its steps, and what they say about each other.

    `scope` is the one whose steps are being read, `scopes` are all of them, outer ones first. `lists` are the
    `handlers`; `handlers_used` are named by a policy or a step. `policy` is what maps have that say nothing else.
    `call_stack` has the files of the workflows that this one calls; `level` counts those in which it stands,
    `dialect` is that of the user's file. `needs` are those read so far, by their text: most are repeated. `onward` and
    `needing` are what hints call the ways on and back. `parts` are the compiled workflows of steps, by the identity of
    their nodes, which copies of a step share.
    """

    readers: Readers

    def __init__(self, source: Source, report: Diagnostics, dialect: str = "native", is_checked: bool = False) -> None:
        super().__init__(source, report)
        self.dialect = dialect
        self.is_checked = is_checked
        self.onward = "`next` leads on to another step"
        self.needing = "`needs`"
        self.parts: dict[int, tuple[Workflow | None, str]] = {}
        self.agent: dict[str, Any] = {}
        self.handlers: dict[str, tuple[Rule, ...]] = {}
        self.defaults: Answer | None = None
        self.scope = Scope(texts=self.texts)
        self.scopes = [self.scope]
        self.strangers: list[UnknownName] = []
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
        """Read the steps of another scope; its texts and names are kept with it."""
        outer = self.scope, self.owner, self.depth
        self.scope, self.owner, self.depth = scope, "", 0
        self.texts = scope.texts
        self.scopes.append(scope)
        yield
        self.scope, self.owner, self.depth = outer
        self.texts = self.scope.texts


class ForEach(Struct, frozen=True):
    """What a step says about the items that its output is."""

    within: Defaults
    place: Origin
    policy: Policy | None = None
    max_parallel: int | None = None
    on_finish: SuccessActions | None = None
    in_turn: bool = False


class StepDraft(Struct, gc=False):
    """A step on its way: names it refers to keep their nodes until all steps are known."""

    step: Step
    node: Mapping
    key: Scalar | Mapping
    needs: Needs = ()
    arcs: tuple[tuple[Arc, Scalar], ...] = ()
    foreach: ForEach | None = None
    fanout: str = ""


def place_of(reading: Reading, node: Mapping, key: str) -> Origin:
    """Where a key stands."""
    return reading.origin(node.entries[key][0])


def is_dangling(item: Node) -> str:
    """The `on_failure` of an item in a list of steps that has no action of its own, or an empty text."""
    if not isinstance(item, Mapping) or not item.entries.keys() <= _HANGS_ON:
        return ""
    return next((word for word in ("on_failure", "on_fail") if word in item.entries), "")
