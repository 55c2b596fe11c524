"""Every key of a Prodigy file changes the model or is refused by name: one case for each row of the tables."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from typing import Any

import msgspec
import pytest

from resile.dialects.compile import compile_text
from resile.dialects.detect import tables
from resile.dialects.prodigy.keys import DEAD
from resile.dialects.reading.key_tables import REFUSED

ROWS = [(table.name, key) for table in tables("prodigy") for key in table.keys.values()]
# A file for each table; a key of the table stands at `%s`.
AROUND = {
    "the workflow": "{commands: [{shell: a}], %s}",
    "a step": "[{shell: a}, {shell: b, %s}, {shell: 'c ${shell.output}'}]",
    "on_failure": "[{shell: a, on_failure: {shell: h, %s}}]",
    "metadata": "[{claude: /a, metadata: {%s}}]",
    "an output": "[{claude: /a, id: i, outputs: {o: {%s}}}]",
    "write_file": "[{write_file: {%s}}]",
    "validate": "[{shell: a, validate: {%s}}]",
    "on_incomplete": "[{shell: a, validate: {shell: v, on_incomplete: {%s}}}]",
    "goal_seek": "[{goal_seek: {%s}}]",
    "foreach": "[{foreach: {%s}}]",
    "retry": "[{shell: a, retry: {%s}}]",
    "setup": "{mode: mapreduce, setup: {%s}, map: {input: [1], agent_template: [{shell: t}]}}",
    "capture_outputs": "{setup: {commands: [{shell: a}, {shell: b}], capture_outputs: {v: {%s}}}, map: {input: [1], agent_template: [{shell: t}]}}",
    "a phase": "{map: {input: [1], agent_template: [{shell: t}]}, reduce: {%s}}",
    "map": "{env: {N: '3'}, map: {%s}}",
    "timeout_config": "{map: {input: [1], agent_template: [{shell: t}, {claude: /p}], timeout_config: {%s}}}",
    "a secret": "{secrets: {S: {%s}}, commands: [{shell: a}]}",
    "a value of env": "{env: {V: {%s}}, commands: [{shell: a}]}",
}
MAP = "input: [1], agent_template: [{shell: t}]"
# For each key what stands at `%s` with it and without it; a single text is that with it, and without it nothing is there.
CASES: dict[str, dict[str, str | tuple[str, str]]] = {
    "the workflow": {
        "name": "name: n",
        "description": "description: d",
        "mode": "mode: other",
        "commands": ("{commands: [{shell: a}]}", "{commands: [{shell: b}]}"),
        "steps": ("{steps: [{shell: a}]}", "{steps: [{shell: b}]}"),
        "tasks": ("{tasks: [{shell: a}]}", "{tasks: [{shell: b}]}"),
        "env": "env: {A: x}",
        "secrets": "secrets: {A: X}",
        "env_files": "env_files: [.env]",
        "profiles": "profiles: {p: {A: p}}",
        "setup": "setup: [{shell: s}]",
        "map": "map: {" + MAP + "}",
        "reduce": ("map: {" + MAP + "}, reduce: [{shell: r}]", "map: {" + MAP + "}"),
        "merge": "merge: [{shell: m}]",
        "error_policy": ("map: {" + MAP + "}, error_policy: {max_failures: 2}", "map: {" + MAP + "}"),
        "on_item_failure": ("map: {" + MAP + "}, on_item_failure: skip", "map: {" + MAP + "}"),
        "continue_on_failure": ("map: {" + MAP + "}, continue_on_failure: false", "map: {" + MAP + "}"),
        "max_failures": ("map: {" + MAP + "}, max_failures: 2", "map: {" + MAP + "}"),
        "failure_threshold": ("map: {" + MAP + "}, failure_threshold: 0.5", "map: {" + MAP + "}"),
        "error_collection": ("map: {" + MAP + "}, error_collection: batched:5", "map: {" + MAP + "}"),
        "retry_defaults": "retry_defaults: {attempts: 4}",
        "handlers": ("map: {" + MAP + "}, on_item_failure: 'custom:h', handlers: {h: [{shell: a}]}", "map: {" + MAP + "}, on_item_failure: 'custom:h', handlers: {h: [{shell: b}]}"),
    },
    "a step": {
        "shell": ("[{shell: a}]", "[{shell: b}]"),
        "claude": ("[{claude: a}]", "[{claude: b}]"),
        "analyze": ("[{analyze: {save: true}}]", "[{analyze: {}}]"),
        "foreach": ("[{foreach: [1], do: [{shell: a}]}]", "[{foreach: [2], do: [{shell: a}]}]"),
        "do": ("[{foreach: [1], do: [{shell: a}]}]", "[{foreach: [1], do: [{shell: b}]}]"),
        "parallel": ("[{foreach: [1], do: [{shell: a}], parallel: 4}]", "[{foreach: [1], do: [{shell: a}]}]"),
        "max_items": ("[{foreach: [1], do: [{shell: a}], max_items: 4}]", "[{foreach: [1], do: [{shell: a}]}]"),
        "write_file": ("[{write_file: {path: a, content: b}}]", "[{write_file: {path: c, content: b}}]"),
        "goal_seek": ("[{goal_seek: {shell: a, validate: v}}]", "[{goal_seek: {shell: b, validate: v}}]"),
        "validate": "validate: {shell: v}",
        "test": ("[{test: {command: a}}]", "[{test: {command: b}}]"),
        "name": "name: n",
        "id": "id: i",
        "description": "description: d",
        "args": ("[{claude: /a, args: [x]}]", "[{claude: /a}]"),
        "options": ("[{claude: /a, options: {area: ui, fix: true}}]", "[{claude: /a}]"),
        "metadata": "metadata: {timeout: 4}",
        "outputs": "id: i, outputs: {o: {file_pattern: '*.md'}}",
        "output": "output: f",
        "output_file": "output_file: f",
        "commit_required": "commit_required: true",
        "capture": "capture: v",
        "capture_output": ("[{shell: a}, {shell: b, capture_output: false}, {shell: 'c ${shell.output}'}]", "[{shell: a}, {shell: b}, {shell: 'c ${shell.output}'}]"),
        "capture_format": ("[{shell: a, capture: v, capture_format: json}]", "[{shell: a, capture: v}]"),
        "capture_streams": ("[{shell: a, capture: v, capture_streams: {stderr: true, exit_code: true, success: true, duration: true}}]", "[{shell: a, capture: v}]"),
        "timeout": "timeout: 9",
        "when": "when: '${x} == 1'",
        "env": "env: {A: b}",
        "working_dir": "working_dir: d",
        "on_success": "on_success: {shell: s}",
        "on_failure": "on_failure: h",
        "on_exit_code": "on_exit_code: {3: {shell: e}}",
        "retry": "retry: {attempts: 2}",
        "retry_config": "retry_config: {attempts: 2}",
        "max_attempts": ("[{shell: a, on_failure: h, max_attempts: 3}]", "[{shell: a, on_failure: h}]"),
        "max_retries": ("[{shell: a, on_failure: h, max_retries: 3}]", "[{shell: a, on_failure: h}]"),
        "fail_workflow": "fail_workflow: false",
        "allow_failure": "allow_failure: true",
        "ignore_errors": "ignore_errors: true",
        "continue_on_error": "continue_on_error: true",
        "temporary": "temporary: false",
        "handler_failure_fatal": ("[{shell: a, on_failure: h, handler_failure_fatal: true}]", "[{shell: a, on_failure: h}]"),
    },
    "on_failure": {
        "commands": ("[{shell: a, on_failure: {commands: [{shell: h}]}}]", "[{shell: a, on_failure: {commands: [{shell: i}]}}]"),
        "strategy": "strategy: fallback",
        "max_attempts": "max_attempts: 3",
        "max_retries": "max_retries: 3",
        "retry_original": "retry_original: true",
        "timeout": "timeout: 5",
        "fail_workflow": "fail_workflow: true",
        "handler_failure_fatal": "handler_failure_fatal: true",
        "capture": "capture: {v: handler_output}",
    },
    "metadata": {
        "retries": "retries: 2",
        "timeout": "timeout: 5",
        "continue_on_error": "continue_on_error: true",
        "env": "env: {A: b}",
        "commit_required": "commit_required: true",
    },
    "an output": {"file_pattern": ("file_pattern: a", "file_pattern: b")},
    "write_file": {
        "path": ("path: a, content: c", "path: b, content: c"),
        "content": ("path: a, content: c", "path: a, content: d"),
        "format": ("path: a, content: '{}', format: json", "path: a, content: '{}'"),
        "mode": ("path: a, content: c, mode: '0600'", "path: a, content: c"),
        "create_dirs": ("path: a, content: c, create_dirs: false", "path: a, content: c"),
    },
    "validate": {
        "shell": ("shell: v", "shell: w"),
        "command": ("command: v", "command: w"),
        "claude": ("claude: v", "claude: w"),
        "commands": ("commands: [{shell: v}, {claude: w}]", "commands: [{shell: v}]"),
        "result_file": ("shell: v, result_file: f", "shell: v"),
        "threshold": ("shell: v, threshold: 75", "shell: v"),
        "timeout": ("shell: v, timeout: 5", "shell: v"),
        "on_incomplete": ("shell: v, on_incomplete: [{shell: h}]", "shell: v"),
    },
    "on_incomplete": {
        "shell": ("shell: h", "shell: i"),
        "claude": ("claude: h", "claude: i"),
        "commands": ("commands: [{shell: h}]", "commands: [{shell: h}, {shell: i}]"),
        "max_attempts": ("shell: h, max_attempts: 5", "shell: h"),
        "fail_workflow": ("shell: h, fail_workflow: false", "shell: h"),
        "commit_required": ("shell: h, commit_required: true", "shell: h"),
    },
    "goal_seek": {
        "goal": ("shell: a, validate: v, goal: reach", "shell: a, validate: v"),
        "shell": ("shell: a, validate: v", "shell: b, validate: v"),
        "claude": ("claude: a, validate: v", "claude: b, validate: v"),
        "validate": ("shell: a, validate: v", "shell: a, validate: w"),
        "threshold": ("shell: a, validate: v, threshold: 5", "shell: a, validate: v"),
        "max_attempts": ("shell: a, validate: v, max_attempts: 2", "shell: a, validate: v"),
        "timeout_seconds": ("shell: a, validate: v, timeout_seconds: 2", "shell: a, validate: v"),
        "fail_on_incomplete": ("shell: a, validate: v, fail_on_incomplete: false", "shell: a, validate: v"),
    },
    "foreach": {
        "foreach": ("foreach: [1], do: [{shell: a}]", "foreach: [2], do: [{shell: a}]"),
        "input": ("input: ls -1, do: [{shell: a}]", "input: ls -2, do: [{shell: a}]"),
        "items": ("items: [1], do: [{shell: a}]", "items: [2], do: [{shell: a}]"),
        "do": ("items: [1], do: [{shell: a}]", "items: [1], do: [{shell: b}]"),
        "parallel": ("items: [1], do: [{shell: a}], parallel: true", "items: [1], do: [{shell: a}]"),
        "continue_on_error": ("items: [1], do: [{shell: a}], continue_on_error: true", "items: [1], do: [{shell: a}]"),
        "max_items": ("items: [1], do: [{shell: a}], max_items: 3", "items: [1], do: [{shell: a}]"),
    },
    "retry": {
        "attempts": "attempts: 5",
        "max_attempts": "max_attempts: 5",
        "backoff": "backoff: fibonacci",
        "initial_delay": "initial_delay: 5s",
        "max_delay": "max_delay: 1m",
        "jitter": "jitter: true",
        "jitter_factor": ("jitter: true, jitter_factor: 0.5", "jitter: true"),
        "retry_on": "retry_on: [network, {pattern: 'a.b'}]",
        "on_failure": "on_failure: continue",
    },
    "setup": {
        "commands": ("commands: [{shell: a}]", "commands: [{shell: b}]"),
        "timeout": ("commands: [{shell: a}], timeout: 5", "commands: [{shell: a}]"),
        "capture_outputs": ("commands: [{shell: a}], capture_outputs: {v: 0}", "commands: [{shell: a}]"),
    },
    "capture_outputs": {
        "command_index": ("command_index: 0", "command_index: 1"),
        "source": ("command_index: 0, source: stderr", "command_index: 0"),
        "multiline": ("command_index: 0, multiline: array", "command_index: 0"),
        "pattern": ("command_index: 0, pattern: 'v(.)'", "command_index: 0"),
        "json_path": ("command_index: 0, json_path: $.a", "command_index: 0"),
        "max_size": ("command_index: 0, max_size: 9", "command_index: 0"),
        "default": ("command_index: 0, default: x", "command_index: 0"),
    },
    "a phase": {
        "commands": ("commands: [{shell: a}]", "commands: [{shell: b}]"),
        "timeout": ("commands: [{shell: a}], timeout: 5", "commands: [{shell: a}]"),
    },
    "map": {
        "input": (MAP, "input: [2], agent_template: [{shell: t}]"),
        "json_path": (f"{MAP}, json_path: '$.a[*]'", MAP),
        "agent_template": (MAP, "input: [1], agent_template: [{shell: u}]"),
        "max_parallel": (f"{MAP}, max_parallel: '${{N}}'", MAP),
        "filter": (f"{MAP}, filter: 'a == 1'", MAP),
        "sort_by": (f"{MAP}, sort_by: a DESC NULLS LAST", MAP),
        "max_items": (f"{MAP}, max_items: 2", MAP),
        "limit": (f"{MAP}, limit: 2", MAP),
        "offset": (f"{MAP}, offset: 2", MAP),
        "distinct": (f"{MAP}, distinct: a", MAP),
        "agent_timeout_secs": (f"{MAP}, agent_timeout_secs: 9", MAP),
        "timeout_per_agent": (f"{MAP}, timeout_per_agent: 9s", MAP),
        "timeout_config": (f"{MAP}, timeout_config: {{agent_timeout_secs: 9}}", MAP),
        "retry_on_failure": (f"{MAP}, retry_on_failure: 2", MAP),
        "error_policy": (f"{MAP}, error_policy: {{max_failures: 2}}", MAP),
    },
    "timeout_config": {
        "agent_timeout_secs": "agent_timeout_secs: 9",
        "command_timeouts": "command_timeouts: {shell: 5, claude_0: 6}",
        "timeout_policy": "timeout_policy: PerAgent, command_timeouts: {shell: 5}",
        "timeout_action": "timeout_action: Skip",
        "cleanup_grace_period_secs": "cleanup_grace_period_secs: 4",
        "enable_monitoring": "enable_monitoring: false",
    },
    "a secret": {
        "provider": ("provider: file, key: k", "key: k"),
        "key": ("key: k", "key: l"),
    },
    "a value of env": {
        "command": ("command: nproc", "command: date"),
        "cache": ("command: nproc, cache: false", "command: nproc"),
        "condition": ("condition: '${x} == 1', when_true: a, when_false: b", "condition: '${x} == 2', when_true: a, when_false: b"),
        "when_true": ("condition: '${x}', when_true: a, when_false: b", "condition: '${x}', when_true: c, when_false: b"),
        "when_false": ("condition: '${x}', when_true: a, when_false: b", "condition: '${x}', when_true: a, when_false: c"),
        "secret": ("value: '${X}', secret: true", "value: '${X}'"),
        "value": ("value: a", "value: b"),
    },
}  # fmt: skip


def make_file(table: str, text: str) -> str:
    """Make a whole file: put the text where keys of the table stand, unless it is a whole file itself."""
    return text if text[:1] in ("[", "{") else AROUND[table] % text


def compile_to_data(text: str, profile: str = "") -> Any:
    """Compile a file; return its model without positions, or the messages of its errors."""
    compiled = compile_text(text, file="flow.yml", folder="/f", profile=profile)
    assert compiled.dialect == "prodigy", text
    if compiled.workflow is None:
        return [finding.message for finding in compiled.diagnostics if finding.severity == "error"]
    return _without_origins(msgspec.to_builtins(compiled.workflow))


def _without_origins(data: Any) -> Any:
    """The same data without its positions in the file."""
    if isinstance(data, dict):
        return {key: _without_origins(value) for key, value in data.items() if key != "origin"}
    if isinstance(data, list | tuple):
        return [_without_origins(value) for value in data]
    return data


def test_every_key_has_a_case() -> None:
    """Every key that a table accepts has a case here, and every case is such a key."""
    accepted = {(table, key.name) for table, key in ROWS if key.kind not in (REFUSED, DEAD)}
    assert accepted == {(table, key) for table, keys in CASES.items() for key in keys}
    assert {table for table, _ in ROWS} == AROUND.keys()


@pytest.mark.parametrize(("table", "key"), [(table, key) for table, keys in CASES.items() for key in keys])
def test_an_accepted_key_changes_the_model(table: str, key: str) -> None:
    """The model of the file with the key differs from that of the file without it, which has no error."""
    case = CASES[table][key]
    with_key, without = (case, "") if isinstance(case, str) else case
    profile = "p" if key == "profiles" else ""
    plain = (
        compile_to_data(make_file(table, without))
        if without or table != "the workflow"
        else compile_to_data("{commands: [{shell: a}]}")
    )
    assert isinstance(plain, dict), plain
    changed = compile_to_data(make_file(table, with_key), profile)
    assert changed != plain
    if isinstance(changed, list):
        assert any(f"`{key}" in message or "expected one of" in message for message in changed), changed


@pytest.mark.parametrize(("table", "key"), [(table, key.name) for table, key in ROWS if key.kind == REFUSED])
def test_a_refused_key_is_named(table: str, key: str) -> None:
    """A refused key is an error with its name, its place and what to do instead."""
    compiled = compile_text(make_file(table, f"{key}: x"), file="flow.yml", dialect="prodigy")
    assert compiled.workflow is None
    (finding,) = [finding for finding in compiled.diagnostics if finding.code == "refused"]
    assert finding.message.startswith(f"`{key}` is not run: ")
    assert (finding.line, bool(finding.column), bool(finding.hint)) == (1, True, True)


def test_every_key_is_documented() -> None:
    """Each row says what the key takes and what it does, in one line."""
    for table, key in ROWS:
        assert key.kind, (table, key.name)
        assert key.doc.endswith("."), (table, key.name)
        assert "\n" not in key.doc, (table, key.name)


@pytest.mark.parametrize("table", AROUND)
def test_an_unknown_key_is_an_error(table: str) -> None:
    """A key that the table does not have is refused, with the name of the table."""
    compiled = compile_text(make_file(table, "zzz: 1"), file="flow.yml", dialect="prodigy")
    messages = [finding.message for finding in compiled.diagnostics if finding.code == "unknown-key"]
    assert messages[:1] == [f"{'a step' if table == 'on_failure' else table} has no key `zzz`"]
