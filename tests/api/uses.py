"""Uses of the Python API that type checkers look at; nothing here runs."""

from __future__ import annotations

from typing import Any, assert_type

from resile import Client, Map, OnFailure, Resources, Result, Retry, Run, Workflow, load, resume, run, step
from resile.errors import ResileError, RunFailed, StepFailed, StoreError, WorkflowError
from resile.testing import in_test_mode


@step
def one() -> int:
    """A step without options."""
    return 1


@step(retry=Retry(max=2, on=(ConnectionError, TimeoutError), backoff="1s"), resources=Resources(cpus=2, memory="4g"))
def two(number: int, *, by: int = 1) -> list[str]:
    """A step with parameters."""
    return [str(number * by)]


@step
async def three() -> bytes:
    """A coroutine."""
    return b""


@step(timeout="5s", on_failure=OnFailure(run=[one], goto="one"))
async def four() -> float:
    """A coroutine with options."""
    return 4.0


def print_event(event: dict[str, Any]) -> None:
    """An observer of events."""
    print(event["type"])


def build_and_run() -> None:
    """Everything that a program does with a workflow."""
    with Workflow("t", workers="threads", inputs={"count": 1}) as flow:
        x = one()
        texts = two.options(timeout=3)(x, by=flow.input("count"))
        every = two.map([1, 2], Map(max_parallel=4, on_item_failure="skip"), by=2)
        lines = flow.shell(f"wc -l {texts.output}", name="lines").after(every)
        child = flow.child("other.yaml", inputs={"text": lines})
        assert_type(x, Result[int])
        assert_type(lines, Result[str])
        assert_type(child, Result[Any])
    done: Run = run(flow, inputs={"count": 5}, on_event=print_event).raise_for_status()
    assert_type(done.result(x), int)
    assert_type(done.result(texts), list[str])
    assert_type(done.result(every), list[list[str]])
    assert_type(done.result(three()), bytes)
    assert_type(done.result(four()), float)
    assert_type(done.result("one"), Any)
    assert_type(load("flow.yaml"), Workflow)
    assert_type(resume(1), Run)
    assert_type(Client().submit(flow), Run)
    server = Client("http://127.0.0.1:8700", token="secret")
    assert_type(server.submit("flow.yaml", on_event=print_event), Run)
    assert_type(server.get(1), dict[str, Any])
    with in_test_mode() as client:
        assert_type(client, Client)


def catch() -> None:
    """The tree of errors."""
    try:
        load("flow.yaml")
    except (WorkflowError, StoreError) as error:
        base: ResileError = error
        print(base.code, base.where, base.hint)
    except RunFailed as failed:
        print(failed.run, failed.status)
    except StepFailed as failed:
        print(failed.step)
