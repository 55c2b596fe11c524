"""Runs Python code, as the program of a `python` step.

    RESILE_STEP (JSON): name, source or file, inputs, input_files (texts of any size); or settings_file
    stdout: the output of the code; last, on a line of its own, the result of its `main`
    exit: 0 done, 1 an exception, `{"status": "error"}`, wrong inputs; or the argument of sys.exit

Values are data and never code: the program calls `main` with the inputs by name, and code without a `main` finds them
in the global `inputs`. The code does not run under the name `__main__`, so that a script that ends with
`if __name__ == "__main__": main()` does not run twice.
"""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MODULE = "__step__"


class Failed(Exception):
    """The step has failed; the message is one line."""


class _Lines:
    """Writes to stdout and tracks whether the last line is incomplete."""

    def __init__(self) -> None:
        self.begun = False
        self._write = sys.stdout.write
        sys.stdout.write = self.write  # type: ignore[method-assign]

    def write(self, text: str) -> int:
        """Write text; print calls this."""
        if text:
            self.begun = not text.endswith("\n")
        return self._write(text)


def main() -> int:
    """Run the code; return the exit code."""
    step: dict[str, Any] = json.loads(os.environ.pop("RESILE_STEP"))
    if "settings_file" in step:
        with open(step["settings_file"], "rb") as opened:
            step = json.loads(opened.read())
    for name, path in step.get("input_files", {}).items():
        with open(path, encoding="utf-8", errors="surrogateescape") as text:
            step["inputs"][name] = text.read()
    return report(step, _run, _text_of, ("message", "error"))


def _text_of(result: Any) -> str | None:
    is_text = result is None or isinstance(result, str)
    return result if is_text else json.dumps(result, ensure_ascii=False, allow_nan=False)


def report(
    step: dict[str, Any],
    run: Callable[[dict[str, Any]], Any],
    text_of: Callable[[Any], str | None],
    reasons: tuple[str, ...],
    parts_of: Callable[[Any], list[Any]] = lambda result: [result],
) -> int:
    """Run code and print its result; return the exit code.

    A result, or one of its `parts_of`, with the status `error` is a failure if there are `reasons`: the fields that may
    have the message.
    """
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape", line_buffering=True)  # type: ignore[union-attr]
    sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    lines = _Lines()
    try:
        result = run(step)
        text = text_of(result)
    except Failed as problem:
        return _complain(str(problem))
    except Exception as error:
        return _print_traceback(error)
    if text is not None:
        print("\n" + text if lines.begun else text)
    for part in parts_of(result) if reasons else []:
        if isinstance(part, dict) and part.get("status") == "error":
            reason = next(filter(None, map(part.get, reasons)), "main returned the status `error`")
            return _complain(reason if isinstance(reason, str) else json.dumps(reason))
    return 0


def _run(step: dict[str, Any]) -> Any:
    """Run the code; return the result of its `main`, or None if it has none."""
    file, source = step["file"], step["source"]
    if file:
        try:
            with open(file, "rb") as opened:
                source = opened.read()
        except OSError as error:
            raise Failed(f"can't read {file}: {error.strerror}") from error
    else:
        remember(f"<step {step['name']}>", source)
    # As Python does for a script; only now, so that modules there can't replace those imported above.
    own = os.path.dirname(os.path.abspath(file)) if file else ""
    sys.path[:0] = [path for path in (own, *os.environ.get("PYTHONPATH", "").split(os.pathsep)) if path]
    sys.argv = [file or f"<step {step['name']}>"]
    module = sys.modules[MODULE] = ModuleType(MODULE)
    module.__dict__.update(inputs=step["inputs"], __file__=sys.argv[0])
    exec(compile(source, sys.argv[0], "exec", dont_inherit=True), module.__dict__)
    function = module.__dict__.get("main")
    if not callable(function):
        return None
    _check_inputs(function, step["inputs"])
    return await_result(function(**step["inputs"]))


def await_result(result: Any) -> Any:
    """Await the result of an `async def main`; any other result is returned unchanged."""
    from types import CoroutineType

    if not isinstance(result, CoroutineType):
        return result
    import asyncio

    return asyncio.run(result)


def remember(name: str, source: str) -> None:
    """Let tracebacks show the lines of code that has no file."""
    import linecache

    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)


def _check_inputs(function: Any, inputs: dict[str, Any]) -> None:
    """Check that every parameter gets a value, and every value has a parameter."""
    import inspect

    parameters = inspect.signature(function).parameters.values()
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    missing = [name for name, p in named.items() if p.default is p.empty and name not in inputs]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = [] if takes_any else [name for name in inputs if name not in named]
    problems = [f"{what} {', '.join(names)}" for what, names in (("missing", missing), ("unknown", unknown)) if names]
    if problems:
        raise Failed(f"inputs of main: {'; '.join(problems)}")


def _print_traceback(error: Exception) -> int:
    """Print the traceback from the first line of the step's code on, with `Type: text` as its last line."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals["__name__"] in ("__main__", __name__):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace)).replace(f"{MODULE}.", "")
    summary = " ".join(f"{type(error).__name__}: {error}".split())
    sys.stderr.write(text if text.splitlines()[-1] == summary else f"{text}{summary}\n")
    return 1


def _complain(message: str) -> int:
    sys.stderr.write(f"{' '.join(message.split())}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
