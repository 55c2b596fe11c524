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
        ("a handler that fails", "swallowed", "the step is failed and tolerated: the run goes on and says so"),
        ("`strategy: fallback`", "the step stays failed", "the handler's output is the step's"),
        ("`error_policy`, `circuit_breaker`", "never called", "decide about items; nothing is lost, what is left goes "
         "to the dead letters"),
        ("`on_item_failure: retry`", "skips without `retry_config`", "three executions, then a dead letter"),
        ("`timeout` of a handler", "for each command", "for the handler as a whole, which ends with all its processes"),
        ("`when`", "never asked", "decides whether a step runs"),
        ("`merge`", "merges worktrees", "runs after `reduce`, in place: only items with `isolation` have a worktree"),
        ("unknown keys", "ignored", "errors with the nearest known key"),
    ),
    "visor": (
        ("`retry`, `run`, `goto`", "all at once", "in this order: the steps of `run`, then the step again, `goto` when "
         "no try is left; so the page has it"),
        ("`backoff`", "never waits", "waits, with the page's jitter of 15 % of the first delay"),
        ("`run` without `retry`", "the step is not tried again", "one further try"),
        ("a failed step of `run`", "ignored", "the step fails with its name in the message; `goto` is not taken"),
        ("`goto`", "any step, and pending steps are lost", "a step before; what waits elsewhere is kept"),
        ("`max_loops`", "counted, not enforced", "fails the scope at once, with a message and an exit code"),
        ("`routing.defaults`", "only steps with `on_fail`", "every step; `on_fail: null` opts out"),
        ("`goto_js`, `run_js`, `if`", "no limits, may write memory", "25 ms, a memory cap, frozen inputs, no writing"),
        ("`goto_event`", "changes the event", "nothing: a jump changes no event"),
        ("failed items of `forEach`", "all items run again", "the failed one alone"),
        ("steps that only `run` names", "run in the normal order too", "run only when they are called for"),
        ("no `depends_on`, and `goto` to a step above", "everything at once", "the order of the file, with a notice"),
        ("`human-input`", "asks on the terminal", "parks the step; `resile judge RUN STEP skip --output TEXT` answers"),
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
    ),
    "noetl": (
        ("a step that fails", "`end` never runs", "every path reaches `end`, which runs once"),
        ("steps where several arcs meet", "run once for each arrival", "once for each arc taken; `end` once in all"),
        ("undefined names in templates", "become empty texts", "errors that name the variable"),
        ("code of python", "helpers and imports outside of `main` are not seen in it", "one namespace"),
        ("tools that Resile does not have", "run by their services", "refused by name when the file is loaded"),
        ("`loop`", "the result is that of the last item", "a list in the order of the items"),
        ("a sub-playbook that fails", "its parent goes on as after a success", "its verdict is the step's, whose "
         "rules then apply"),
        ("`keychain`", "a service", "variables of the environment"),
    ),
}  # fmt: skip
