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

    from resile.cli.parse import Call


def load_command(call: Call) -> Callable[[Call], int]:
    """Load the function of a command; if it drives a run, start the launcher while the rest is loaded."""
    # Loading creates many objects and no garbage.
    gc.disable()
    if call.command.drives:
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
    """A module that is loaded when one of its attributes is first read."""

    def __getattr__(self, name: str) -> object:
        """The attribute of the real module."""
        return getattr(__import__(str(self.__name__)), name)


def _load_msgspec() -> None:
    """Load msgspec without the modules that it needs only for types we don't use; load some of those on first use.

    It imports typing_extensions if that is installed, and with it inspect and ast, which take a tenth of the time that
    a run of one step may take. It imports platform for the name of the system, and textwrap for schemas that no command
    uses: each compiles a dozen patterns.
    """
    platform = _Later("platform")
    platform.system = lambda: os.uname().sysname
    aside = {"typing_extensions": None, "platform": platform, "textwrap": _Later("textwrap")}
    aside = {name: module for name, module in aside.items() if name not in sys.modules}
    sys.modules.update(aside)  # type: ignore[arg-type]
    try:
        __import__("msgspec")
    finally:
        for name in aside:
            del sys.modules[name]
