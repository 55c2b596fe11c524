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
LEFT_OUT = {"id": "h-left-out", "shell": "x", "when": "false"}
CLOSED = "http://127.0.0.1:9/"
ACTIONS = [{"shell": "x"}, {"shell": "x"}, {"python": "x"}, {"http": CLOSED}, {"validate": "x"}]


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
            {"on_failure": [LEFT_OUT]},
            {"on_failure": {"commands": [LEFT_OUT, LEFT_OUT | {"id": "h-left-out-too"}], "strategy": "fallback"}},
            {"on_failure": {"commands": [LEFT_OUT], **rerun}},
            {"critical": True},
            {"when": "true", "retry": {"max": 1, "backoff": "1ms"}},
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
        policy = _policy(random)
        given = {"error_policy": policy} if policy else {}
        around = random.choice([{}, {}, {"on_failure": [FAILS]}, {"retry": 1}, {"on_failure": [LEFT_OUT]}])
        return {"id": f"map-{depth}", "map": {"input": [1, 2, 3], "steps": _inside(random, depth), **given}, **around}
    if kind == "child":
        inner = {"resile": 1, "steps": _inside(random, depth), "failure_handlers": HANDLERS, "handlers": LISTS}
        return {"id": f"child-{depth}", "workflow": inner}
    if kind == "after":
        return {"id": f"after-{depth}", "shell": "x", "on_success": [PASSES, FAILS]}
    return {"id": "bad", **random.choice(ACTIONS), **_handler(random)}


def _inside(random: Random, depth: int) -> Any:
    """The steps of an item or of a child workflow, the last of which fails for good."""
    first, bad = {"id": f"in-{depth}", "shell": "x"}, _bad_step(random, depth + 1)
    shape = random.choice(["list", "list", "arcs", "goto", "run"])
    if shape == "arcs":
        return {"first": {"shell": "x", "next": [bad["id"]]}, bad["id"]: _without_id(bad)}
    is_plain = bad.keys().isdisjoint(("on_failure", "retry"))
    if shape == "goto" and is_plain:
        return [first, bad | {"on_failure": {"goto": first["id"]}}]
    if shape == "run" and is_plain:
        return [first, bad | {"on_failure": {"run": ["remedy"]}}, {"id": "remedy", "shell": "x"}]
    return [first, bad]


def _without_id(step: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key != "id"}


HANDLERS = {"solver": {"rules": [{"exit_codes": [1], "recovery_script": "x", "max_retries": 2}]}}
LISTS = {"list": [FAILS]}


def generated(seed: int) -> str:
    """A workflow as the text of a file: a list, steps with needs or arcs, or phases; one step fails for good."""
    random = Random(seed)
    count = random.randint(0, 5)
    steps: list[dict[str, Any]] = [{"id": f"s{number}", "shell": "x"} for number in range(count)]
    bad = _bad_step(random)
    steps.insert(random.randint(0, count), bad)
    file: dict[str, Any] = {"resile": 1, "failure_handlers": HANDLERS, "handlers": LISTS}
    shape = random.choice(["list", "list", "needs", "needs", "needs", "arcs", "items", "phases"])
    if shape == "phases":
        return json.dumps(file | _phases(random, bad))
    file["steps"] = {"list": _as_list, "needs": _by_needs, "arcs": _by_arcs, "items": _by_items}[shape](random, steps)
    if random.random() < 0.3:
        end = {"shell": "x"} | random.choice([{}, {"on_success": [FAILS]}, {"on_failure": True}])
        if isinstance(file["steps"], list):
            file["steps"].append({"id": "end", **end})
        else:
            file["steps"]["end"] = end
    return json.dumps(file)


def _as_list(random: Random, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps in order; the one that fails may go back to the first, or have a remedy, until its budget is spent."""
    bad = next(step for step in steps if not step["id"].startswith("s"))
    if bad.keys().isdisjoint(("on_failure", "retry")) and random.random() < 0.5:
        if bad is not steps[0]:
            bad["on_failure"] = {"goto": steps[0]["id"]}
        else:
            bad["on_failure"] = {"run": ["remedy"], "retry": 1}
            return [*steps, {"id": "remedy", "shell": "x"}]
    return steps


def _by_needs(random: Random, steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Each step needs some of those before it, or one of two."""
    graph: dict[str, Any] = {}
    for number, step in enumerate(steps):
        before = [other["id"] for other in steps[:number]]
        needs: list[Any] = random.sample(before, random.randint(0, min(2, len(before))))
        if len(needs) == 2 and random.random() < 0.3:
            needs = ["|".join(needs)]
        elif needs and random.random() < 0.2:
            needs = [{"any_of": needs, "failure_satisfies": True}]
        graph[step["id"]] = _without_id(step) | {"needs": needs}
    return graph


def _by_arcs(random: Random, steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Each step leads to the next one, and perhaps to one after it too, so that some are visited twice."""
    graph: dict[str, Any] = {}
    for number, step in enumerate(steps):
        after = [other["id"] for other in steps[number + 1 :]]
        arcs = [*after[:1], *(random.sample(after[1:], 1) if len(after) > 1 and random.random() < 0.4 else [])]
        graph[step["id"]] = _without_id(step) | ({"next": arcs} if arcs else {})
    return graph


def _by_items(random: Random, steps: list[dict[str, Any]]) -> dict[str, Any]:
    """A step gives items; those after it run for each of them, the last perhaps once, after all items."""
    graph: dict[str, Any] = {"items": {"shell": "echo [1,2,3]", "foreach": True}}
    before = "items"
    for step in steps:
        graph[step["id"]] = _without_id(step) | {"needs": [before]}
        before = step["id"]
    return graph | ({"last": {"shell": "x", "needs": [before], "fanout": "reduce"}} if random.random() < 0.5 else {})


def _phases(random: Random, bad: dict[str, Any]) -> dict[str, Any]:
    """Setup, map and reduce, one of which has the step that fails."""
    phases: dict[str, Any] = {name: [{"id": f"{name}-passes", "shell": "x"}] for name in ("setup", "map", "reduce")}
    phases[random.choice(list(phases))] = [{"id": "before", "shell": "x"}, bad]
    return {
        "mode": "mapreduce",
        "setup": phases["setup"],
        "map": {"input": [1, 2, 3], "agent_template": phases["map"]},
        "reduce": phases["reduce"],
    }


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
    world.truth = lambda name: not name.startswith("h-left-out")
    return world.until_end().ended


@pytest.mark.parametrize("block", range(10))
def test_no_failure_passes_in_silence(block: int) -> None:
    """A thousand workflows, each with a step that fails for good: every run fails."""
    texts = [generated(seed) for seed in range(block * 100, block * 100 + 100)]
    assert [text for text in texts if _ended(text) != "failed"] == []
