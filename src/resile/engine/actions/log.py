"""`log` in the engine: a program prints the message."""

from __future__ import annotations

import os

from resile.engine.launch import Attempt
from resile.executors.contract import Launch
from resile.languages.contract import render_text
from resile.languages.references import text_of
from resile.model.builtin_actions import Log


def prepare(attempt: Attempt) -> Launch:
    """The launch of a program that prints the text, with its level in front unless that is `info`."""
    action = attempt.step.action
    assert isinstance(action, Log)
    text = render_text(action.message, attempt.lookup).strip()
    if action.with_outputs:
        find = attempt.performer.values.find
        names = [name for need in attempt.step.needs for name in need.any_of]
        text += "".join(f"\n{name}: {text_of(find(('steps', name, 'output'), attempt.job))}" for name in names)
    mark = "" if action.level == "info" else f"[{action.level}] "
    return attempt.launch((b"cat", attempt.write_file("text", os.fsencode(f"{mark}{text}\n"))))
