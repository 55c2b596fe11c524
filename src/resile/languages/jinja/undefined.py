"""Undefined values in templates: their parts are undefined too, and any use is an error.

    {{ hot.v | default(cold.v) }}   `hot.v` is undefined, so the default counts
    {{ workload.typo.x }}           an error if it is written, compared or iterated; it names the whole path

A step that has not run has an undefined value; that is false in a condition, where any other undefined value is an
error. Jinja reports only the last part of a name, so this module finds the whole path in the template. It imports
Jinja, so import it only for a template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import StrictUndefined, Undefined, nodes
from jinja2.exceptions import UndefinedError

from resile.languages.jinja.plain_values import IN_END
from resile.languages.references import MISSING

if TYPE_CHECKING:
    from jinja2 import Environment


class NoResult(UndefinedError):
    """The value of a step that has not run is needed."""


class Absent(StrictUndefined):
    """An undefined value; `_undefined_name` is the path to it, as far as it is known. In `end` it is `Nothing`."""

    __slots__ = ()

    def __new__(cls, *args: Any, **named: Any) -> Absent:
        """Make an undefined value, or nothing."""
        made: Absent = super().__new__(Nothing if IN_END.get() else cls)
        if not isinstance(made, cls):
            made.__init__(*args, **named)  # type: ignore[misc]
        return made

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return self._undefined_hint
        return f"`{path_to('', self._undefined_name)}` is not defined"

    def part(self, name: Any) -> Absent:
        """A part of an undefined value, which is undefined too."""
        path = path_to(path_to("", self._undefined_name), name)
        return type(self)(self._undefined_hint, self._undefined_obj, path, self._undefined_exception)


class NotRun(Absent):
    """The undefined value of a step that has not run; the hint is the step's name."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        return f"`{self._undefined_name}` is not defined: the step {self._undefined_hint!r} has no result here"

    def __bool__(self) -> bool:  # type: ignore[override]
        """An undefined value is false."""
        return False


def _nothing(self: Any, *_: Any, **__: Any) -> Any:
    """Nothing comes of nothing."""
    return self


def _never(self: Any, other: Any) -> bool:
    """Nothing compares with nothing."""
    del self, other
    return False


_TO_ITSELF = (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__neg__",
    "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__", "__pos__", "__call__", "__getitem__",
    "part",
)  # fmt: skip


def _part_of_nothing(self: Any, name: str) -> Any:
    """A part, which is nothing too."""
    if name.startswith("__"):
        raise AttributeError(name)
    return self


Nothing: type[Absent] = type(
    "Nothing",
    (Absent,),
    {
        "__slots__": (),
        **dict.fromkeys(_TO_ITSELF, _nothing),
        **dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__", "__contains__"), _never),
        "__getattr__": _part_of_nothing,
        "__str__": lambda _: "",
        "__bool__": lambda _: False,
        "__len__": lambda _: 0,
        "__iter__": lambda _: iter(()),
        "__int__": lambda _: 0,
        "__float__": lambda _: 0.0,
        "__eq__": lambda _, other: not other,
        "__ne__": lambda _, other: bool(other),
        "__hash__": lambda _: 0,
    },
)
"""An undefined value in `end`: empty as text, false, an empty list; its parts and what is made of it, too."""


def result_not_there(step: str) -> Absent:
    """The value of a step without a result: false in a condition, an error wherever the value is needed."""
    return NotRun(step, name=step, exc=NoResult)


def path_to(path: str, part: Any) -> str:
    """The path to a part of the value at `path`, as templates write it; the first part may be the only one."""
    if not isinstance(part, str):
        return f"{path}[{part!r}]"
    if not path:
        return part
    return f"{path}.{part}" if part.isidentifier() else f"{path}[{part!r}]"


def message_of(error: UndefinedError, text: str, known: Mapping[str, Any], environment: Environment) -> str:
    """The message of an error about an undefined value, with the whole path as in this template."""
    message = str(error.message)
    found, closed, rest = message.removeprefix("`").partition("` is not defined")
    if not closed:
        return message
    return f"`{_path_in(found, text, known, environment)}{closed}{rest}"


def _path_in(end: str, text: str, known: Mapping[str, Any], environment: Environment) -> str:
    """The path in a template that has this end and no value."""
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
        # A name that a loop in the template assigns is known only there.
        of_others = of_others or (path if value is MISSING else "")
    return of_others or end


def _part_of(environment: Environment, value: Any, name: Any) -> Any:
    """A part of a value, or MISSING if the access fails."""
    try:
        return environment.getitem(value, name)
    except Exception:
        # Ignore this error: the message is about another one, which came first.
        return MISSING


def _paths(tree: nodes.Template) -> Iterator[tuple[str, list[Any]]]:
    """The names in a template, each with the parts after it."""
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
