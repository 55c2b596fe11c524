"""What stands in a template for a value that is not there: its parts are not there either, and any use is an error.

    {{ hot.v | default(cold.v) }}   `hot.v` is absent, so the default counts
    {{ workload.typo.x }}           an error where it is written, compared or walked over, which names the whole path

Of a step that has not run there is nothing; that is false in a condition, where any other absent value is an error.
Jinja tells only the last part of a name, so the whole path is found again in the template. To be imported where a
template is at hand, because it needs Jinja itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.exceptions import UndefinedError

from resile.languages.references import MISSING

if TYPE_CHECKING:
    from jinja2 import Environment


class NoResult(UndefinedError):
    """The value of a step that has not run is needed."""


class Absent(StrictUndefined):
    """There is nothing under a name; `_undefined_name` is the path to it, as far as it is known."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        """What is said of it; what the sandbox refuses has its own words."""
        if self._undefined_hint:
            return self._undefined_hint
        return f"`{path_to('', self._undefined_name)}` is not defined"

    def part(self, name: Any) -> Absent:
        """A part of nothing, which is nothing."""
        path = path_to(path_to("", self._undefined_name), name)
        return type(self)(self._undefined_hint, self._undefined_obj, path, self._undefined_exception)


class NotRun(Absent):
    """There is nothing because a step has not run; the hint is its name."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        """Why there is nothing."""
        return f"`{self._undefined_name}` is not defined: the step {self._undefined_hint!r} has no result here"

    def __bool__(self) -> bool:  # type: ignore[override]
        """Nothing is false."""
        return False


def result_not_there(step: str) -> Absent:
    """What stands for a step without a result: false in a condition, an error wherever its value is needed."""
    return NotRun(step, name=step, exc=NoResult)


def path_to(path: str, part: Any) -> str:
    """The way to a part of what is at a path, as templates write it; the first part may stand alone."""
    if not isinstance(part, str):
        return f"{path}[{part!r}]"
    if not path:
        return part
    return f"{path}.{part}" if part.isidentifier() else f"{path}[{part!r}]"


def message_of(error: UndefinedError, text: str, known: Mapping[str, Any], environment: Environment) -> str:
    """The message of an error about an absent value, with the whole path to it as this template writes it."""
    message = str(error.message)
    found, closed, rest = message.removeprefix("`").partition("` is not defined")
    if not closed:
        return message
    return f"`{_path_in(found, text, known, environment)}{closed}{rest}"


def _path_in(end: str, text: str, known: Mapping[str, Any], environment: Environment) -> str:
    """The path in a template that ends like this and leads to nothing."""
    of_others = ""
    for root, parts in _paths(environment.parse(text)):
        path, value = root, known.get(root, MISSING)
        for part in parts:
            path = path_to(path, part)
            value = MISSING if value is MISSING else _part_of(environment, value, part)
        if path != end and not path.endswith(end if end.startswith("[") else f".{end}"):
            continue
        if isinstance(value, Undefined):
            return path
        # What a loop in the template calls something is known only there.
        of_others = of_others or (path if value is MISSING else "")
    return of_others or end


def _part_of(environment: Environment, value: Any, name: Any) -> Any:
    """A part of a value, or MISSING where even looking at it goes wrong."""
    try:
        return environment.getitem(value, name)
    except Exception:
        # The message is about something else, which has already gone wrong.
        return MISSING


def _paths(tree: nodes.Template) -> Iterator[tuple[str, list[Any]]]:
    """The names in a template with the parts behind them."""
    for node in tree.find_all((nodes.Getattr, nodes.Getitem)):
        parts: list[Any] = []
        inner: nodes.Node = node
        while isinstance(inner, nodes.Getattr | nodes.Getitem):
            if isinstance(inner, nodes.Getattr):
                parts.append(inner.attr)
            elif isinstance(inner.arg, nodes.Const):
                parts.append(inner.arg.value)
            else:
                break
            inner = inner.node
        if isinstance(inner, nodes.Name):
            yield inner.name, parts[::-1]
