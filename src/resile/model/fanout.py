"""Fan-outs: where items come from, what runs for each, and what becomes of those that fail."""

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from resile.model.rules import Backoff

if TYPE_CHECKING:
    from resile.model.workflow import Step


class Source(Struct, frozen=True, omit_defaults=True):
    """Where items come from (one of the first five), and which of them are taken, in which order.

    `template` is a text whose value is a list, `step` a step of the scope around the fan-out whose output is one.
    `filter` is JavaScript that sees `item`, and with `filter_bare` its fields by their names as well. `sort_by` is
    `field [ASC|DESC], ...`; `distinct` a field.
    """

    values: tuple[Any, ...] | None = None
    path: str = ""
    command: str = ""
    step: str = ""
    template: str = ""
    program: str = "sh"
    json_path: str = ""
    filter: str = ""
    filter_bare: bool = False
    sort_by: str = ""
    distinct: str = ""
    offset: int = 0
    items_max: int = 0


class Breaker(Struct, frozen=True, omit_defaults=True):
    """The circuit breaker of one fan-out."""

    failure_threshold: int = 5
    success_threshold: int = 3
    timeout_seconds: float = 30.0
    half_open_requests: int = 3


class ErrorPolicy(Struct, frozen=True, omit_defaults=True):
    """What a failed item means for itself and for the whole fan-out.

    An item that stays failed is kept as a dead letter, with `skip` dropped; `stop` ends the fan-out at once, `fail`
    lets the others finish and fails it then. `carry_on` does as `fail`, but what needs the fan-out runs all the same
    where some items succeeded. `retry` runs the item again, up to `attempts_max` executions in all.
    `failures_max` 0 and `failure_threshold` 1.0 never stop anything.
    """

    on_item_failure: Literal["dlq", "retry", "skip", "stop", "fail", "carry_on"] = "dlq"
    continue_on_failure: bool = True
    failures_max: int = 0
    failure_threshold: float = 1.0
    threshold_items_min: int = 10
    collection: Literal["aggregate", "immediate", "batched"] = "aggregate"
    batch_size: int = 10
    attempts_max: int = 1
    backoff: Backoff | None = None
    breaker: Breaker | None = None


class FanOut(Struct, frozen=True, tag="map", omit_defaults=True):
    """One scope for each item, called `scope[index]`, or after the step where `scope` is left empty.

    `item_name` is what the item is called in texts, besides `item`.
    """

    source: Source
    steps: tuple["Step", ...]
    policy: ErrorPolicy = ErrorPolicy()
    max_parallel: int | None = None
    item_timeout_seconds: float | None = None
    isolation: Literal["none", "worktree"] = "none"
    scope: str = ""
    item_name: str = ""
