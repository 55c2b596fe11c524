"""`http`: the step type that makes a request."""

from __future__ import annotations

from typing import Any

from resile.dialects.native.step_types.contract import Inherited, StepType, StepWriter
from resile.dialects.native.writer.values import changed_fields
from resile.model.workflow import Http


def _write(action: Http, _: StepWriter, __: Inherited) -> dict[str, Any]:
    """Write the request; just the URL if all else is default."""
    written: dict[str, Any] = {"url": action.url}
    has_body = action.body is not None or action.json is not None or action.form is not None
    if action.method != ("POST" if has_body else "GET"):
        written["method"] = action.method
    words = ("headers", "body", "json", "params", "form", "envelope", "expect_status")
    written |= changed_fields(action, **{word: word for word in words}, is_verified="verify")
    return {"http": written if len(written) > 1 else action.url}


HTTP = StepType("http", Http, _write)
