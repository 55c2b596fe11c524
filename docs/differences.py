"""Where a file of another system means something else here than in its own program, and why; for docs/generate.py.

Each row: the key or keys, what that program does, what Resile does and the reason.
"""

from __future__ import annotations

DIFFERENCES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "prodigy": (
        ("`name` of a step", "makes the step a slash command", "a label, as its page has it"),
        ("`on_failure`", "read in some modes only", "every form in every mode, because one page describes them all"),
        ("`max_attempts`", "1, 3 or 1+N, by the place", "executions of the step in all; the handler runs before each "
         "further one"),
        ("a handler that passes", "the step stays failed in some modes", "the step is recovered; with `max_attempts` "
         "above 1 only if it then passes"),
        ("a `validate` that is not met", "ends the run, whatever `on_failure` says", "`on_failure` answers it after "
         "`on_incomplete`; with `max_attempts` the command and its check run again"),
        ("`${map.results}`", "one long text", "`${map.outcomes}` of a native file: what came of every item"),
        ("a handler that fails", "swallowed", "the step is failed and tolerated: the run goes on and says so"),
        ("`strategy: fallback`", "the step stays failed", "the handler's output is the step's"),
        ("`error_policy`, `circuit_breaker`", "never called", "decide about items; nothing is lost, what is left goes "
         "to the dead letters"),
        ("`on_item_failure: retry`", "skips without `retry_config`", "three executions, then a dead letter"),
        ("`timeout` of a handler", "for each command", "for the handler as a whole, which ends with all its processes"),
        ("`when`", "never asked", "decides whether a step runs"),
        ("`merge`", "merges worktrees", "runs after `reduce`, in place: only items with `isolation` have a worktree"),
        ("items that commit", "always in a worktree", "in one where `commit_required` or a command with `git commit` "
         "stands in the template; else in place"),
        ("files in `.prodigy`", "the folder is there", "a step makes it first, where texts speak of it"),
        ("`${x|FILTER}`", "no filters", "`|default:` is one; any other is told of and left"),
        ("unknown keys", "ignored", "errors with the nearest known key"),
    ),
    "visor": (
        ("`retry`, `run`, `goto`", "all at once", "in this order: the steps of `run`, then the step again, `goto` when "
         "no try is left; so the page has it"),
        ("`backoff`", "never waits", "waits, with the page's jitter of 15 % of the first delay"),
        ("`run` without `retry`", "the step is not tried again", "one further try"),
        ("a failed step of `run`", "ignored", "the step fails with its name in the message; `goto` is not taken"),
        ("`goto`", "any step, and pending steps are lost", "a step before; what waits elsewhere is kept"),
        ("`on_success.goto` to a step that depends on this one", "runs it twice", "nothing, with a notice: it follows "
         "by itself"),
        ("`max_loops`", "counted, not enforced", "fails the scope at once, with a message and an exit code"),
        ("`routing.defaults`", "only steps with `on_fail`", "every step; `on_fail: null` opts out"),
        ("`goto_js`, `run_js`, `if`", "no limits, may write memory", "25 ms, a memory cap, frozen inputs, no writing"),
        ("`goto_event`", "changes the event", "nothing: a jump changes no event"),
        ("failed items of `forEach`", "all items run again", "the failed one alone"),
        ("some failed items of `forEach`", "what gathers the items runs, exit code 0", "it runs with those that "
         "succeeded, and the run fails; where all failed it does not run"),
        ("`continue_on_failure`, `criticality: info` below a `forEach`", "the item goes no further", "the step is "
         "taken as it is, with its failure as its value, and the item goes on"),
        ("`outputs` in a step of `run`", "of steps that are over", "also of the step that calls for it: what it gave, "
         "or its failure"),
        ("`env`", "of the file: seen by `if` alone", "in commands, templates and code alike; a step's stands above "
         "the file's, and a value may name those before it"),
        ("items of several steps that depend on each other", "a step waits until the one before is over for all items",
         "one item after the other, unless `max_parallelism` is given; items of one step run side by side"),
        ("steps that only `run` names", "run in the normal order too", "run only when they are called for; what only "
         "they need as well"),
        ("a dependency that tags or events leave out", "not part of the plan", "not waited for; one that `if` skips "
         "still skips who needs it"),
        ("conditions on text", "of an object", "of the text itself, which has no `issues`; JSON at its end is what "
         "they see"),
        ("what a `workflow` step gives", "its outputs", "the same; `transform`, `fail_if`, `guarantee`, `schema` and "
         "`forEach` look at it"),
        ("`{{ a ? b : c }}`, `a || b`, filters in `for`", "an error, or ignored", "what they say"),
        ("no `depends_on`, and `goto` to a step above", "everything at once", "the order of the file, with a notice"),
        ("`human-input`", "asks on the terminal", "parks the step; `resile judge RUN STEP skip --output TEXT` answers; "
         "the answer is text, also as `.text`"),
        ("exit code", "0 after failures", "1; `continue_on_failure` and `criticality: info` tolerate"),
    ),
    "torc": (
        ("`max_retries`", "N attempts in all", "the same, with a notice that says how to write N retries"),
        ("rules for several codes", "share one counter", "the same: each attempt of the job counts"),
        ("`recovery_script`", "the job is ready while it runs, so another worker may start it", "runs after the retry "
         "is reserved and before the job is ready; its own failure is ignored"),
        ("a failed root of a diamond", "what is below stays blocked for ever", "is canceled at any depth at once, with "
         "the cause recorded"),
        ("`invocation_script`", "never runs", "stands in front of the command, as its page has it"),
        ("`use_pending_failed`", "no command judges what is parked", "`resile judge` decides"),
        ("`depends_on_job` in KDL", "dropped", "the same as `depends_on`, with a notice; any other unknown node is an "
         "error"),
        ("expansions of one name", "several jobs of that name", "one job, with a notice"),
        ("`schedule_nodes`, `slurm_schedulers`", "ask a cluster", "kept for one; a run on this machine starts the jobs "
         "here, and `check` says so"),
        ("`on_worker_*` actions", "for each worker", "once in a run on this machine"),
        ("`runtime`", "not enforced", "a limit; an hour where none is written, with a notice"),
        ("a job that a signal ended", "the code -1 or 137, by how bash ran it", "128+N, always"),
        ("`jobs_sort_method`", "the largest jobs first where none is written", "the order of the file, as its page has "
         "it"),
    ),
    "noetl": (
        ("a step that fails", "`end` never runs", "every path reaches `end`, which runs once"),
        ("steps where several arcs meet", "run for each arrival", "once, when no path under way can lead there"),
        ("undefined names in templates", "become empty texts", "errors that name the variable"),
        ("code of python", "helpers and imports outside of `main` are not seen in it", "one namespace"),
        ("tools that Resile does not have", "run by their services", "refused by name when the file is loaded"),
        ("`loop`", "the result is that of the last item", "a list in the order of the items, with null in the place of "
         "one that failed or gave nothing"),
        ("a sub-playbook that fails", "its parent goes on as after a success", "its verdict is the step's, whose "
         "rules then apply"),
        ("`keychain`, `auth`, `token(NAME)`", "a service", "variables of the environment: `$NAME_FIELD`, `$NAME_DSN`, "
         "`$NAME_TOKEN`"),
        ("`next` in a case of a loop", "for each item", "once, when all items are done, if the case came true for one"),
        ("`then` of a case", "one key of a map", "every key; a sink beside a `retry` runs for each attempt"),
        ("a failure in a pipeline that no rule speaks of", "the pipeline goes on", "the step fails; "
         "`on_unmatched: continue` goes on"),
        ("`admit` without a rule that holds", "admitted", "admitted, unless one of the rules admits: then there must "
         "be a reason"),
        ("an arc or a case about `step.failed` or `error`", "not taken after a failure", "answers the failure: the "
         "path goes on there"),
        ("text that a template writes", "becomes a number, true, none or JSON where it looks so", "the same, but for "
         "numbers with leading zeros; a name keeps the type of its value"),
    ),
}  # fmt: skip

PYTHON: dict[str, tuple[tuple[str, str], ...]] = {
    "of `@step` and `.options`": (
        ("name", "the name of the step; a second one of a name is called `NAME-2`"),
        ("needs", "`needs`; a function stands for the steps of all its calls"),
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
