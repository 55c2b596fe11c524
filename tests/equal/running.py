"""Runs of one file by both versions, and what of a run must be the same.

compared    exit code, the document that `run --json` prints, the events of each step in their order, and for each
            need of a step whether what it needs ended first
left out    times, durations, numbers of processes and of jobs; the order between steps that don't need each other
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any, NamedTuple

from tests.equal.compiling import Version
from tests.equal.differences import Difference, differences
from tests.equal.files import File
from tests.equal.sandbox import Box

RUN_SECONDS_MAX = 20.0
OLD_RUNS_MAX = 4
VOLATILE = {
    *(
        "at",
        "started_at",
        "ended_at",
        "seconds",
        "duration_seconds",
        "duration_ms",
        "wall_seconds",
        "cpu_seconds",
        "rss_bytes_max",
    ),
    *("pid", "id", "job", "seq", "because", "first_failure", "elapsed_seconds", "first_at", "last_at"),
}


class Found(NamedTuple):
    """What differs between the versions, and what differs between runs of the old one as well."""

    different: list[Difference]
    unstable: list[Difference]


def compared(file: File, model: dict[str, Any], box: Box, old: Version, new: Version) -> Found:
    """What differs between a run of each version, and between two runs of the old one."""
    first = held(file, model, box, old)
    found = list(differences(first, held(file, model, box, new)))
    unstable: list[Difference] = []
    for _ in range(OLD_RUNS_MAX - 1):
        if all(_is_in(each, unstable) for each in found):
            break
        unstable += differences(first, held(file, model, box, old))
    left = [each for each in found if not _is_in(each, unstable)]
    return Found(left, [each for each in found if each not in left])


def _is_in(found: Difference, unstable: list[Difference]) -> bool:
    """Did this place differ before? Where a list had more or fewer entries, all of its entries count."""
    lists = tuple(_list_of(each.place) for each in unstable if "nothing" in (each.old, each.new))
    return found.place.startswith(lists) or any(found.place == each.place for each in unstable)


def _list_of(place: str) -> str:
    """The place of the innermost list around a place, with the dot behind it; else the place itself."""
    parts = place.split(".")
    numbers = [index for index, part in enumerate(parts) if part.isdigit()]
    return ".".join((*parts[: numbers[-1]], "")) if numbers else place


def held(file: File, model: dict[str, Any], box: Box, version: Version) -> dict[str, Any]:
    """What comes of running a file with one version."""
    box.fill(file.path.parent)
    environment = box.environment(is_ours=file.group != "corpus")
    resile = [version.python, "-m", "resile"]
    code, out = box.call([*resile, "run", file.path.name, "--json"], environment, RUN_SECONDS_MAX)
    told: dict[str, Any] = {"exit": code}
    if code == "timeout":
        return {"run": told}
    told |= _document(_neutral(out, version))
    if "jobs" in told:
        _, listed = box.call([*resile, "events", "ls", "1", "--json"], environment, RUN_SECONDS_MAX)
        events = [json.loads(line) for line in _neutral(listed, version).splitlines()]
        told["events"] = _by_step(events)
        told["order"] = _order(events, model)
    return {"run": told}


def _neutral(text: str, version: Version) -> str:
    """A text without times, without the names that `mktemp` makes up, and without the place of the version."""
    text = re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", "<time>", version.neutral(text))
    return re.sub(r"\btmp\.\w{10}\b", "tmp.<any>", text)


def _document(text: str) -> dict[str, Any]:
    """The document of a run without what differs each time; jobs and routes by step."""
    try:
        document = json.loads(text)
    except ValueError:
        return {"printed": text.splitlines()}
    for name in ("jobs", "routes"):
        if name in document:
            document[name] = _by_step(document[name])
    stable: dict[str, Any] = _stable(document)
    return stable


def _by_step(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows that have a scope and a step, under these two, in their order there; items come in any order."""
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        if row.get("type") == "map_progress":
            continue
        rest = {key: value for key, value in row.items() if key not in ("scope", "step")}
        item = (row.get("data") or {}).get("item", "")
        found[f"{row.get('scope') or ''}/{row.get('step') or ''} {item}".strip().replace(".", "·")].append(
            _stable(rest)
        )
    return dict(sorted(found.items()))


def _stable(value: Any) -> Any:
    """A value without the entries that are different in each run; lists of items are sorted."""
    match value:
        case dict():
            stable = {key: _stable(each) for key, each in value.items() if key not in VOLATILE}
            return {key: _sorted(each) if key == "items" else each for key, each in stable.items()}
        case list():
            return [_stable(each) for each in value]
        case _:
            return value


def _sorted(value: Any) -> Any:
    """A list in an order that its content decides."""
    return sorted(value, key=json.dumps) if isinstance(value, list) else value


def _order(events: list[dict[str, Any]], model: dict[str, Any]) -> dict[str, bool]:
    """Of each need among the steps of the file itself, where both took place: did the needed one end first?"""
    own = [event for event in events if event["scope"] == "root"]
    began: dict[str, int] = {}
    ended: dict[str, int] = {}
    for event in own:
        if event["type"] == "attempt_started":
            began.setdefault(event["step"], event["seq"])
        elif event["type"] == "step.exit":
            ended.setdefault(event["step"], event["seq"])
    return {
        f"{other}>{step['name']}".replace(".", "·"): ended[other] < began[step["name"]]
        for step in model["steps"]
        for names, *_ in step.get("needs", ())
        for other in names
        if other in ended and step["name"] in began
    }
