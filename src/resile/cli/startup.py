"""Every trick that makes the program start fast, in one place.

`resile --help` must be done in the time that a bare interpreter takes to start three times, and a durable run of one
step in six. So what starts with every command imports nothing heavy (tests/test_layers.py has the list), and a
command's own module is loaded here:

    collector off --> launcher of a run started ahead --> msgspec without its extras --> the command's module

A command that drives a run calls `finish_loading` when its run has begun; for any other the collector is on again here.
"""

from __future__ import annotations

import gc
import os
import sys

# Spelled out, because loading `typing` for its names would cost more than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from resile.cli.parse import Call

# These commands start steps, so they need a launcher.
DRIVING = ("run", "resume", "rerun")


def load_command(call: Call) -> Callable[[Call], int]:
    """Load the function of a command; of one that drives a run, start the launcher while the rest is loaded."""
    # Loading makes many objects and no garbage.
    gc.disable()
    drives = call.command.name in DRIVING
    if drives:
        from resile.executors.local.prestart import prestart

        call.launcher = prestart()
    _load_msgspec()
    module, function = call.command.target.split(":")
    loaded = __import__(f"resile.cli.{module}", fromlist=[function])
    if not drives:
        gc.enable()
    found: Callable[[Call], int] = getattr(loaded, function)
    return found


def finish_loading() -> None:
    """Everything is loaded: turn the garbage collector on, and let it never look at what is there by now."""
    gc.freeze()
    gc.enable()


class _Later(type(sys)):  # type: ignore[misc]
    """A module that is loaded when an attribute of it is first read."""

    def __getattr__(self, name: str) -> object:
        """The attribute of the real module."""
        return getattr(__import__(str(self.__name__)), name)


def _load_msgspec() -> None:
    """Load msgspec without what it needs for other types than ours, or not before it is asked for.

    It takes typing_extensions where that is installed, and the inspect and ast modules that come with it are a tenth
    of the time in which a run of one step must be done. platform is loaded for the name of the system, textwrap for
    the schemas that no command asks for: each compiles a dozen patterns.
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
