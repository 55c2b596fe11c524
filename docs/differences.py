"""Where a file of another system means something else here than in its own program, and why; for docs/generate.py.

Each row: the key or keys, what that program does, what Resile does and the reason.
"""

from __future__ import annotations

DIFFERENCES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "prodigy": (
        ("`name` of a step", "makes the step a slash command", "a label, as Prodigy's manual says"),
        ("`on_failure`", "read in some modes only", "every form in every mode"),
        ("`max_attempts`", "1, 3 or 1+N, by the place", "executions of the step in all; the handler runs before each "
         "further one"),
        ("a handler that passes", "the step stays failed in some modes", "the step is recovered; with `max_attempts` "
         "above 1 only if it then passes"),
        ("a `validate` that is not met", "ends the run, despite `on_failure`", "`on_failure` answers it after "
         "`on_incomplete`; with `max_attempts` the command and its check run again, as attempts of the step"),
        ("`${map.results}`", "one long text", "`${map.outcomes}` of a native file: the outcome of every item"),
        ("a handler that fails", "swallowed", "with re-runs left the command runs again; else the step fails and is "
         "tolerated: the run goes on, and `check` has a notice"),
        ("`strategy: fallback`", "the step stays failed", "the handler's output is the step's"),
        ("`error_policy`, `circuit_breaker`", "never called", "decide about items; items that did not run go "
         "to the dead letters"),
        ("`on_item_failure: retry`", "skips without `retry_config`", "three executions, then a dead letter"),
        ("`timeout` of a handler", "for each command", "for the handler as a whole, which ends with all its processes"),
        ("`when`", "never evaluated", "decides whether a step runs"),
        ("`merge`", "merges the worktree of the run", "runs after `reduce`: the run itself works in place"),
        ("a map without items", "`reduce` is skipped", "the same: each of its steps is, and `merge` runs"),
        ("items of a map", "always in a worktree, on a branch `prodigy-agent-SESSION-ITEM`", "the same in a git "
         "checkout with a commit. Elsewhere items with an agent, `commit_required` or `git commit` are refused, and "
         "others run in place (Prodigy needs git for every file). Without a commit `check` warns that the work of an "
         "item is discarded with its worktree"),
        ("the commits of an item", "merged, with the help of an agent", "merged in the order of the items; a conflict "
         "fails the item. If `reduce` or `merge` name `prodigy-agent-…` they are not merged: the branches stay, and "
         "`prodigy-agent-*` of `git merge` means those of the items that succeeded"),
        ("files in `.prodigy`", "the folder is there", "a step creates it first, if any text mentions it"),
        ("`${step.NAME}`, `${workflow.NAME}` of git: `files_added`, `files_modified`, `files_deleted`, "
         "`files_changed`, `commits`, `commit_count`, `insertions`, `deletions`", "since the step, or the run, began",
         "of the step before in the same list, or since the run began, what is not committed included; `:GLOB`, "
         "`:lines`, `:csv`, `:json` work; in a command the list is one word; handlers can't name them"),
        ("`${shell.…}`, `${claude.…}`, `${last.…}`, `${ID.…}`", "`output`, `stderr`, `exit_code`, `success` …",
         "`output`, `stdout`, `stderr`, `exit_code` of the last such step that kept its output; of the failed command "
         "in a handler; `${ID.output}`, `.stderr`, `.exit_code`, `.success`, `.duration` of the step with that `id`"),
        ("`${map.…}`", "`total`, `successful`, `failed`, `results`", "also `skipped`, `failure_rate`, `error_types`, "
         "`failure_patterns`, `dead_letters`; another name has its `|default:`, or is refused"),
        ("`${error.…}`", "`message`, `exit_code`, `step`, `timestamp`", "also `type`, `stdout`, `stderr`, `attempt`, "
         "`item`"),
        ("`${item}`, `${item.x}`, `${item_id}`, `${item_index}`, `${total}`", "in a map", "in a map and in `foreach`"),
        ("`${merge.…}`, `${workflow.…}`", "`worktree`, `source_branch`, `target_branch`, `session_id`, `commits`, "
         "`commit_count`, `commit_ids`, `modified_files`, `file_count`, `file_list`; `name`, `id`",
         "the same: the work is done in place, so both branches are the current one, and commits and files are those "
         "since the run began; the id is the run's number"),
        ("any other `${workflow.x}`, `${step.x}`, `${last.x}`, `${merge.x}`", "stays in the text", "refused when the "
         "file is loaded"),
        ("`custom:NAME`", "not implemented", "the steps of NAME under `handlers`, at the top of the file, for each "
         "failed step"),
        ("`analysis`, `clear_env`", "never read", "accepted, with a notice"),
        ("`capture_outputs` with `max_size`", "cut", "the step fails if the output is larger"),
        ("`${x|FILTER}`", "no filters", "only `|default:`; any other stays in the text, with a notice"),
        ("unknown keys", "ignored", "errors with the nearest known key"),
    ),
    "visor": (
        ("`retry`, `run`, `goto`", "all at once", "in this order: the steps of `run`, then the step again, then "
         "`goto` when no try is left, as Visor's manual says"),
        ("`backoff`", "never waits", "waits, with a jitter of 15 % of the first delay"),
        ("`run` without `retry`", "the step is not tried again", "one further try"),
        ("a failed step of `run`", "ignored", "the step fails with its name in the message, `goto` is not taken, and "
         "nothing else of the scope (the file, or the item) starts"),
        ("`goto`", "any step, and pending steps are lost", "an earlier step; steps that wait elsewhere still run"),
        ("`on_success.goto` to a step that depends on this one", "runs it twice", "ignored, with a notice: the step "
         "runs anyway"),
        ("`max_loops`", "counted, not enforced", "fails the scope at once, with a message and an exit code"),
        ("`on_success.run`, `on_finish.run`", "cost 1 of `max_loops` each", "cost nothing; jumps, retries and "
         "re-attempts after a remedy cost 1"),
        ("`routing.defaults`", "only steps with `on_fail`; `retry` replaces `retry`", "every step, mappings inside are "
         "merged; `on_fail: null` opts out"),
        ("`goto_js`, `run_js`, `if`", "no limits, may write memory", "25 ms, a memory cap, frozen inputs, no writing"),
        ("`goto_js`, `run_js` of more than 8 KB, or that do not parse", "recorded as an error", "a warning of `check`: "
         "the static keys apply; any other code is refused"),
        ("a name in code that nothing provides", "undefined: the gate opens", "a warning of `check`; a `fail_if` that "
         "throws fails the step"),
        ("an output that is JSON", "an object that can be used as text", "the same in code: `JSON.parse(output)`, "
         "`output.includes(…)`, `${output}`"),
        ("`error.message`", "`soft-failure: issues present`", "what the command wrote to stderr (the last 8 KB), else "
         "our own message"),
        ("steps below an empty `forEach`", "skipped; the steps after them run", "the same; `fanout: reduce` says which "
         "steps are after the items"),
        ("an `if` on outputs of more than 512 KB", "evaluated", "the step fails and says so; code that throws still "
         "skips its step"),
        ("`sandbox`, `sandboxes`", "commands run in containers", "refused: a file that asks for isolation does not run "
         "without it. Run Resile in the container, or write `docker run …` in `exec`"),
        ("`on_init.run_js`", "computes which steps run first", "refused: the steps before a step are part of the plan. "
         "Name them in `on_init.run`; the `if` of each says whether it runs"),
        ("permission helpers (`isOwner()` …)", "true without an account", "the same"),
        ("`mcp` steps", "a client of its own", "the official client, in a process of the step: pip install "
         "'resile[mcp]'; a result with `isError` fails the step"),
        ("`git-checkout`", "a worktree in Visor's cache", "a folder of its own below `.resile/checkouts`, "
         "`workspace.base_path`, or `working_directory`; a failed checkout fails the step"),
        ("`schedule`", "Visor's scheduler starts the step", "the step runs for the event `schedule`: a timer of the "
         "system calls `resile run FILE --input event=schedule`"),
        ("`http_server`, `slack` and other services", "started", "not started, with a warning of `check` and of `run`; "
         "`http_input` steps give `--input webhook=JSON`"),
        ("`pr`, `files`, `branch`, `filesChanged` …", "of the pull request, or of the checkout", "of the checkout, as "
         "they were when the run started: the last commit, and what differs from `--base`, else from the default "
         "branch; nothing outside of a checkout. They are the input `pull_request`"),
        ("`ai_custom_tools`, `reuse_ai_session`, `enableDelegate`, `timeout_behavior` and the like", "of Visor's own "
         "agent", "not used, with a warning of `check` and of `run`: `claude -p` is asked without them"),
        ("`forEach` with a text or a mapping", "counts as true", "the same, with a warning"),
        ("a `schema` that is a template", "rendered", "an agent is asked for it, with a warning: its answer is not "
         "checked; other steps refuse it"),
        ("`on_success.transitions` to a step that depends on this one", "runs it twice", "ends the search without a "
         "jump, with a notice"),
        ("`fail_if` of the file, conditions with the severity `warning` or `info`", "a remark", "the same, with a "
         "notice of `check`"),
        ("`ai.fallback`", "other providers and models", "`claude --fallback-model` with the first model of anthropic"),
        ("a file of tools or workflows without steps", "runs nothing", "the same, with a warning; what is in it is "
         "checked"),
        ("`goto_event`", "changes the event", "nothing: a jump changes no event"),
        ("failed items of `forEach`", "all items run again", "the failed one alone"),
        ("some failed items of `forEach`", "the step after the items runs, exit code 0", "it runs with the items "
         "that succeeded, and the run fails; if all items failed it does not run"),
        ("`continue_on_failure`, `criticality: info` below a `forEach`", "the item goes no further", "the failure is "
         "the step's value, and the item goes on"),
        ("`outputs` in a step of `run`", "of steps that have ended", "also of the step that calls it: its output "
         "or its failure"),
        ("`env`", "of the file: seen by `if` alone", "in commands, templates and code; a step's `env` overrides "
         "the file's, and a value may name earlier ones"),
        ("items of several steps that depend on each other", "a step waits until the one before is over for all items",
         "one item after the other, unless `max_parallelism` is given; items of one step run side by side"),
        ("steps that only `run` names", "run in the normal order too", "run only when called, and so do the steps "
         "that only they need"),
        ("a dependency that tags or events leave out", "not part of the plan", "not waited for; if `if` skips a "
         "step, its dependents are still skipped"),
        ("conditions on text", "see an object", "see the text itself, which has no `issues`, or the JSON at its "
         "end"),
        ("the result of a `workflow` step", "its outputs", "the same; `transform`, `fail_if`, `guarantee`, `schema` "
         "and `forEach` use it"),
        ("`{{ a ? b : c }}`, `a || b`, filters in `for`", "an error, or ignored", "supported"),
        ("no `depends_on`, and `goto` to an earlier step", "everything at once", "the order of the file, with a "
         "notice"),
        ("`human-input`", "asks on the terminal", "parks the step; `resile answer RUN STEP TEXT` answers; "
         "the answer is text, also as `.text`"),
        ("issues of severity `critical` in an output", "exit code 1, at the end", "no failure, with a notice for a "
         "`schema` of reviews: `fail_if: criticalIssues > 0` makes them one"),
        ("exit code", "0 after failures", "1; `continue_on_failure` and `criticality: info` tolerate"),
    ),
    "torc": (
        ("`max_retries`", "N attempts in all", "the same, with a notice that says how to write N retries"),
        ("rules for several codes", "share one counter", "the same: each attempt of the job counts"),
        ("`recovery_script`", "the job is ready while it runs, so another worker may start it", "runs after the retry "
         "is reserved and before the job is ready; its own failure is ignored"),
        ("a failed root of a diamond", "its dependents stay blocked for ever", "dependents at any depth are canceled "
         "at once, with the cause recorded"),
        ("`invocation_script`", "never runs", "a prefix of the command, as Torc's manual says"),
        ("input files and user data that are missing", "refused when the workflow is initialized", "a warning of "
         "`check`; `run` refuses them, exit code 2, without `--force`"),
        ("a scheduler of several nodes whose jobs use one", "refused", "the same"),
        ("`torc` in commands, recovery scripts and actions", "the client of a server", "a program on the PATH of files "
         "that call it: `user-data get`, `update`, `list`, `jobs get`, each with `-f json`; no server is needed. "
         "Where one drives the run it is asked, with [a token of the run](../guides/security.md#tokens-of-steps)"),
        ("`${user_data.output.X}`", "the data as JSON", "the same; the ID where the file gives no data, and behind "
         "`torc user-data get` or `update`, with `input` too"),
        ("`use_pending_failed`", "no command judges what is parked", "`resile judge` decides"),
        ("`depends_on_job` in KDL", "dropped", "the same as `depends_on`, with a notice; any other unknown node is an "
         "error"),
        ("expansions of one name", "several jobs of that name", "one job, with a notice"),
        ("`schedule_nodes`, `slurm_schedulers`", "submit allocations; `torc submit` starts them", "the same in "
         "`resile run`, where [Slurm is](../guides/hpc.md#torc-files); elsewhere the jobs start on this machine, and "
         "`check` says so"),
        ("`schedule_nodes` of a worker that died", "lost", "done exactly once; a resume has all allocations that the "
         "run had"),
        ("`auto_schedule_on_ready_jobs`", "in its documents only", "a trigger of `schedule_nodes`: a job is ready, a "
         "retried one too, and no allocation is there that may take it"),
        ("a job whose `scheduler` has no allocation", "another one may take it, or it waits for ever", "it waits "
         "for its own, and fails with the kind `spawn` after `queue_limit`"),
        ("jobs in one allocation", "as many as have room, by the resources of each", "as many as have room if each "
         "were the largest that may run there; `max_parallel_jobs` says it otherwise"),
        ("`ntasks_per_node`", "never used", "an option of the allocation"),
        ("`run_commands` on worker triggers", "for each worker", "once in a run"),
        ("`runtime`", "not enforced", "a limit; one hour by default, with a notice"),
        ("a job that a signal ended", "the code -1 or 137; it depends on how bash ran it", "128+N, always; rules "
         "for -1, for -N and for 128+N match it"),
        ("`exit_codes`", "any 32-bit integers", "the same; one that no failure can have is a warning"),
        ("an output file that is missing after exit 0", "the code 1", "the same, for rules and in `TORC_RETURN_CODE`; "
         "the attempt's own exit code stays 0"),
        ("the commands of an action", "run in the runner's folder; a failed one stops the others", "run in the output "
         "directory, up to the first that fails; a failed action never fails the run, and is shown as tolerated"),
        ("`jobs_sort_method`", "by default the largest jobs first", "by default the order of the file, as Torc's "
         "manual says"),
    ),
    "noetl": (
        ("a step that fails", "`end` never runs", "every path reaches `end`, which runs once"),
        ("steps where several arcs meet", "run for each arrival", "once, when no path under way can lead there"),
        ("undefined names in templates", "become empty texts", "errors that name the variable"),
        ("code of python", "`main` does not see helpers and imports outside of it", "one namespace"),
        ("tools that Resile does not have", "run by their services", "refused by name when the file is loaded"),
        ("`loop`", "the result is that of the last item", "a list in the order of the items, with null for items "
         "that failed or have no result"),
        ("a sub-playbook that fails", "its parent goes on as after a success", "its verdict is the step's, whose "
         "rules then apply"),
        ("arcs that lead back", "no limit", "1,000 in all, each costs 1; `max_loops` in `spec` of the executor or "
         "of the playbook changes it"),
        ("pages without `max_attempts`", "100, then the result lacks the rest", "until the condition ends them; more "
         "than 10,000 fail the step"),
        ("`error` in a condition of `retry`", "None after a success", "the same"),
        ("a key that a mapping has twice", "the last one counts", "the same, with a warning"),
        ("a step that is there twice", "the first one counts", "the same, with a warning"),
        ("`keychain`, `auth`, `token(NAME)`", "a service", "variables of the environment: `$NAME_FIELD`, `$NAME_DSN`, "
         "`$NAME_TOKEN`; or `--credentials FILE`, a YAML file of `NAME: {field: …}`. In `auth: {NAME: {…}}` of http "
         "NAME counts, of databases `key`"),
        ("`secrets` tools", "a secret manager; the result is stored", "`$NAME_SECRET_VALUE`, or `secret_value` in the "
         "file of credentials; looked up where a template names it, and never stored"),
        ("`next` in a case of a loop", "for each item", "once, when all items are done, if the case held for one"),
        ("`then` of a case", "one key of a map", "every key; a sink beside a `retry` runs for each attempt"),
        ("a failure in a pipeline that no rule matches", "the pipeline goes on", "the step fails; "
         "`on_unmatched: continue` goes on"),
        ("`admit` without a rule that holds", "admitted", "admitted, unless a rule has `allow: true`"),
        ("an arc or a case about `step.failed` or `error`", "not taken after a failure", "answers the failure: the "
         "path goes on there"),
        ("text that a template writes", "becomes a number, true, none or JSON if it looks like one", "the same, except "
         "numbers with leading zeros; a name keeps the type of its value"),
    ),
}  # fmt: skip

PYTHON: dict[str, tuple[tuple[str, str], ...]] = {
    "of `@step` and `.options`": (
        ("name", "the name of the step; a second step of that name becomes `NAME-2`"),
        ("needs", "`needs`; a function means the steps of all its calls"),
        ("when", "`when`"),
        ("env", "`env`; refused in threads, which share one environment"),
        ("resources", "`resources`; `gpus` are refused in threads"),
        ("timeout", "`timeout`"),
        ("grace", "`grace`"),
        ("retry", "`retry`"),
        ("rules", "a failure handler of the function's name, and `failure_handler`; `types` are names"),
        ("on_failure", "`on_failure`"),
        ("on_success", "`on_success`"),
        ("park", "`park`"),
        ("critical", "`critical`; of a map, that of the whole map"),
        ("rerun_on_loss", "`rerun_on_loss`"),
    ),
    "of `Workflow`": (
        ("workers", "`workers` of each `function`"),
        ("max_parallel", "`max_parallel`"),
        ("max_loops", "`routing: {max_loops: …}`"),
        ("grace", "`grace`"),
        ("inputs", "`inputs`, each with its type"),
        ("env", "`env`; refused in threads"),
    ),
    "of calls": (
        ("f(…)", "`function`: its file, found from the new one, or its module; arguments as pairs of kind and value"),
        ("f.map(…)", "`map` with one `function`"),
        ("x.after(…)", "`needs`"),
        ("flow.input(…)", "the kind `input`"),
        ("flow.execution", "the kind `execution`"),
    ),
}
"""What `migrate` makes of a workflow written in Python, option by option."""
