"""The options of steps and maps as frozen classes; a dict with the keys of a file is accepted as well.

Each class has the keys of the file's table of that name. A field that is not given has the default of the file.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from resile.model.rules import BackoffKind

Seconds = float | str
"""A number of seconds, or a duration such as "500ms" or "2m"."""
Exceptions = type[BaseException] | str | tuple[type[BaseException] | str, ...]


class Backoff(Struct, frozen=True, kw_only=True):
    """How long to wait before each further try."""

    type: BackoffKind = "fixed"
    initial: Seconds | None = None
    increment: Seconds | None = None
    multiplier: float | None = None
    max_delay: Seconds | None = None
    jitter: float | None = None


class Retry(Struct, frozen=True):
    """Retry a failed step at most `max` times; with `on`, only after these exceptions and their subclasses."""

    max: int
    on: Exceptions | None = None
    backoff: Backoff | Seconds | dict[str, Any] | None = None


class OnFailure(Struct, frozen=True, kw_only=True):
    """The answer to a failure: handler commands, steps to run, a step to go back to; `on_failure` in a file."""

    retry: Retry | int | dict[str, Any] | None = None
    run: Any = None
    run_js: str | None = None
    goto: Any = None
    goto_js: str | None = None
    transitions: list[dict[str, Any]] | None = None
    shell: str | None = None
    agent: Any = None
    commands: Any = None
    strategy: Literal["recovery", "fallback", "cleanup", "custom"] | None = None
    max_attempts: int | None = None
    timeout: Seconds | None = None
    handler_failure_fatal: bool | None = None
    fail_workflow: bool | None = None
    accept: bool | None = None
    capture: Any = None


class Resources(Struct, frozen=True, kw_only=True):
    """The resources that a step uses while it runs; `resources` in a file."""

    cpus: float | None = None
    memory: int | str | None = None
    gpus: int | None = None
    nodes: int | None = None
    runtime: Seconds | None = None
    escalate: dict[str, Any] | None = None
    enforce: bool | None = None


class Map(Struct, frozen=True, kw_only=True):
    """How a function runs over many items, and what failed items mean; `map` and `error_policy` in a file."""

    max_parallel: int | None = None
    item_timeout: Seconds | None = None
    max_items: int | None = None
    offset: int | None = None
    on_item_failure: str | None = None
    continue_on_failure: bool | None = None
    max_failures: int | None = None
    failure_threshold: float | None = None
    failure_threshold_min_items: int | None = None
    error_collection: Any = None
    circuit_breaker: dict[str, Any] | None = None
    retry_config: dict[str, Any] | None = None


MAP_KEYS = ("max_parallel", "item_timeout", "max_items", "offset")
"""The fields of `Map` that are keys of `map`; the others are keys of its `error_policy`."""


def keys_of(option: Struct) -> dict[str, Any]:
    """The fields of an option that were given, by the keys of a file."""
    return {name: value for name in option.__struct_fields__ if (value := getattr(option, name)) is not None}


def map_keys_of(option: Map | dict[str, Any]) -> dict[str, Any]:
    """The keys of `map` in a file, with those of the error policy below `error_policy`."""
    if isinstance(option, dict):
        return dict(option)
    given = keys_of(option)
    keys = {name: given.pop(name) for name in MAP_KEYS if name in given}
    return {**keys, "error_policy": given} if given else keys
