"""What is captured from the output of an attempt, in each form, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resile.engine.capture import (
    CaptureRefused,
    capture_file,
    capture_output,
    capture_value,
    excess_spending,
    missing_outputs,
    parse_result,
    reported_error,
    verdict_of,
)
from resile.model.limits import OUTPUT_PIECE_BYTES, VALUE_BYTES_MAX
from resile.model.workflow import Agent, Capture
from tests.engine.simulated import MemoryOutput

DEEP = b'{"a":' + b"[" * 100_000
NO_TEXT = b'{"a": "\xff"}'


def captured(form: str, out: bytes = b"", err: bytes = b"", exit_code: int | None = 0, seconds: float = 0.0) -> Any:
    """What one name captures in a form."""
    output = MemoryOutput()
    one = Capture("it", form)  # type: ignore[arg-type]
    (value,) = capture_output(output, output.write("s", out, err), (one,), exit_code, seconds).values()
    return value


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("text", "o 1\no 2"),
        ("value", "o 1\no 2"),
        ("lines", [" o 1", "o 2"]),
        ("stderr", "e 1"),
        ("combined", "o 1\no 2\ne 1"),
        ("exit_code", 3),
        ("success", False),
        ("duration", 1.235),
    ],
)
def test_each_form_takes_its_part_of_an_attempt(form: str, value: Any) -> None:
    """Texts without the whitespace around them; what is no output comes from elsewhere."""
    assert captured(form, b" o 1\no 2\n", b"e 1 \n", 3, 1.23456) == value


def test_an_attempt_that_printed_on_one_stream_combines_that_alone() -> None:
    """No line break stands for the other one."""
    assert (captured("combined", b"", b"e"), captured("combined", b"o", b"\n")) == ("e", "o")
    assert (captured("success"), captured("success", exit_code=None)) == (True, False)


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        ("number", b" 12\n", 12),
        ("number", b"-1.5", -1.5),
        ("number", b"1e3", 1000.0),
        ("json", b'{"a": [1, null]}\n', {"a": [1, None]}),
        ("json", b'"two\nlines"', "two\nlines"),
        *(("bool", word, True) for word in (b"true", b"YES\n", b"1")),
        *(("bool", word, False) for word in (b"false", b"No", b"0", b"\n")),
    ],
)
def test_a_text_is_read_as_what_it_says(form: str, text: bytes, value: Any) -> None:
    """A number is whole where it is written so; JSON may hold raw line breaks."""
    found = captured(form, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("number", b"NaN", "capture 'it': 'NaN' is not a number"),
        ("number", b"-1e999", "capture 'it': '-1e999' is not a number"),
        ("number", b"a few", "capture 'it': 'a few' is not a number"),
        ("number", b"9" * 60 + b" is", f"capture 'it': {'9' * 60!r} is not a number"),
        ("bool", b"Maybe", "capture 'it': 'maybe' is neither true nor false"),
        ("bool", b"x" * 61, f"capture 'it': {'x' * 60!r} is neither true nor false"),
        ("json", b"NaN", "capture 'it': the output is not JSON (JSON is malformed: invalid character (byte 0))"),
    ],
)
def test_a_text_that_says_something_else_is_refused(form: str, text: bytes, message: str) -> None:
    """The message shows the beginning of the text."""
    with pytest.raises(CaptureRefused) as refused:
        captured(form, text)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", [DEEP, NO_TEXT], ids=["deep", "no text"])
def test_json_that_cannot_be_held_is_refused(text: bytes) -> None:
    """Too many levels, or bytes that are no text, fail the step and not the engine."""
    with pytest.raises(CaptureRefused, match=r"^capture 'it': the output is not JSON"):
        captured("json", text)


def test_an_output_may_be_as_large_as_a_value() -> None:
    """One more byte is refused, with the form that takes any size; what is not read may have any size."""
    assert len(captured("text", b"x" * VALUE_BYTES_MAX, b"x" * (VALUE_BYTES_MAX + 1))) == VALUE_BYTES_MAX
    with pytest.raises(CaptureRefused) as refused:
        captured("text", b"x" * (VALUE_BYTES_MAX + 1))
    size = f"{VALUE_BYTES_MAX + 1} bytes are more than {VALUE_BYTES_MAX}"
    assert str(refused.value) == f"capture 'it': {size}: `capture: {{it: file}}` takes any size"


def test_a_file_takes_the_whole_output(tmp_path: Path) -> None:
    """Piece by piece, in a folder that is made; nothing stays beside it."""
    output = MemoryOutput()
    data = bytes(range(256)) * (OUTPUT_PIECE_BYTES // 256) + b"and more"
    path = str(tmp_path / "new" / "file")
    assert capture_file(output, output.write("s", data, b""), path) == path
    assert (Path(path).read_bytes() == data, [file.name for file in (tmp_path / "new").iterdir()]) == (True, ["file"])
    assert Path(capture_file(output, None, str(tmp_path / "none"))).read_bytes() == b""


def test_a_returned_value_stands_for_the_output() -> None:
    """As text where a form reads text; it printed nothing on stderr."""
    forms = ("value", "text", "json", "stderr", "exit_code")
    found = capture_value({"a": 1}, tuple(Capture(form, form) for form in forms), 0)
    assert found == {"value": {"a": 1}, "text": '{"a":1}', "json": {"a": 1}, "stderr": "", "exit_code": 0}


def test_a_result_is_json_as_a_whole_or_in_its_last_line() -> None:
    """Else it is the text."""
    assert (parse_result("[1,\n2]"), parse_result("said\n[2]"), parse_result("said\nno")) == ([1, 2], [2], "said\nno")


def test_declared_files_that_are_missing_are_all_named(tmp_path: Path) -> None:
    """Those that are there are not."""
    (tmp_path / "b").write_text("")
    assert missing_outputs(str(tmp_path), ["a", "b", "c"]) == "declared output file 'a', 'c' is missing"
    assert missing_outputs(str(tmp_path), ["b"]) == ""
    assert missing_outputs(str(tmp_path), ["", " ", "b"]) == "declared output file '', ' ' is missing"


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (b'{"total_cost_usd": 2.5, "cost_usd": 9}', "the agent reports a cost of 2.5, its limit is 2"),
        (b'{"cost_usd": 3}', "the agent reports a cost of 3, its limit is 2"),
        (b'{"cost_usd": 2, "usage": {"input_tokens": 6, "output_tokens": 4, "calls": 9}}', ""),
        (b'{"usage": {"input_tokens": 6, "output_tokens": 5}}', "the agent reports 11 tokens, its limit is 10"),
        (b'{"cost_usd": "3", "usage": {"tokens": "11"}}', ""),
        (b'{"usage": null}', ""),
        (b'{"usage": "11"}', ""),
        (b'{"usage": [11]}', ""),
        (b"[3]", ""),
        (b"no report", ""),
        (DEEP, ""),
        (NO_TEXT, ""),
    ],
)
def test_an_agent_that_spends_more_than_it_may_says_so_itself(report: bytes, message: str) -> None:
    """At its limit it is within it; what is no report says nothing."""
    output = MemoryOutput()
    log = output.write("s", report, b"")
    assert excess_spending(output, log, Agent("do", cost_max=2.0, tokens_max=10)) == message
    assert excess_spending(output, log, Agent("do")) == ""


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (b'{"is_error": true, "result": "no credit left"}\n', "the agent reports an error: no credit left"),
        (b'{"is_error": true, "subtype": "error_max_turns"}', "the agent reports an error: error_max_turns"),
        (b'{"is_error": true, "result": 3}', "the agent reports an error"),
        (b'{"is_error": false, "result": "done"}', ""),
        (b'{"is_error": "true"}', ""),
        (b'said\n{"is_error": true}', ""),
        (b'[{"is_error": true}]', ""),
        (DEEP, ""),
        (NO_TEXT, ""),
    ],
)
def test_an_agent_that_reports_an_error_has_failed(report: bytes, message: str) -> None:
    """Only one JSON object is a report, and only `true` is an error."""
    output = MemoryOutput()
    assert reported_error(output, output.write("s", report, b"")) == message


@pytest.mark.parametrize(
    ("out", "verdict"),
    [
        (b'{"workflow_status": "failed"}\n', "failed"),
        (b'{\n"workflow_status": "failed"\n}', "failed"),
        (b'{"workflow_status": "completed"}\n{"workflow_status": "failed"}', "failed"),
        (b'said\n{"workflow_status": "failed"}', "failed"),
        (b'{"workflow_status": "failed"}\nsaid', ""),
        (b'{"other": "failed"}', ""),
        (b'["workflow_status"]', ""),
        (DEEP, ""),
        (NO_TEXT, ""),
        (NO_TEXT + b'\n{"workflow_status": "failed"}', "failed"),
        (b"", ""),
    ],
)
def test_end_gives_its_verdict_in_json(out: bytes, verdict: str) -> None:
    """As its whole output or its last line; what it captured under that name comes first."""
    output = MemoryOutput()
    log = output.write("s", out, b"")
    assert verdict_of(output, log, {}) == verdict
    assert verdict_of(output, log, {"workflow_status": "mine"}) == "mine"
