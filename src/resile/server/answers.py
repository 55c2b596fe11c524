"""The documents that only the API has; all others are those that commands print."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from resile.commands.documents.answers import ParkedFailure
from resile.errors import Diagnostic


class Health(Struct, frozen=True):
    """The server answers."""

    status: Literal["ok"]


class Version(Struct, frozen=True):
    """The version of the server."""

    resile: str
    api: str


class Submitted(Struct, frozen=True):
    """A run that the server drives."""

    run: int
    status: str


class Accepted(Struct, frozen=True):
    """The server has recorded the request; the events of the run say when it was carried out."""

    run: int


class GraphNode(Struct, frozen=True):
    """A step; one inside a map or a child workflow has the name of that step before its own."""

    id: str
    status: str


class GraphLink(Struct, frozen=True):
    """An edge between two steps."""

    source: str = field(name="from")
    target: str = field(name="to")
    kind: Literal["needs", "next", "goto", "run", "on_failure"]


class RunGraph(Struct, frozen=True):
    """The steps of a run and the edges between them."""

    nodes: list[GraphNode]
    edges: list[GraphLink]


class RunFailure(ParkedFailure, frozen=True):
    """A parked failure, with its run."""

    run: int


class FailureGroup(Struct, frozen=True):
    """The parked failures of all runs that have one signature; of very many the newest are listed."""

    signature: str
    count: int
    failures: list[RunFailure]


class CheckedText(Struct, frozen=True):
    """What `check` found about a text."""

    dialect: str
    why: str
    steps: int
    diagnostics: list[Diagnostic]


class Redriven(Struct, frozen=True):
    """The dead letters that run again, or would."""

    items: list[str]


class TorcJob(Struct, frozen=True):
    """A job as clients of Torc know it: `id` is unique over all runs, `workflow_id` is the run."""

    id: int
    workflow_id: int
    name: str
    status: str
    attempt_id: int


class FailedTorcJob(TorcJob, frozen=True):
    """The same in a list, with the end of what its last attempt wrote to stderr."""

    stderr: str


class TorcJobs(Struct, frozen=True):
    """A list of such jobs."""

    items: list[FailedTorcJob]


class FailureHandler(Struct, frozen=True):
    """A failure handler of a workflow; `rules` is a JSON array in a text."""

    id: int
    workflow_id: int
    name: str
    rules: str


class FailureHandlers(Struct, frozen=True):
    """The failure handlers of a workflow."""

    items: list[FailureHandler]
