"""What each key of tools, checkouts, agents and services changes: cases for test_keys.py."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from typing import Any

from resile.model.builtin_actions import Script, Transform
from resile.model.rules import Backoff
from resile.model.workflow import Agent, Input, Python, Rule, Shell
from tests.dialects.visor.flows import compiled, errors_of, step_with, workflow_of


def mcp(keys: str, name: str) -> Any:
    """One of the settings of an mcp step with these keys."""
    action = step_with(f"type: mcp, {keys}").action
    assert isinstance(action, Python)
    return action.inputs["settings"][name]


def checkout(keys: str, name: str, more: str = "") -> str:
    """A variable of the step that checks out a repository."""
    return step_with(f"type: git-checkout, ref: r, {keys}", more).env[f"CHECKOUT_{name}"]


def options(keys: str) -> tuple[str, ...]:
    """The options of an agent with these settings."""
    action = step_with(f"prompt: hi, ai: {{{keys}}}").action
    assert isinstance(action, Agent)
    return action.command[2:]


def asked_again(keys: str) -> Rule:
    """The rule that asks an agent again."""
    return step_with(f"prompt: hi, ai: {{retry: {{maxRetries: 3{keys}}}}}").rules[0]


def not_used(text: str) -> list[str]:
    """The keys of Visor's own agent that warnings name, in a file that runs without them."""
    workflow, found = compiled(f"version: '1'\n{text}")
    assert workflow is not None
    return [said.split("`")[1] for said in found if said.startswith("warning: ") and "` is not used: " in said]


def of_step(key: str) -> tuple[object, object]:
    """The warning about a key of a step, as it must be."""
    return not_used(f"steps: {{s: {{prompt: hi, {key}: x}}}}"), [key]


def of_ai(key: str) -> tuple[object, object]:
    """The warning about a setting of an agent, as it must be."""
    return not_used(f"steps: {{s: {{prompt: hi, ai: {{{key}: x}}}}}}"), [key]


def not_started(key: str) -> list[str]:
    """The warnings about a service of the file."""
    found = compiled(f"version: '1'\n{key}: {{enabled: true}}\nsteps: {{s: {{type: noop}}}}")[1]
    return [text for text in found if text.startswith("warning")]


def told(key: str) -> list[tuple[object, object]]:
    """The case of a service that is not started."""
    said = f"warning: `{key}` is not started: a run here is started by hand or by a timer of the system"
    return [(not_started(key), [said])]


MCP = "command: c, method: m"
WEB = "transport: http, url: 'http://h/x', method: m"
HOOK = workflow_of("version: '1'\nsteps: {s: {type: http_input, endpoint: /hook}}")
TOOL = "tools: {t: {exec: 'echo {{ args.n }}', parseJson: true, env: {A: b}, timeout: 2000, transform_js: return 1}}"
OWN = step_with("type: mcp, transport: custom, method: t, methodArgs: {n: 1}", TOOL)
TOOL_CASES: dict[tuple[str, str], list[tuple[object, object]]] = {
    ("the file", "workspace"): [(checkout("repository: a/b", "BASE", "workspace: {base_path: w}"), "w")],
    ("the file", "worktree_cache"): [(checkout("repository: a/b", "BASE", "worktree_cache: {base_path: w, enabled: true}"), "w")],
    ("workspace", "base_path"): [(checkout("repository: a/b", "BASE", "workspace: {base_path: w}"), "w"), (checkout("repository: a/b", "BASE"), ".resile/checkouts")],
    **{("a step", key): [of_step(key)] for key in ("reuse_ai_session", "session_mode")},
    **{("the file", key): [(not_used(f"{key}: {{a: 1}}\nsteps: {{s: {{type: noop}}}}"), [key])] for key in ("telemetry", "task_tracking")},
    ("an ai step", "ai_custom_tools"): [of_step("ai_custom_tools")],
    ("the file", "max_ai_concurrency"): [
        (not_used("max_ai_concurrency: 3\nsteps: {s: {type: noop}}"), ["max_ai_concurrency"])
    ],
    **{("ai", key): [of_ai(key)] for key in ("enableDelegate", "enableTasks", "enableExecutePlan", "timeout_behavior", "negotiated_timeout_budget", "negotiated_timeout_max_requests", "negotiated_timeout_max_per_request", "graceful_stop_deadline", "concurrency_limit")},
    **{("the file", key): told(key) for key in ("http_server", "scheduler", "slack", "teams", "telegram", "whatsapp", "discord", "email", "frontends", "agent_protocol")},
    ("a step", "schedule"): [(step_with("type: noop, schedule: '0 2 * * *'").events, ("schedule",)), (step_with("type: noop, on: [manual], schedule: '*/5 9-17 * * MON-FRI'").events, ("manual", "schedule")), (errors_of("version: '1'\nsteps: {s: {type: noop, schedule: daily}}"), ['expected the five fields of a crontab, such as "0 2 * * *", not `daily`'])],
    ("a command step", "working_directory"): [(step_with("type: command, exec: x, working_directory: d").working_dir, "d")],
    ("a command step", "parseJson"): [(step_with("type: command, exec: x, parseJson: true").transform, Transform(parse="json"))],
    ("an http_input step", "endpoint"): [(HOOK.steps[0].action, Script("return ['', \"/hook\"].includes(inputs.endpoint) ? inputs.webhook : null", "default")), (HOOK.inputs["endpoint"], Input(default="")), (HOOK.inputs["webhook"], Input("json", None))],
    ("an mcp step", "transport"): [(mcp(MCP, "transport"), "stdio"), (mcp(WEB, "transport"), "http"), (OWN.action, Shell("echo {{ args.n }}")), (OWN.args, {"n": 1}), (OWN.env, {"A": "b"}), (OWN.timeout_seconds, 2.0), (OWN.transform, Transform(parse="json", code="return 1"))],
    ("an mcp step", "command"): [(mcp(MCP, "command"), "c"), (errors_of("version: '1'\nsteps: {s: {type: mcp, method: m}}"), ["`transport: stdio` needs `command`"]), (errors_of("version: '1'\nsteps: {s: {type: mcp, transport: http, url: 'http://h', command: c, method: m}}"), ["`command` has no meaning for `transport: http`"])],
    ("an mcp step", "command_args"): [(mcp(f"{MCP}, command_args: [-y, x]", "args"), ["-y", "x"])],
    ("an mcp step", "workingDirectory"): [(mcp(f"{MCP}, workingDirectory: d", "directory"), "d")],
    ("an mcp step", "url"): [(mcp(WEB, "url"), "http://h/x"), (errors_of("version: '1'\nsteps: {s: {type: mcp, transport: sse, url: nowhere, method: m}}"), ["`nowhere` is no http url"])],
    ("an mcp step", "headers"): [(mcp(f"{WEB}, headers: {{A: 'Bearer ${{K}}'}}", "headers"), {"A": "Bearer {{ env['K'] }}"})],
    ("an mcp step", "method"): [(mcp(MCP, "method"), "m"), (errors_of("version: '1'\nsteps: {s: {type: mcp, command: c}}"), ["an `mcp` step needs `method`"]), (errors_of("version: '1'\nsteps: {s: {type: mcp, transport: custom, method: x}}"), ["there is no tool `x`"])],
    ("an mcp step", "methodArgs"): [(mcp(f"{MCP}, methodArgs: {{a: '{{{{ inputs.i }}}}'}}", "arguments"), {"a": "{{ inputs.i }}"})],
    ("an mcp step", "argsTransform"): [(mcp(f"{MCP}, argsTransform: '[1]'", "arguments"), "[1]")],
    ("an mcp step", "timeout"): [(step_with(f"type: mcp, {MCP}, timeout: 5").timeout_seconds, 5.0), (step_with(f"type: mcp, {MCP}").timeout_seconds, 60.0)],
    ("a git-checkout step", "repository"): [(checkout("repository: a/b", "REPOSITORY"), "a/b")],
    ("a git-checkout step", "ref"): [(checkout("repository: a/b", "REF"), "r"), (errors_of("version: '1'\nsteps: {s: {type: git-checkout}}"), ["a `git-checkout` step needs `ref`"])],
    ("a git-checkout step", "token"): [(checkout("token: '{{ env.T }}'", "TOKEN"), "{{ env.T }}")],
    ("a git-checkout step", "working_directory"): [(checkout("working_directory: d", "FOLDER"), "d")],
    ("a git-checkout step", "fetch_depth"): [(checkout("fetch_depth: 2", "OPTIONS"), "--depth=2"), (checkout("fetch_depth: 0", "OPTIONS"), "")],
    ("a git-checkout step", "fetch_tags"): [(checkout("fetch_tags: true", "OPTIONS"), "--tags")],
    ("a git-checkout step", "submodules"): [(checkout("submodules: true", "SUBMODULES"), "true"), (checkout("submodules: recursive", "SUBMODULES"), "recursive")],
    ("a git-checkout step", "clean"): [(checkout("clean: false", "FORCE"), ""), (checkout("clean: true", "FORCE"), "true")],
    ("a git-checkout step", "sparse_checkout"): [(checkout("sparse_checkout: [a, b c]", "SPARSE"), "a\nb c")],
    ("a git-checkout step", "lfs"): [(checkout("lfs: true", "LFS"), "true")],
    ("a git-checkout step", "cleanup_on_failure"): [(checkout("cleanup_on_failure: true", "CLEANUP"), "true")],
    ("a git-checkout step", "clone_timeout_ms"): [(step_with("type: git-checkout, ref: r, clone_timeout_ms: 1500").timeout_seconds, 1.5)],
    ("an ai step", "ai_prompt_type"): [(step_with("prompt: hi, ai_prompt_type: code-explorer").action, Agent("Work as: code explorer.\n\nhi"))],
    ("an ai step", "ai_custom_prompt"): [(step_with("prompt: hi, ai_custom_prompt: be brief").action, Agent("be brief\n\nhi"))],
    ("ai", "prompt_type"): [(step_with("prompt: hi, ai: {prompt_type: architect}").action, Agent("Work as: architect.\n\nhi"))],
    ("ai", "custom_prompt"): [(step_with("prompt: hi, ai: {custom_prompt: be brief}").action, Agent("be brief\n\nhi"))],
    ("ai", "ai_timeout"): [
        (step_with("prompt: hi, ai: {ai_timeout: 1000}").timeout_seconds, 1.0),
        (step_with("prompt: hi, ai: {ai_timeout: 1000, timeout: 3000}").timeout_seconds, 3.0),
    ],
    ("ai", "extra_allowed_folders"): [(options("extra_allowed_folders: [/a, /b]"), ("--add-dir", "/a", "--add-dir", "/b"))],
    ("ai", "allowedFolders"): [(options("allowedFolders: [/a]"), ("--add-dir", "/a"))],
    ("ai", "bashConfig"): [(options("allowBash: true, bashConfig: {allow: ['git:log:*', ls]}"), ("--allowedTools", "Bash(git log:*),Bash(ls:*)"))],
    ("bashConfig", "allow"): [(options("bashConfig: {allow: ['*']}"), ("--allowedTools", "Bash"))],
    ("bashConfig", "deny"): [(options("bashConfig: {deny: ['rm:*']}"), ("--disallowedTools", "Bash(rm:*)"))],
    ("ai", "retry"): [(asked_again("").limit, 3), (asked_again("").cost, 0), (asked_again("").text, "ai.retry 3")],
    ("ai.retry", "maxRetries"): [(asked_again("").limit, 3), (step_with("prompt: hi, ai: {retry: {maxRetries: 0}}").rules, ())],
    ("ai.retry", "initialDelay"): [(asked_again(", initialDelay: 500").wait, Backoff("exponential", 0.5, delay_seconds_max=10.0))],
    ("ai.retry", "maxDelay"): [(asked_again(", maxDelay: 4000").wait, Backoff("exponential", 1.0, delay_seconds_max=4.0))],
    ("ai.retry", "backoffFactor"): [(asked_again(", backoffFactor: 3").wait, Backoff("exponential", 1.0, multiplier=3.0, delay_seconds_max=10.0))],
    ("ai.retry", "retryableErrors"): [(asked_again(", retryableErrors: [rate limit, '503']").match.pattern, r"(?i)rate\ limit|503"), (asked_again("").match.pattern, "")],
    ("ai", "fallback"): [(options("fallback: {models: [m]}"), ("--fallback-model", "m"))],
    ("ai.fallback", "models"): [(options("fallback: {models: [m, n]}"), ("--fallback-model", "m"))],
    ("ai.fallback", "providers"): [(options("fallback: {providers: [{provider: google, model: g}, {provider: anthropic, model: m}]}"), ("--fallback-model", "m"))],
    ("a provider of ai.fallback", "provider"): [(options("fallback: {providers: [{provider: google, model: g}]}"), ())],
    ("a provider of ai.fallback", "model"): [(options("fallback: {providers: [{provider: anthropic, model: m}]}"), ("--fallback-model", "m"))],
}  # fmt: skip
