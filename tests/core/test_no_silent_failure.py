"""Generated native workflows with one step that fails for good and nothing that asks for tolerance: none completes."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from resile.dialects.compile import compile_text
from tests.core.items import Items
from tests.core.world import OK, failed

FAILS = {"id": "h-fails", "shell": "x"}
PASSES = {"id": "h-passes", "shell": "x"}


def _handler(random: Random) -> dict[str, Any]:
    """Keys of a failing step that answer its failure, and none of which can make good of it."""
    rerun = {"max_attempts": random.randint(2, 3)}
    return random.choice(
        [
            {},
            {"retry": random.randint(1, 3)},
            {"on_failure": [FAILS]},
            {"on_failure": [PASSES, FAILS]},
            {"on_failure": {"commands": [{**PASSES, "on_failure": [FAILS]}, FAILS]}},
            {"on_failure": {"commands": [PASSES], **rerun}},
            {"on_failure": {"commands": [FAILS], **rerun}},
            {"on_failure": {"commands": [PASSES], "max_retries": 1}},
            {"on_failure": {"commands": [PASSES], "strategy": "cleanup"}},
            {"on_failure": {"commands": [FAILS], "strategy": "fallback"}},
            {"on_failure": {"commands": [PASSES], "fail_workflow": True}},
            {"on_failure": {"commands": [PASSES], **rerun, "handler_failure_fatal": True}},
            {"on_failure": {"retry": 1, "commands": [FAILS], **rerun}},
            {"ir": {"on_exit_code": {"1": [FAILS]}}},
            {"on_failure": {"max_attempts": 2}},
            {"on_failure": False},
            {"ir": {"rules": [{"then": "retry", "limit": 2, "commands": [PASSES]}]}},
            {"failure_handler": "solver"},
        ]
    )


def _policy(random: Random) -> dict[str, Any]:
    """An error policy that lets no failed item pass."""
    return random.choice(
        [
            {},
            {"on_item_failure": "dlq"},
            {"on_item_failure": "retry", "retry_config": {"max_attempts": 2, "backoff": None}},
            {"on_item_failure": "stop"},
            {"on_item_failure": "fail"},
            {"on_item_failure": "custom:list"},
            {"continue_on_failure": False},
            {"max_failures": random.randint(1, 3)},
            {"failure_threshold": random.choice([0, 0.2, 0.9])},
            {"error_collection": "immediate"},
            {"circuit_breaker": {"failure_threshold": 2, "timeout": "1s"}},
        ]
    )


def _bad_step(random: Random, depth: int = 0) -> dict[str, Any]:
    """A step that fails for good: itself, in its items, in its child workflow, or after its success."""
    kind = random.choice(["plain"] * 4 + (["map", "child", "after"] if depth < 2 else []))
    if kind == "map":
        steps = [{"id": f"in-{depth}", "shell": "x"}, _bad_step(random, depth + 1)]
        policy = _policy(random)
        given = {"error_policy": policy} if policy else {}
        return {"id": f"map-{depth}", "map": {"input": [1, 2, 3], "steps": steps, **given}}
    if kind == "child":
        inner = {"resile": 1, "steps": [{"id": f"in-{depth}", "shell": "x"}, _bad_step(random, depth + 1)]}
        inner |= {"failure_handlers": HANDLERS, "handlers": LISTS}
        return {"id": f"child-{depth}", "workflow": inner}
    if kind == "after":
        return {"id": f"after-{depth}", "shell": "x", "on_success": [PASSES, FAILS]}
    return {"id": "bad", "shell": "x", **_handler(random)}


HANDLERS = {"solver": {"rules": [{"exit_codes": [1], "recovery_script": "x", "max_retries": 2}]}}
LISTS = {"list": [FAILS]}


def generated(seed: int) -> str:
    """A workflow as the text of a file: a list, or a graph of steps, one of which fails for good."""
    random = Random(seed)
    count = random.randint(0, 5)
    steps = [{"id": f"s{number}", "shell": "x"} for number in range(count)]
    bad = _bad_step(random)
    place = random.randint(0, count)
    steps.insert(place, bad)
    file: dict[str, Any] = {"resile": 1, "failure_handlers": HANDLERS, "handlers": LISTS}
    if random.random() < 0.3:
        file["steps"] = steps
    else:
        graph: dict[str, Any] = {}
        for number, step in enumerate(steps):
            before = [other["id"] for other in steps[:number]]
            needs = random.sample(before, random.randint(0, min(2, len(before))))
            if len(needs) == 2 and random.random() < 0.3:
                needs = ["|".join(needs)]
            graph[step["id"]] = {key: value for key, value in step.items() if key != "id"} | {"needs": needs}
        file["steps"] = graph
    if random.random() < 0.3:
        end = {"id": "end", "shell": "x"}
        if isinstance(file["steps"], list):
            file["steps"].append(end)
        else:
            file["steps"]["end"] = {"shell": "x"}
    return json.dumps(file)


def _ended(text: str) -> str | None:
    """How a run of a workflow ends whose step `bad` and whose commands `h-fails` always fail."""
    compiled = compile_text(text, file="flow.yaml")
    assert [found.render() for found in compiled.diagnostics if found.severity == "error"] == []
    assert compiled.workflow is not None
    world = Items(
        compiled.workflow,
        total=3,
        item=lambda name, *_: failed() if name in ("bad", "h-fails") else OK,
        parallel=2,
    )
    return world.until_end().ended


@pytest.mark.parametrize("block", range(10))
def test_no_failure_passes_in_silence(block: int) -> None:
    """A thousand workflows, each with a step that fails for good: every run fails."""
    texts = [generated(seed) for seed in range(block * 100, block * 100 + 100)]
    assert [text for text in texts if _ended(text) != "failed"] == []
