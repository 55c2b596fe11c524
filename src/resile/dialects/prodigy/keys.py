"""The key tables of a Prodigy file: every key with its type and meaning, or the reason why it is refused.

The translation, the did-you-mean hints, the tests and the compatibility page come from these rows. A refused key has a
row too: its reader reports the reason at its position.
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Node, Scalar
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, REFUSED, Key, Table, key_table
from resile.errors import shorten


def _refusal(name: str, why: str, hint: str) -> Key:
    """A key that is known but refused."""

    def refuse(reading: Reading, node: Node) -> Any:
        """Report the refusal at the position of the value."""
        reading.report.error("refused", f"`{name}` is not run: {why}", node, hint=hint)
        return INVALID

    return Key(name, REFUSED, f"{why[0].upper()}{why[1:]}.", refuse)


def _always_true(name: str, doc: str, why: str) -> Key:
    """A key that accepts only `true`, which is what Resile always does."""

    def read_true(reading: Reading, node: Node) -> Any:
        """Refuse any other value."""
        if isinstance(node, Scalar) and node.value is True:
            return node
        shown = shorten(node.text) if isinstance(node, Scalar) else "…"
        reading.report.error("refused", f"`{name}: {shown}` is not run: {why}", node, hint=f"take `{name}` out")
        return INVALID

    return Key(name, "true", doc, read_true)


DEAD = "ignored"
"""The kind of keys that Prodigy itself never reads."""


def _dead(name: str) -> Key:
    """A key that changes nothing in Prodigy either."""

    def report_dead(reading: Reading, node: Node) -> Any:
        """Say that it changes nothing."""
        reading.report.notice("ignored", f"`{name}` changes nothing, as in Prodigy", node, hint=_WITHOUT)
        return INVALID

    return Key(name, DEAD, "Changes nothing, as in Prodigy itself; a notice says so.", report_dead)


_WITHOUT = "take it out"
_VALIDATE = "`validate: {shell: …}` checks a step"
_COMPOSITION = "one file is one workflow here"

WORKFLOW = key_table(
    "the workflow",
    Key("name", "text", "The name of the workflow."),
    Key("description", "text", "A label: the workflow's name where it has none."),
    Key("mode", "standard, mapreduce", "`mapreduce`: the file needs `map`; `standard`: it has none."),
    Key("commands", "list of steps", "The steps, which run in order; after `setup` where there is one."),
    Key("steps", "as `commands`", "The same as `commands`."),
    Key("tasks", "as `commands`", "The same as `commands`."),
    Key("env", "mapping", "Added to every step's environment; a value may be computed: {command} or {condition}."),
    Key("secrets", "mapping", "Environment variables whose values never appear anywhere."),
    Key("env_files", "list of paths", "Files of NAME=VALUE lines, read when the run starts."),
    Key("profiles", "mapping", "Environments by name; `--profile NAME` adds one to `env`."),
    Key("setup", "list of steps, or mapping", "What runs before the map."),
    Key("map", "mapping", "Steps that run once for each item, in a step called `map`."),
    Key("reduce", "list of steps, or mapping", "What runs after the map."),
    Key("merge", "list of steps, or mapping", "What runs last; the work was done in place, so nothing is merged."),
    Key("error_policy", "mapping", "What failed items mean; see the native file."),
    Key("on_item_failure", "dlq, retry, skip, stop, custom:NAME", "As in `error_policy`, and overrides it."),
    Key("continue_on_failure", "true or false", "As in `error_policy`, and overrides it."),
    Key("max_failures", "whole number", "As in `error_policy`, and overrides it."),
    Key("failure_threshold", "number from 0 to 1", "As in `error_policy`, and overrides it."),
    Key("error_collection", "aggregate, immediate, batched:N", "As in `error_policy`, and overrides it."),
    Key("retry_defaults", "mapping", "The `retry` of steps that have none."),
    Key("handlers", "mapping of names to lists of steps", "What `on_item_failure: custom:NAME` runs."),
    _refusal("version", "a Prodigy file has no versions", _WITHOUT),
    _refusal("max_iterations", "a run goes through its steps once", "run it again with `resile rerun`"),
    _refusal("config", "it never had a meaning", _WITHOUT),
    _refusal("imports", _COMPOSITION, "copy the steps into this file"),
    _refusal("extends", _COMPOSITION, "copy the steps into this file"),
    _refusal("template", _COMPOSITION, "copy the steps into this file"),
    _refusal("workflows", _COMPOSITION, "put each into a file of its own"),
    _refusal("parameters", _COMPOSITION, "`$ARG` and `${ARG_1}` are given with --input"),
    _refusal("defaults", _COMPOSITION, "write the keys at each step"),
)  # fmt: skip
STEP = key_table(
    "a step",
    Key("shell", "command", "A command for the shell."),
    Key("claude", "prompt", "A prompt for the agent."),
    Key("analyze", "mapping", "Asks the agent to `/prodigy-analyze`, each key an option."),
    Key("foreach", "mapping, list or command", "Runs `do` once for each item."),
    Key("do", "list of steps", "The steps of a `foreach` beside it."),
    Key("parallel", "true, false or whole number", "As inside `foreach`, for a `foreach` beside it."),
    Key("max_items", "whole number", "As inside `foreach`, for a `foreach` beside it."),
    Key("write_file", "mapping", "Writes a file."),
    Key("goal_seek", "mapping", "Runs a command until a check of it reaches a score."),
    Key("validate", "command, list or mapping", "Checks what the step did; alone in a step it is the step."),
    Key("test", "mapping", "A command with its `on_failure`, in the form of older files."),
    Key("name", "text", "A label: the name of the step. Alone, a slash command of that name."),
    Key("id", "text", "A label: the name of the step, and the prefix of its `outputs`."),
    Key("description", "text", "A label: the name of a step without `id` or `name`."),
    Key("args", "list of texts", "Added to the prompt, unless it contains them already."),
    Key("options", "mapping", "Added to the prompt as `--name value`, unless it contains them already."),
    Key("metadata", "mapping", "Settings of a slash command."),
    Key("outputs", "mapping of names to {file_pattern}",
         "Files that the step must have committed or created in git; `${id.name}` is the first that matches."),
    Key("output", "path", "A file that must be there when the step is done."),
    Key("output_file", "path", "A file that gets the step's output."),
    Key("commit_required", "true or false", "The step must make a commit."),
    Key("capture", "name", "The name of the output; `shell.output` keeps it as that."),
    Key("capture_output", "true, false or name",
         "A name for the output; `true` keeps it as `${shell.output}`, `false` does not."),
    Key("capture_format", "string, json, lines, number, boolean", "The format of the captured output."),
    Key("capture_streams", "stdout, stderr, both or mapping", "The streams that references to the step can name."),
    Key("timeout", "duration", "The time for the step; a number is seconds."),
    Key("when", "expression", "Skip the step where this does not hold."),
    Key("env", "mapping", "Added to the step's environment."),
    Key("working_dir", "path", "The folder in which the step runs."),
    Key("on_success", "step, list or command", "Follows a success."),
    Key("on_failure", "true, false, command, list or mapping", "Answers a failure."),
    Key("on_exit_code", "mapping of exit codes to steps", "Answers this exit code; `0` follows a success."),
    Key("retry", "mapping", "Tries again."),
    Key("retry_config", "as `retry`", "The same as `retry`."),
    Key("max_attempts", "whole number", "As inside `on_failure`, where it belongs."),
    Key("max_retries", "as `max_attempts`", "The same as `max_attempts`."),
    Key("fail_workflow", "true or false", "As inside `on_failure`, where it belongs."),
    Key("handler_failure_fatal", "true or false", "As inside `on_failure`."),
    Key("allow_failure", "true or false", "`true`: the workflow goes on; the same as `on_failure: true`."),
    Key("ignore_errors", "as `allow_failure`", "The same as `allow_failure`."),
    Key("continue_on_error", "true or false",
         "In a handler: the next command runs all the same; elsewhere as `allow_failure`."),
    _always_true("temporary", "The step's `env` is for this step alone, as always.",
                 "the environment of a step is its own"),
    _dead("clear_env"),
    _dead("context"),
    _refusal("handler", "handlers of other programs are not known", "`shell` runs any program"),
    _refusal("command", "what it names is not known", "`shell` or `claude` say what runs"),
    _refusal("auto_commit", "commits are made by commands", "a step `shell: git commit -am …`"),
    _refusal("commit_config", "commits are made by commands", "a step `shell: git commit -am …`"),
    _dead("analysis"),
    _refusal("step_validate", "there is one way to check a step", _VALIDATE),
    _refusal("skip_validation", "there is one way to check a step", _VALIDATE),
    _refusal("validation_timeout", "there is one way to check a step", _VALIDATE),
    _refusal("ignore_validation_failure", "there is one way to check a step", _VALIDATE),
)  # fmt: skip
HANDLER = key_table(
    "on_failure",
    Key("commands", "list of commands or steps", "What the handler runs, in order."),
    Key("strategy", "recovery, fallback, cleanup, custom", "The result of the step after a handler that passes."),
    Key("max_attempts", "whole number", "Executions of the step in all; the handler runs before each further one."),
    Key("max_retries", "as `max_attempts`", "The same as `max_attempts`."),
    Key("retry_original", "true or false", "Deprecated: `max_attempts` above 1 says it."),
    Key("timeout", "duration", "The time for the whole handler."),
    Key("fail_workflow", "true or false", "`true`: only a passed re-run recovers the step."),
    Key("handler_failure_fatal", "true or false", "`true`: the step fails if the handler fails."),
    Key("capture", "name, or mapping of names", "Names for what the handler wrote."),
)  # fmt: skip
METADATA = key_table(
    "metadata",
    Key("retries", "whole number", "The number of retries."),
    Key("timeout", "duration", "As `timeout` of the step."),
    Key("continue_on_error", "true or false", "As `allow_failure` of the step."),
    Key("env", "mapping", "As `env` of the step."),
    Key("commit_required", "true or false", "As `commit_required` of the step."),
    _dead("analysis"),
)  # fmt: skip
OUTPUT = key_table(
    "an output",
    Key("file_pattern", "pattern", "The file, as a git pathspec."),
)  # fmt: skip
WRITE_FILE = key_table(
    "write_file",
    Key("path", "path", "The path of the file."),
    Key("content", "text", "The content of the file."),
    Key("format", "text, json, yaml", "`json`: the content must be JSON, and is formatted; `yaml`: it must be YAML."),
    Key("mode", "permissions", "The permissions of the file, in octal."),
    _always_true("create_dirs", "Missing parent folders are created, as always.", "folders are always made"),
)  # fmt: skip
VALIDATE = key_table(
    "validate",
    Key("shell", "command", "The check: its output is JSON with `completion_percentage`, or its exit code counts."),
    Key("command", "as `shell`", "The same as `shell`."),
    Key("claude", "prompt", "A prompt: the agent makes the check."),
    Key("commands", "list of steps", "The check is these steps, in order."),
    Key("result_file", "path", "The file with the JSON."),
    Key("threshold", "number from 0 to 100", "The percentage to reach; 100 by default."),
    Key("timeout", "duration", "The time for each command of the check."),
    Key("on_incomplete", "list or mapping", "The steps to run before the next check."),
    _refusal("expected_schema", "results are not compared with a schema", "check it in the command"),
)  # fmt: skip
ON_INCOMPLETE = key_table(
    "on_incomplete",
    Key("shell", "command", "A command."),
    Key("claude", "prompt", "A prompt for the agent."),
    Key("commands", "list of steps", "Steps, in order."),
    Key("max_attempts", "whole number", "How often at the most; 2 by default."),
    Key("fail_workflow", "true or false", "`false`: an incomplete result is accepted after the last try."),
    Key("commit_required", "true or false", "Its commands must make a commit."),
    _refusal("prompt", "nobody is asked while a run goes on", "say it in the command"),
)  # fmt: skip
GOAL_SEEK = key_table(
    "goal_seek",
    Key("goal", "text", "A label: the name of a step without `name`."),
    Key("shell", "command", "The command to repeat."),
    Key("claude", "prompt", "The prompt to repeat."),
    Key("validate", "command", "The check: it prints `score: N`, or JSON with `completion_percentage`."),
    Key("threshold", "number from 0 to 100", "The score to reach; 100 by default."),
    Key("max_attempts", "whole number", "Executions in all; 5 by default."),
    Key("timeout_seconds", "duration", "The time for each try."),
    Key("fail_on_incomplete", "true or false", "`false`: a lower score is accepted after the last try."),
)  # fmt: skip
FOREACH = key_table(
    "foreach",
    Key("foreach", "list or command", "The items."),
    Key("input", "as `foreach`", "The same as `foreach`."),
    Key("items", "as `foreach`", "The same as `foreach`."),
    Key("do", "list of steps", "What runs for each item."),
    Key("parallel", "true, false or whole number", "How many at once; `true` is 10, else one after the other."),
    Key("continue_on_error", "true or false", "`true`: failed items are kept as dead letters, the step goes on."),
    Key("max_items", "whole number", "No more items than this."),
)  # fmt: skip
RETRY = key_table(
    "retry",
    Key("attempts", "whole number", "Executions in all; 3 by default."),
    Key("max_attempts", "as `attempts`", "The same as `attempts`."),
    Key("backoff", "type or mapping", "How the waits grow: fixed, linear, exponential, fibonacci."),
    Key("initial_delay", "duration", "The first wait; 1s by default."),
    Key("max_delay", "duration", "The longest wait; 30s by default."),
    Key("jitter", "true or false", "Vary the waits."),
    Key("jitter_factor", "number from 0 to 1", "The share by which the waits vary; 0.3 by default."),
    Key("retry_on", "list",
         "Only failures whose message matches one of these: network, timeout, server_error, rate_limit, {pattern}."),
    Key("on_failure", "stop, continue, {fallback}", "The answer after the last attempt."),
    _refusal("retry_budget", "the number of attempts is the budget", "`attempts` and `max_delay` bound it"),
)  # fmt: skip
SETUP = key_table(
    "setup",
    Key("commands", "list of steps", "The steps, in order."),
    Key("timeout", "duration", "The time for each step without `timeout`."),
    Key("capture_outputs", "mapping of names", "Names for the output of steps, by their place."),
)  # fmt: skip
CAPTURED = key_table(
    "capture_outputs",
    Key("command_index", "whole number", "The index of the step, from 0."),
    Key("source", "stdout, stderr, both", "The stream to read; `both` is stdout, then stderr."),
    Key("multiline", "preserve, array, join, first_line, last_line",
         "`array`: a list of lines; `join`: all lines with blanks between them."),
    Key("pattern", "regular expression", "The first group, or the match; without one it fails (`array`: no lines)."),
    Key("json_path", "JSON path", "The part of the output, which is JSON; a list of the values if there are several."),
    Key("max_size", "whole number", "The step fails if the output has more bytes."),
    Key("default", "text", "The value where the pattern or the path finds nothing."),
)  # fmt: skip
PHASE = key_table(
    "a phase",
    Key("commands", "list of steps", "The steps, in order."),
    Key("timeout", "duration", "The time for each step without `timeout`."),
)  # fmt: skip
MAP = key_table(
    "map",
    Key("input", "path, command or list", "The items: a JSON file, or a command that prints them."),
    Key("json_path", "JSON path", "The part of the input that has the items."),
    Key("agent_template", "list of steps, or {commands}", "What runs for each item."),
    Key("max_parallel", "whole number or variable", "Items that run at once; 10 by default."),
    Key("filter", "expression", "Only items for which this holds; it names the item's fields without a prefix."),
    Key("sort_by", "fields", "The order: `field [ASC|DESC] [NULLS LAST]`."),
    Key("max_items", "whole number", "No more items than this."),
    Key("limit", "as `max_items`", "The same as `max_items`."),
    Key("offset", "whole number", "Skip this many items at the start."),
    Key("distinct", "field", "Only the first of the items that share a value of this field."),
    Key("agent_timeout_secs", "duration or variable", "The time for each item."),
    Key("timeout_per_agent", "as `agent_timeout_secs`", "The same as `agent_timeout_secs`."),
    Key("timeout_config", "mapping", "Times for items and their commands."),
    Key("retry_on_failure", "whole number", "How often a failed item runs again."),
    Key("error_policy", "mapping", "As at the top of the file."),
    _refusal("variables", "an item's values are `${item}` and what steps capture", "put them under `env`"),
    _refusal("validation", "items are checked by their steps", _VALIDATE),
    _refusal("agent_merge", "what an item commits is merged by git", _WITHOUT),
)  # fmt: skip
TIMEOUTS = key_table(
    "timeout_config",
    Key("agent_timeout_secs", "duration or variable", "The time for each item."),
    Key("command_timeouts", "mapping", "Times by kind (`shell`) or by kind and place (`claude_0`)."),
    Key("timeout_policy", "PerAgent, PerCommand, Hybrid", "Which of the two timeouts apply; the other one is refused."),
    Key("timeout_action", "Dlq, GracefulTerminate", "A late item fails: SIGTERM, a grace time, SIGKILL."),
    Key("cleanup_grace_period_secs", "duration", "The grace time of the item's steps."),
    _always_true("enable_monitoring", "Every timeout is recorded, as always.", "every timeout is recorded"),
)  # fmt: skip
SECRET = key_table(
    "a secret",
    Key("provider", "env, file", "An environment variable or a file."),
    Key("key", "text", "The variable, or the path."),
    _refusal("version", "environment variables and files have no versions", _WITHOUT),
)  # fmt: skip
COMPUTED = key_table(
    "a value of env",
    Key("command", "command", "Its output is the value; it runs once, before all steps."),
    _always_true("cache", "The command runs once, as always.", "the command runs once"),
    Key("condition", "expression", "Decides between the two values."),
    Key("when_true", "text", "The value where the condition holds."),
    Key("when_false", "text", "The value where it does not."),
    Key("secret", "true or false", "`true`: the value comes from a variable and never appears."),
    Key("value", "text", "The value; of a secret, `${NAME}`."),
)  # fmt: skip

TABLES: tuple[Table, ...] = (
    WORKFLOW, STEP, HANDLER, METADATA, OUTPUT, WRITE_FILE, VALIDATE, ON_INCOMPLETE, GOAL_SEEK, FOREACH, RETRY, SETUP,
    CAPTURED, PHASE, MAP, TIMEOUTS, SECRET, COMPUTED,
)  # fmt: skip
