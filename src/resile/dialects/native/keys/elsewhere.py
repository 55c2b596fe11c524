"""Words of other systems: what a native file calls the same thing, for the hint of an unknown key.

Each table has the words that users of other systems write there, with the native key and how it is written.
"""

from __future__ import annotations

_SHELL = "`shell` runs a command: shell: make build"
_NEEDS = "`needs` names the steps to wait for: needs: [build]"
_WHEN = "`when` is the condition: when: inputs.target === 'release'"
_ON_FAILURE = "`on_failure` answers a failure: a command, `true`, or a mapping"
_RETRY = "`retry` tries again: retry: 3, or retry: {max: 3, backoff: 2s}"
_ENV = "`env` adds to the environment: env: {MODE: fast}"
_FOLDER = "`working_dir` is the folder of a step"
_TOLERATE = "`on_failure: true` lets dependents go on, and the run does not fail for this step"
_MAP = "`map` runs steps for each item: map: {input: [a, b], steps: [{shell: 'echo ${item}'}]}"
_END = "the step called `end` runs last, whatever happened"
_IMAGE = "there are no images here; a command can use one: shell: docker run --rm IMAGE COMMAND"
_INPUTS = "`inputs` are values that the caller gives: inputs: {target: release}"
_CAPTURE = "`capture` gives the output a name: capture: version"
_STEPS = "`steps` has them: a list runs in order, a mapping by `needs`"
_PARALLEL = "`max_parallel` is how many run at once"
_SCHEDULE = "this version has no schedules; a line of cron can call `resile run`"
_COMMENT = "write it as a comment: # …"
_TIMEOUT = "`timeout` is a duration: timeout: 10m"

ACTIONS = frozenset(("run", "command", "cmd", "commands", "script", "bash", "sh", "exec", "execute", "image", "uses"))
"""Words that say what a step does: a step with one of them is not told that it does nothing."""

STEP_WORDS = {
    **dict.fromkeys(("run", "command", "cmd", "commands", "bash", "sh", "exec", "execute"), _SHELL),
    **dict.fromkeys(("depends_on", "dependsOn", "depends", "dependencies", "requires", "after", "upstream"), _NEEDS),
    **dict.fromkeys(("if", "condition", "conditions", "only_if", "run_if"), _WHEN),
    **dict.fromkeys(("on_error", "onError", "on_failed", "catch", "rescue", "except", "error_handler"), _ON_FAILURE),
    **dict.fromkeys(("retries", "retry_policy", "retryPolicy", "retry_count", "attempts"), _RETRY),
    **dict.fromkeys(("retry_delay", "retry_delay_seconds"), "`retry` has the wait: retry: {max: 3, backoff: 2s}"),
    **dict.fromkeys(("environment", "variables"), _ENV),
    **dict.fromkeys(("cwd", "dir", "workdir", "working-directory", "working_directory", "workingDir"), _FOLDER),
    **dict.fromkeys(("continue-on-error", "allow_failure", "ignore_errors", "ignore_failure"), _TOLERATE),
    **dict.fromkeys(("matrix", "for_each", "forEach", "with_items", "loop", "parallel", "expand"), _MAP),
    **dict.fromkeys(("finally", "always", "on_exit", "cleanup"), _END),
    **dict.fromkeys(("image", "container", "docker"), _IMAGE),
    **dict.fromkeys(("register", "output", "save_as"), _CAPTURE),
    **dict.fromkeys(("timeout-minutes", "timeout_seconds", "timeout_minutes", "execution_timeout"), _TIMEOUT),
    **dict.fromkeys(("with", "params", "parameters", "arguments"), "`inputs` are the values of a step"),
    "uses": "there are no actions of others here; `shell` runs a command, `workflow` another file",
    "prompt": "`agent` asks an agent: agent: fix the failing test",
    "description": _COMMENT,
    "cpu": "`resources` has it: resources: {cpus: 2}",
    "cpus": "`resources` has it: resources: {cpus: 2}",
    "memory": "`resources` has it: resources: {memory: 4g}; the run's memory is `ir: {memory: …}`",
    "gpus": "`resources` has it: resources: {gpus: 1}",
}  # fmt: skip
WORKFLOW_WORDS = {
    **dict.fromkeys(("jobs", "tasks", "stages", "workflow", "pipeline", "checks", "commands"), _STEPS),
    **dict.fromkeys(("params", "parameters", "arguments", "vars", "args"), _INPUTS),
    **dict.fromkeys(("environment", "variables"), _ENV),
    **dict.fromkeys(("concurrency", "parallel", "parallelism", "max_workers", "max_concurrent"), _PARALLEL),
    **dict.fromkeys(("on", "schedule", "cron", "schedule_interval", "triggers"), _SCHEDULE),
    **dict.fromkeys(("finally", "always", "end", "on_exit", "cleanup"), _END),
    **dict.fromkeys(("on_error", "on_failure", "on_fail", "retries", "retry"),
                    "it stands at a step; `routing: {defaults: {on_failure: …}}` is for all steps"),
    "depends_on": _NEEDS,
    "shell": "`steps` has the commands: steps: [{shell: make}]",
    "description": _COMMENT,
    "version": "the version of the native file is `resile: 1`",
    "image": _IMAGE,
    "defaults": "`routing: {defaults: {on_failure: …}}` is for all steps",
}  # fmt: skip
RETRY_WORDS = {
    **dict.fromkeys(("attempts", "max_attempts", "max_retries", "count", "limit", "times", "retries"),
                    "`max` is how often to try again, the first try not counted"),
    **dict.fromkeys(("delay", "interval", "wait", "delay_seconds", "sleep", "every"),
                    "`backoff` is the wait: a duration, or a mapping"),
}  # fmt: skip
MAP_WORDS = {
    **{word: f"`error_policy` has it: error_policy: {{{word}: …}}"
       for word in ("on_item_failure", "continue_on_failure", "max_failures", "failure_threshold",
                    "failure_threshold_min_items", "error_collection", "circuit_breaker", "retry_config")},
    **dict.fromkeys(("items", "in", "over", "values", "list"), "`input` has the items: input: [a, b]"),
    **dict.fromkeys(("do", "tasks", "commands", "template", "shell"), _STEPS),
    **dict.fromkeys(("concurrency", "parallel", "parallelism", "max_workers", "max_concurrent"), _PARALLEL),
}  # fmt: skip
ANSWER_WORDS = {
    **dict.fromkeys(("continue", "ignore", "skip"), _TOLERATE),
    **dict.fromkeys(("abort", "fail", "stop"), "leave `on_failure` out: a step that stays failed fails the run"),
    "park": "`park: true` lets a person judge the failure",
    "retry": _RETRY,
}
"""What other systems write as the answer to a failure, where a native file has a command."""
SCRIPT = "`shell` runs a command; JavaScript stands under `ir`: ir: {script: …}"
TYPE_WORDS = {
    **dict.fromkeys(("string", "str"), "text"),
    **dict.fromkeys(("int", "integer", "float", "double"), "number"),
    "boolean": "bool",
    **dict.fromkeys(("object", "array", "list", "dict", "map"), "json"),
}
"""What other systems call the types of inputs."""
