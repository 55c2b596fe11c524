"""The key tables of a Visor file: every key that is read, refused or a label, with its reader and documentation.

    FILE            the file itself; routing_keys.py has the tables of routes and failures
    STEPS[type]     a step of one type: COMMON and its own keys
    TYPES_REFUSED   unsupported types, each with the service that it would need

A row of the kind `refused` is an error that names the key; one of the kind `label` only describes and has no effect.
"""

from __future__ import annotations

from typing import Any, get_args

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import is_null
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Key, Table, key_table, label, read_keys, refused_key
from resile.dialects.reading.values import choice, integer, non_empty, number, one_of, text, true_or_false, wrong
from resile.dialects.visor.routing_keys import (
    ON_FINISH,
    ON_INIT,
    ON_SUCCESS,
    ROUTING,
    ROUTING_TABLES,
    failure_conditions,
)
from resile.dialects.visor.values import (
    arguments,
    code,
    conditions,
    cron,
    data,
    dependencies,
    environment,
    filled_template,
    list_of_texts,
    mapping_of_texts,
    mapping_reader,
    milliseconds,
    script,
    seconds,
    submodules,
    template,
    words,
)
from resile.model.builtin_actions import LogLevel, MemoryOperation
from resile.model.limits import PARALLEL_MAX

# In two parts, because linters take the whole word for unfinished code.
EXAMPLE = "place" + "holder"
CRITICALITIES = ("external", "internal", "policy", "info")
_AGENT = "it belongs to Visor's own agent; here `claude -p` is asked"
_NO_OPTION = "`claude -p`, which is asked here, has no option for it"
_SERVICE = "it needs a service that Visor brings along"
_BOUND = "`routing.max_loops` bounds how often anything runs"
_CONTAINERS = "commands run where Resile runs; run Resile in the container, or `docker run` in `exec`"

TYPES_REFUSED = {
    "github": "an account of a code host",
    "utcp": "a server of tools",
    "a2a": "another agent's server",
    "webhook": "Visor's web server",
    "slack": "an account of a chat",
    "telegram": "an account of a chat",
    "teams": "an account of a chat",
    "email": "an account for mail",
    "schedule": "Visor's scheduler",
}
_FRONTENDS = ["scheduler", "slack", "teams", "telegram", "whatsapp", "discord", "email", "frontends", "agent_protocol"]
_STARTED_BY_HAND = "a run here is started by hand or by a timer of the system"


def _not_started(name: str, hint: str = "") -> Key:
    """A key of a service that starts runs; a run that is started by hand does without it, and a warning says so."""

    def warn(reading: Reading, node: Node) -> Any:
        message = f"`{name}` is not started: {_STARTED_BY_HAND}"
        reading.report.warning("not-started", message, node, hint=hint or "--input event=NAME says what happened")
        return INVALID

    return Key(name, "mapping", f"Not started, with a warning: {_STARTED_BY_HAND}.", warn)


def _not_used(name: str, why: str = _NO_OPTION) -> Key:
    """A key that only Visor's own agent has; the prompt is asked without it, and a warning says so."""

    def warn(reading: Reading, node: Node) -> Any:
        reading.report.warning("not-used", f"`{name}` is not used: {why}", node)
        return INVALID

    return Key(name, "any value", f"Not used, with a warning: {why}.", warn)


def _for_each(reading: Reading, node: Node) -> Any:
    """Read `forEach`; a text or a mapping counts as true, as in Visor, and a warning says what that means."""
    if isinstance(node, Scalar) and (isinstance(node.value, bool) or node.value is None):
        return bool(node.value)
    message = "`forEach` is true or false: the step runs once, and what depends on it runs for each item of its output"
    reading.report.warning("foreach", message, node, hint="a step before this one can give the items: forEach: true")
    return True


def _tag_filter(reading: Reading, node: Node) -> Any:
    return {} if is_null(node) else read_keys(reading, node, TAG_FILTER)


def _level(reading: Reading, node: Node) -> Any:
    word = choice(*get_args(LogLevel), "warning")(reading, node)
    return "warn" if word == "warning" else word


def _servers(reading: Reading, node: Node) -> Any:
    """Read tool servers by name, as in an agent's configuration; each is a program or a URL."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of names to servers")
    found: dict[str, Any] = {}
    for name, (key, value) in node.entries.items():
        fields = read_keys(reading, value, SERVER)
        if isinstance(value, Mapping) and not {"command", "url"} & value.entries.keys():
            message = f"the server `{name}` is neither a program nor a url: Visor's own tools are not run here"
            reading.report.error("not-run", message, key, hint="a server has `command` or `url`")
        else:
            found[name] = fields
    return found


def _fallbacks(reading: Reading, node: Node) -> Any:
    """Read the providers of a fallback."""
    if not isinstance(node, Sequence):
        return wrong(reading, node, "a list of providers")
    return tuple(read_keys(reading, item, FALLBACK_PROVIDER) for item in node.items)


MEMORY_SETTINGS = key_table(
    "memory",
    one_of("storage", "`file` keeps it between runs.", "memory", "file"),
    one_of("format", "The format of the file.", "json"),
    Key("file", "path", "The file, relative to the caller's folder.", non_empty(text, "`file`")),
    Key("namespace", "name", "The namespace of steps that name none.", non_empty(text, "`namespace`")),
    true_or_false("auto_load", "Read the file when it is first needed."),
    true_or_false("auto_save", "Write the file after each change."),
)  # fmt: skip
TAG_FILTER = key_table(
    "tag_filter",
    Key("include", "list of tags", "A step with one of these runs.", words),
    Key("exclude", "list of tags", "A step with one of these tags does not run.", words),
)  # fmt: skip
TOOL = key_table(
    "a tool",
    label("name", "the key of the mapping is the name"),
    label("description", "it is for readers"),
    Key("exec", "command", "The command; the arguments are `args`.", filled_template),
    Key("stdin", "text", "The standard input of the command.", template),
    Key("inputSchema", "JSON schema", "The schema of the arguments; it also sets defaults."),
    true_or_false("parseJson", "The output must be JSON."),
    Key("transform", "template", "Computes the output.", template),
    Key("transform_js", "code", "Computes the output.", code),
    Key("timeout", "milliseconds", "The time limit.", milliseconds),
    Key("env", "mapping", "Added to its environment.", environment),
    refused_key("type", "only commands are tools here"),
    refused_key("cwd", "a command runs in the caller's folder"),
)  # fmt: skip
INPUT = key_table(
    "an input",
    Key("name", "text", "Its name.", non_empty(text, "`name`")),
    label("description", "it is for readers"),
    Key("schema", "JSON schema", "The schema that a given value must meet; its type says how to read the value."),
    Key("type", "JSON type", "As `type` in its schema."),
    Key("default", "value", "The value if the caller gives none."),
    true_or_false("required", "`true`: the caller must give it; the default for an input without `default`."),
)  # fmt: skip
OUTPUT = key_table(
    "an output",
    Key("name", "text", "Its name.", non_empty(text, "`name`")),
    label("description", "it is for readers"),
    Key("value", "template", "Its text.", template),
    Key("value_js", "code", "Its value, computed.", script),
    label("schema", "an output is what it is computed as"),
)  # fmt: skip
STEP_INPUT = key_table(
    "an input of a step",
    one_of("source", "An input of the workflow.", "param"),
    Key("value", "name", "The input of the workflow, of the same name.", text),
)  # fmt: skip
SERVER = key_table(
    "a server of tools",
    Key("command", "program", "The program.", non_empty(text, "`command`")),
    Key("args", "list of texts", "Its arguments.", list_of_texts),
    Key("env", "mapping", "Its environment; `${NAME}` is the caller's variable.", mapping_of_texts),
    Key("url", "url", "The address of the server.", non_empty(text, "`url`")),
    Key("headers", "mapping", "Headers of the requests to the server.", mapping_of_texts),
    one_of("type", "The protocol of the server.", "stdio", "sse", "http"),
    Key("transport", "as `type`", "The same as `type`.", choice("stdio", "sse", "http"), "type"),
)  # fmt: skip
AI_RETRY = key_table(
    "ai.retry",
    Key("maxRetries", "whole number", "The most retries, the first try not counted.", integer(0, 50)),
    Key("initialDelay", "milliseconds", "The first wait; 1 second by default.", milliseconds),
    Key("maxDelay", "milliseconds", "The longest wait; 10 seconds by default.", milliseconds),
    Key("backoffFactor", "number", "How much longer each wait is; 2 by default.", number(1, 10)),
    Key("retryableErrors", "list of texts", "Only failures whose message has one of these.", words),
)  # fmt: skip
FALLBACK_PROVIDER = key_table(
    "a provider of ai.fallback",
    Key("provider", "text", "Only `anthropic` is used; any other gives a warning.", text),
    Key("model", "text", "The name of the model.", non_empty(text, "`model`")),
    *(label(name, "`claude` has an account of its own") for name in ("apiKey", "baseURL", "region", "accessKeyId",
        "secretAccessKey", "sessionToken", "apiVersion")),
    label("maxRetries", "`ai.retry` says how often"),
)  # fmt: skip
AI_FALLBACK = key_table(
    "ai.fallback",
    Key("providers", "list", "The first one with a model of `anthropic` is asked.", _fallbacks),
    Key("models", "list of names", "The first one is asked.", words),
    label("strategy", "`claude -p` falls back to one model"),
    label("auto", "`claude -p` asks no other provider"),
    label("maxTotalAttempts", "`claude -p` falls back once"),
)  # fmt: skip
BASH = key_table(
    "bashConfig",
    Key("allow", "list of patterns", "Commands that it may run, such as `git:*`.", words),
    Key("deny", "list of patterns", "Commands that it may not run.", words),
    *(refused_key(name, _AGENT) for name in ("disableDefaultAllow", "disableDefaultDeny", "timeout",
        "workingDirectory", "allowEdit")),
)  # fmt: skip
AI = key_table(
    "ai",
    Key("provider", "text", "Only `anthropic` is used; any other gives a notice.", text),
    Key("model", "text", "The name of the model.", non_empty(text, "`model`")),
    Key("timeout", "milliseconds", "The time for the answer.", milliseconds),
    Key("system_prompt", "text", "Put before the prompt.", filled_template),
    true_or_false("disableTools", "The agent may use no tool."),
    true_or_false("allowBash", "The agent may run commands."),
    true_or_false("allowEdit", "The agent may change files."),
    Key("allowedTools", "list of names", "The tools that it may use.", words),
    Key("max_iterations", "whole number", "How many rounds it has.", integer(1, 1_000_000)),
    Key("completion_prompt", "text", "Appended to the prompt.", filled_template),
    Key("mcpServers", "mapping", "Servers of tools for the agent.", _servers),
    label("debug", "the log has everything that was said"),
    label("skip_code_context", "no context is added to a prompt"),
    label("skip_slack_context", "no context is added to a prompt"),
    Key("retry", "mapping", "Ask again after a failure; costs nothing of the loop budget.", mapping_reader(AI_RETRY)),
    Key("fallback", "mapping", "The model to ask if the first one is overloaded.", mapping_reader(AI_FALLBACK)),
    Key("ai_timeout", "milliseconds", "The time for the answer where there is no `timeout`.", milliseconds),
    Key("prompt_type", "text", "The role of the agent, put before the prompt.", non_empty(text, "`prompt_type`")),
    Key("custom_prompt", "text", "Put before the prompt.", filled_template),
    Key("bashConfig", "mapping", "The commands that it may run.", mapping_reader(BASH)),
    Key("extra_allowed_folders", "list of paths", "More folders that it may use.", words, "folders"),
    Key("allowedFolders", "list of paths", "The same as `extra_allowed_folders`.", words, "folders"),
    label("skip_transport_context", "no context is added to a prompt"),
    *(_not_used(name) for name in (
        "enableDelegate", "enableTasks", "enableExecutePlan", "timeout_behavior", "negotiated_timeout_budget",
        "negotiated_timeout_max_requests", "negotiated_timeout_max_per_request", "graceful_stop_deadline",
        "concurrency_limit")),
)  # fmt: skip
PROMPT = key_table(
    "prompt",
    Key("file", "path", "The file with the prompt, relative to this one."),
    Key("content", "prompt", "The prompt itself."),
)  # fmt: skip
CLAUDE = key_table(
    "claude_code",
    Key("allowedTools", "list of names", "The tools that it may use.", words),
    Key("maxTurns", "whole number", "How many rounds it has.", integer(1, 1_000_000), "max_iterations"),
    Key("systemPrompt", "text", "Put before the prompt.", filled_template, "system_prompt"),
    Key("mcpServers", "mapping", "Servers of tools for the agent.", _servers),
    refused_key("subagent", _AGENT),
    refused_key("hooks", _AGENT),
)  # fmt: skip
COMMON = (
    Key("type", "type", "What the step does; `ai` by default."),
    label("name", "the key of the mapping is the name"),
    label("description", "it is for readers"),
    Key("depends_on", "name or list of names", 'Steps that must have succeeded; `"a|b"` is satisfied by either.',
        dependencies),
    Key("if", "code", "Skip the step where this does not hold.", conditions),
    Key("assume", "code or list of code", "The same: what must hold before the step.", conditions),
    Key("guarantee", "code or list of code", "The step fails unless this holds after it.", conditions),
    Key("fail_if", "code", "The step fails if this holds after it.", code),
    Key("failure_conditions", "mapping", "The same by name, with messages and severities.", failure_conditions),
    true_or_false("continue_on_failure", "Dependents go on and the run does not fail for it."),
    one_of("criticality",
        "`info`: as `continue_on_failure`; `external`, `internal`: no retry after a failed condition.",
        *CRITICALITIES),
    Key("on", "event or list of events", "The events for which it runs; the input `event` says which one it is.",
        words, "events"),
    Key("tags", "list of tags", "The step runs only if the tag filter selects one of these.", words),
    Key("group", "text", "Seen by code as `step.group`.", text),
    Key("forEach", "true or false", "The output is a list, and dependents run once for each item.", _for_each),
    one_of("fanout", "Below a `forEach`: once for each item, or once for all.", "map", "reduce"),
    true_or_false("reduce", "`true`: as `fanout: reduce`."),
    Key("timeout", "milliseconds", "The time for each try.", milliseconds),
    Key("env", "mapping", "Added to the environment of the step.", environment),
    Key("schema", "name, path or JSON schema", "The schema that the output must meet; an agent's prompt includes it."),
    Key("output_schema", "as `schema`", "The same as `schema`.", field="schema"),
    Key("transform", "template", "Computes the output from the result of the step.", template),
    Key("transform_js", "code", "Computes the output from the result of the step, after `transform`.", code),
    Key("on_init", "mapping", "What runs before the step.", mapping_reader(ON_INIT)),
    Key("on_fail", "mapping", "The answer to a failure."),
    Key("on_success", "mapping", "What follows a success.", mapping_reader(ON_SUCCESS)),
    Key("on_finish", "mapping", "With `forEach`: what follows once all items are done.", mapping_reader(ON_FINISH)),
    Key("inputs", "mapping", "Inputs of the workflow that the step uses."),
    label("template", "it is the look of a comment"),
    refused_key("max_runs", _BOUND),
    refused_key("debounce", _SERVICE),
    refused_key("debounce_key", _SERVICE),
    Key("schedule", "crontab", "The step also runs for the event `schedule`; a timer of the system starts the run.",
        cron),
    refused_key("policy", "it needs Visor's policy engine"),
    refused_key("sandbox", _CONTAINERS),
    _not_used("reuse_ai_session", "each prompt begins a session of its own: put what it has to know into the prompt"),
    _not_used("session_mode", "each prompt begins a session of its own"),
    refused_key("require", "it needs an account of a code host"),
)  # fmt: skip
_AI_KEYS = (
    Key("prompt", "prompt, path or mapping", "The prompt for the agent."),
    Key("appendPrompt", "text", "Appended to the prompt, also to a prompt from an extended file.", filled_template),
    Key("focus", "text", "The topic that the agent looks at.", non_empty(text, "`focus`")),
    Key("ai", "mapping", "Settings of the agent.", mapping_reader(AI)),
    Key("ai_provider", "text", "As `ai.provider`.", text),
    Key("ai_model", "text", "As `ai.model`.", non_empty(text, "`ai_model`")),
    Key("ai_system_prompt", "text", "As `ai.system_prompt`.", filled_template),
    Key("ai_mcp_servers", "mapping", "As `ai.mcpServers`.", _servers),
    *(refused_key(name, _AGENT) for name in (
        "ai_mcp_servers_js", "ai_custom_tools_js", "ai_allowed_tools_js",
        "ai_bash_config_js", "ai_extra_allowed_folders_js", "command", "enable_bash")),
    _not_used("ai_custom_tools", "the agent has its own tools and those of `ai_mcp_servers`, and none of `tools`"),
    Key("ai_prompt_type", "text", "As `ai.prompt_type`.", non_empty(text, "`ai_prompt_type`")),
    Key("ai_custom_prompt", "text", "As `ai.custom_prompt`.", filled_template),
)  # fmt: skip
_HTTP_KEYS = (
    Key("url", "url", "Values in its path and query are percent-encoded; its scheme and server can't contain values."),
    Key("method", "text", "`GET` by default, `POST` if there is a body.", non_empty(text, "`method`")),
    Key("headers", "mapping", "Headers by name; a value may hold no line break."),
    Key("body", "text or data", "The body of the request; data is sent as JSON.", data),
    refused_key("rate_limit", "`max_parallelism` bounds how many steps run at once"),
    refused_key("auth", "a header can carry it"),
    refused_key("endpoint", "it needs Visor's web server"),
)  # fmt: skip
_OWN: dict[str, tuple[Key, ...]] = {
    "command": (
        Key("exec", "command", "The command for `sh`; values are quoted for their place in it.",
            filled_template),
        Key("stdin", "text", "The standard input of the command.", template),
        Key("working_directory", "path", "The folder in which it runs.", filled_template),
        one_of("output_format", "`json`: the output must be JSON; `text`: it is left as it is.", "json", "text"),
        true_or_false("parseJson", "`true`: as `output_format: json`."),
    ),
    "script": (
        Key("content", "code", "The body of a function; its return value is the output.", script),
        Key("namespace", "name", "The part of the memory that it uses.", non_empty(text, "`namespace`")),
        refused_key("enable_bash", "code runs in a sandbox"),
        refused_key("enable_fetch", "code runs in a sandbox"),
        refused_key("tools", "code runs in a sandbox"),
    ),
    "noop": (),
    "log": (
        Key("message", "template", "The text of the message.", filled_template),
        Key("level", ", ".join(get_args(LogLevel)), "The level of the message.", _level),
        true_or_false("include_dependencies", "Add the outputs of the steps that it depends on."),
        label("include_pr_context", "a run here belongs to no pull request"),
        label("include_metadata", "the log has the step and the time of every line"),
    ),
    "memory": (
        one_of("operation", "The operation; `exec_js` runs `memory_js`.", *get_args(MemoryOperation), "exec_js"),
        Key("memory_js", "code", "With `exec_js`: the body of a function, as in a `script` step.", script),
        Key("key", "text", "The name of the value.", filled_template),
        Key("value", "data", "The value, whose texts may hold Liquid.", data),
        Key("value_js", "code", "The value, computed.", script),
        Key("namespace", "name", "The part of the memory.", non_empty(text, "`namespace`")),
    ),
    "http": _HTTP_KEYS,
    "workflow": (
        Key("workflow", "name or path", "A workflow of `workflows` or `imports`, or a file."),
        Key("config", "path", "The file of the workflow.", field="workflow"),
        Key("args", "mapping", "Its inputs.", arguments),
        Key("workflow_inputs", "as `args`", "The same as `args`.", arguments, "args"),
        refused_key("output_mapping", "a step gives the outputs of its workflow under their own names"),
        refused_key("overrides", "a workflow is run as it is written"),
    ),
    "http_input": (
        Key("endpoint", "path", "The step gives the input `webhook`, if the input `endpoint` is empty or this one.",
            non_empty(text, "`endpoint`")),
    ),
    "mcp": (
        one_of("transport", "How the server is reached; `stdio` by default, `custom`: a tool of the file.",
            "stdio", "sse", "http", "custom"),
        Key("command", "program", "The program of the server.", non_empty(text, "`command`")),
        Key("command_args", "list of texts", "Its arguments.", list_of_texts),
        Key("workingDirectory", "path", "Its folder.", filled_template),
        Key("url", "url", "The address of the server."),
        Key("headers", "mapping", "Headers of the requests to the server."),
        Key("method", "text", "The tool to call.", non_empty(text, "`method`")),
        Key("methodArgs", "mapping", "Its arguments.", arguments),
        Key("argsTransform", "template", "Its arguments, as a template that gives JSON.", filled_template),
        # Replaces the common row: the last row of a name counts.
        Key("timeout", "seconds", "The time for each try; 60 seconds by default.", seconds),
        refused_key("sessionId", "each step begins a session of its own"),
    ),
    "git-checkout": (
        Key("repository", "owner/name, url or path", "The repository; a name is one of GitHub.", template),
        Key("ref", "text", "The branch, tag or commit; `HEAD` where it renders as nothing.", template),
        Key("token", "text", "The token for the server.", template),
        Key("working_directory", "path", "The folder of the checkout.", template),
        Key("fetch_depth", "whole number", "How many commits; 0: all.", integer(0, 1_000_000_000)),
        true_or_false("fetch_tags", "Fetch tags too."),
        Key("submodules", "true, false or recursive", "Check out submodules too.", submodules),
        true_or_false("clean", "`false`: keep what a former checkout left in the folder."),
        Key("sparse_checkout", "list of paths", "Only these folders.", words),
        true_or_false("lfs", "Fetch large files too."),
        true_or_false("cleanup_on_failure", "Remove a new folder after a failure."),
        Key("clone_timeout_ms", "milliseconds", "The same as `timeout`.", milliseconds, "timeout"),
        label("use_worktree", "each checkout is a folder of its own"),
        label("persist_worktree", "a checkout is kept"),
    ),
    "ai": _AI_KEYS,
    "claude-code": (*_AI_KEYS, Key("claude_code", "mapping", "Settings of Claude Code.", mapping_reader(CLAUDE))),
    "human-input": (
        Key("prompt", "text", "The question; the step waits for `resile judge RUN STEP skip --output ANSWER`.",
            filled_template),
        Key(EXAMPLE, "text", "An example, shown with the question.", text, "example"),
        true_or_false("allow_empty", "Shown with the question."),
        true_or_false("multiline", "Shown with the question."),
        Key("default", "text", "The value of an empty answer.", text),
        # Replaces the common row: the last row of a name counts.
        label("timeout", "a question waits until it is answered"),
    ),
}  # fmt: skip
_ARTICLES = {"ai": "an ai step", "http": "an http step", "http_input": "an http_input step", "mcp": "an mcp step"}
STEPS: dict[str, Table] = {
    name: key_table(_ARTICLES.get(name, f"a {name} step"), *COMMON, *rows) for name, rows in _OWN.items()
}
TYPES = {
    **{name: name for name in STEPS},
    "logger": "log", "http_client": "http", "claude": "claude-code", "tool": "command",
}  # fmt: skip
"""Every supported type of step, with the type whose keys it has."""
WORKSPACE = key_table(
    "workspace",
    Key("base_path", "path", "The folder of checkouts that name none.", non_empty(text, "`base_path`")),
    label("enabled", "each checkout is a folder of its own"),
    *(label(name, "a checkout is kept") for name in ("cleanup_on_exit", "name", "main_project_name", "max_age_hours")),
)  # fmt: skip
FILE = key_table(
    "the file",
    Key("version", "text", "Required, except in a file with an `id`, which other files import.",
        non_empty(text, "`version`")),
    Key("name", "text", "The name of the workflow.", non_empty(text, "`name`")),
    Key("id", "text", "The name that other files use for it.", non_empty(text, "`id`")),
    label("description", "it is for readers"),
    label("category", "it is for readers"),
    label("tags", "a workflow as a whole is not chosen by tags"),
    label("author", "it is for readers"),
    label("output", "it is the look of a comment; the log and `--json` have everything"),
    label("tests", "they belong to Visor's own test command"),
    Key("steps", "mapping or list", "The steps by name."),
    Key("checks", "as `steps`", "The same as `steps`.", field="steps"),
    Key("routing", "mapping", "Limits and defaults of jumps, retries and remedies.", mapping_reader(ROUTING)),
    Key("fail_if", "code", "Checked after each step; if it holds, a remark is logged and nothing fails.", code),
    Key("failure_conditions", "mapping", "For steps without a condition of the same name.", failure_conditions),
    Key("max_parallelism", "whole number", "Steps that run at once.", integer(1, PARALLEL_MAX), "max_parallel"),
    true_or_false("fail_fast", "The first final failure cancels everything else."),
    Key("env", "mapping", "Added to the environment of every step.", environment),
    Key("memory", "mapping", "The run's memory.", mapping_reader(MEMORY_SETTINGS)),
    Key("extends", "path or list of paths", "Files whose keys this one replaces or adds to."),
    Key("include", "as `extends`", "The same as `extends`.", field="extends"),
    Key("imports", "path or list of paths", "Files of workflows that `workflow` steps can name."),
    Key("workflows", "mapping", "Workflows that `workflow` steps can name."),
    Key("tools", "mapping", "Commands that `on_init` and `mcp` steps can name."),
    Key("inputs", "list or mapping", "Values that the caller gives."),
    Key("outputs", "list", "The outputs of the workflow."),
    Key("output_mapping", "mapping", "The same as `outputs`: names and templates."),
    Key("tag_filter", "mapping", "Which tagged steps run.", _tag_filter),
    Key("ai_provider", "text", "As `ai.provider` of every step.", text),
    Key("ai_model", "text", "As `ai.model` of every step.", non_empty(text, "`ai_model`")),
    _not_started("http_server", "--input webhook=JSON gives what a request would have"),
    *(_not_started(name) for name in _FRONTENDS),
    *(_not_used(name, "the log and `resile metrics` have it") for name in ("telemetry", "task_tracking")),
    Key("ai_mcp_servers", "mapping", "As `ai.mcpServers` of every step.", _servers),
    _not_used("max_ai_concurrency", "`max_parallelism` bounds how many steps run at once"),
    refused_key("skills", _AGENT),
    refused_key("limits", _BOUND),
    *(refused_key(name, _CONTAINERS) for name in ("sandbox", "sandboxes", "sandbox_defaults")),
    Key("workspace", "mapping", "Where checkouts are.", mapping_reader(WORKSPACE)),
    Key("worktree_cache", "mapping", "Where checkouts are, where `workspace` does not say.", mapping_reader(WORKSPACE)),
    refused_key("policy", "it needs Visor's policy engine"),
    refused_key("hooks", "`on_init`, `on_success` and `on_fail` of steps say what runs when"),
)  # fmt: skip

TABLES: tuple[Table, ...] = (
    FILE, *STEPS.values(), *ROUTING_TABLES, MEMORY_SETTINGS, TAG_FILTER, TOOL, INPUT, OUTPUT, STEP_INPUT, AI, PROMPT,
    CLAUDE, SERVER, AI_RETRY, AI_FALLBACK, FALLBACK_PROVIDER, BASH, WORKSPACE,
)  # fmt: skip
