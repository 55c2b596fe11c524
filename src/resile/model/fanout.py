"""The parts of a fan-out that contain no steps: the source of its items, and the policy for items that fail."""

from typing import Any, Literal

from msgspec import Struct

from resile.model.rules import Backoff


class Source(Struct, frozen=True, omit_defaults=True):
    """The source of the items (one of the first five), and how they are filtered and sorted.

    `template` is a text whose value is a list; `step` is a step in the scope around the fan-out whose output is a list.
    `filter` is JavaScript that sees `item`, and with `filter_bare` also the item's fields as variables. `sort_by` is
    `field [ASC|DESC], ...`; `distinct` is a field. With `errexit` the command stops at the first line that fails.
    """

    values: tuple[Any, ...] | None = None
    path: str = ""
    command: str = ""
    step: str = ""
    template: str = ""
    program: str = "sh"
    errexit: bool = False
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
    """The consequences of a failed item, for itself and for the fan-out.

    An item that stays failed is kept as a dead letter; `skip` drops it. `stop` ends the fan-out at once; `fail` lets
    the other items finish and then fails the fan-out. `carry_on` is like `fail`, but dependents run if some items
    succeeded. `retry` runs the item again, up to `attempts_max` executions in all. `failures_max` 0 and
    `failure_threshold` 1.0 mean no limit.
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
