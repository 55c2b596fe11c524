"""A workflow of Python functions: a map, and a function that fails once."""

from pathlib import Path

from resile import Workflow, step


@step
def numbers(count):
    """From 1 to a number."""
    return list(range(1, count + 1))


@step
def square(number):
    """A number with itself."""
    return number * number


@step(retry={"max": 1})
def total(squares):
    """Their sum, at the second try."""
    tried = Path("tried")
    if not tried.exists():
        tried.touch()
        raise ConnectionError("not at once")
    return sum(squares)


with Workflow("squares", max_parallel=1, inputs={"count": 3}) as flow:
    total(square.map(numbers(flow.input("count"))))
