"""Every trick that makes the program start fast, in one place.

`resile --help` may take as long as three starts of a bare interpreter, and a durable run of one step as long as six. So
the modules that every command needs import nothing heavy (tests/test_layers.py has the list), and this module loads the
module of the command:

    collector off --> launcher of a run started ahead --> msgspec without its extras --> the command's module

A command that drives a run calls `finish_loading` when its run has begun; for others the collector is on again here.
"""

from __future__ import annotations

import gc
import os
import sys

# A constant, because loading `typing` for it would cost more than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from resile.cli.parse import Call


def load_command(call: Call) -> Callable[[Call], int]:
    """Load the function of a command; if it drives a run, start the launcher while the rest is loaded."""
    # Loading creates many objects and no garbage.
    gc.disable()
    if call.command.drives and not call.server:
        from resile.executors.descriptors import refuse_too_few
        from resile.executors.local.prestart import prestart

        refuse_too_few()
        call.launcher = prestart()
    _load_msgspec()
    module, function = call.command.target.split(":")
    loaded = __import__(f"resile.cli.{module}", fromlist=[function])
    if not call.command.drives:
        gc.enable()
    found: Callable[[Call], int] = getattr(loaded, function)
    return found


def finish_loading() -> None:
    """Turn the garbage collector on after loading, and exempt all objects so far from it."""
    gc.freeze()
    gc.enable()


class _Later(type(sys)):  # type: ignore[misc]
    """A module that is loaded when one of its attributes is first read, or one of its `functions` is called."""

    def __init__(self, name: str, *functions: str) -> None:
        super().__init__(name)
        self._name = name
        for function in functions:
            setattr(self, function, self._call_later(function))

    def __getattr__(self, name: str) -> Any:
        """The attribute of the real module; none while this one has its place."""
        if sys.modules.get(self._name) is self:
            raise AttributeError(name)
        __import__(self._name)
        return getattr(sys.modules[self._name], name)

    def _call_later(self, function: str) -> Callable[..., object]:
        """A function that calls the one of the real module."""
        return lambda *values, **named: self.__getattr__(function)(*values, **named)


def _load_msgspec() -> None:
    """Load msgspec without the modules that it needs only for what a run does not use; load those on first use.

    It imports typing_extensions if that is installed, and with it inspect and ast, which take a tenth of the time that
    a run of one step may take; and platform, which compiles a dozen patterns, for the name of the system. Few commands
    use its schemas, with the classes that describe types, and none its YAML and TOML. It takes the types of `datetime`
    from the C module beneath: the other one first defines them all in Python. And it tries out a `typing.ForwardRef`,
    which compiles a text: for the first that it compiles, Python defines the classes of every syntax node.
    """
    platform = _Later("platform")
    platform.system = lambda: os.uname().sysname
    schemas = _Later("msgspec._json_schema", "schema", "schema_components")
    parts = {name: _Later(name) for name in ("msgspec.inspect", "msgspec.toml", "msgspec.yaml")}
    aside: dict[str, Any] = {"typing_extensions": None, "datetime": __import__("_datetime"), "platform": platform}
    aside |= {"re": _patterns_later(), "msgspec._json_schema": schemas, **parts}
    aside = {name: module for name, module in aside.items() if name not in sys.modules}
    sys.modules.update(aside)
    typing: Any = __import__("typing")
    typing.compile = lambda *_: None
    try:
        __import__("msgspec")
    finally:
        del typing.compile
        for name in aside:
            del sys.modules[name]


def _patterns_later() -> _Later:
    """Make a module `re` of what typing and msgspec take from it: two types, and a function.

    The types are those of a compiled pattern, which here matches the empty text, and of a match.
    """
    patterns, success = _Later("re", "compile"), 1
    pattern = __import__("_sre").compile("", 0, [success], 0, {}, ())
    patterns.Pattern, patterns.Match = type(pattern), type(pattern.match(""))
    return patterns
