"""The key tables of a Torc file: every key with its reader and its documentation; one table for each mapping.

The keys are those of Torc 0.10 and, for labels, of later versions. Keys that only matter on Slurm have a notice; no key
is dropped.
"""

from __future__ import annotations

from typing import get_args

from resile.dialects.reading.key_tables import Key, key_table
from resile.dialects.reading.values import boolean, integer, memory, non_empty, one_of, text
from resile.dialects.torc import values as read
from resile.model.cluster import Trigger
from resile.model.limits import PARALLEL_MAX, RETRIES_MAX

COUNT_MAX = 1_000_000
TRIGGERS = get_args(Trigger)
SORT_METHODS = ("gpus_runtime_memory", "gpus_memory_runtime", "none")
_NAMES = "name or list of names"
_PATTERNS = "regular expression or list of them"
_PARAMETER_KEYS = (
    Key("parameters", "mapping", "Values by name; each combination makes one entry.", read.parameters),
    one_of("parameter_mode", "`product`: every combination; `zip`: the n-th values together.", "product", "zip"),
    Key("use_parameters", _NAMES, "Parameters of the workflow to use here.", read.texts),
)

JOB = key_table(
    "a job",
    Key("name", "text", "The name of the job; it may contain parameters.", read.named_text),
    Key("command", "text", "The command, for bash; `${files.input.NAME}` and the like are replaced.", read.named_text),
    Key("invocation_script", "text", "A prefix of the command.", read.named_text),
    Key("cancel_on_blocking_job_failure", "boolean", "`false`: the job runs even if an earlier job failed.", boolean),
    Key("supports_termination", "boolean", "`true`: SIGTERM and a grace time before SIGKILL.", boolean),
    Key("resource_requirements", "name", "The resources that the job needs.", read.named_text),
    Key("failure_handler", "name", "The rules that answer its failures.", read.named_text),
    Key("depends_on", _NAMES, "Jobs that must succeed before it.", read.texts),
    Key("depends_on_regexes", _PATTERNS, "The same, by regular expressions.", read.texts),
    Key("input_files", _NAMES, "Files that the job reads; it waits for the jobs that write them.", read.texts),
    Key("input_file_regexes", _PATTERNS, "The same, by regular expressions.", read.texts),
    Key("output_files", _NAMES, "Files that the job writes; they must exist after it.", read.texts),
    Key("output_file_regexes", _PATTERNS, "The same, by regular expressions.", read.texts),
    Key("input_user_data", _NAMES, "Data that the job reads; it waits for the jobs that write it.", read.texts),
    Key("input_user_data_regexes", _PATTERNS, "The same, by regular expressions.", read.texts),
    Key("output_user_data", _NAMES, "Data that the job writes.", read.texts),
    Key("output_user_data_regexes", _PATTERNS, "The same, by regular expressions.", read.texts),
    Key("scheduler", "name", "The scheduler whose allocations run the job, on Slurm.", read.named_text),
    *_PARAMETER_KEYS,
)  # fmt: skip
FILE = key_table(
    "a file",
    Key("name", "text", "The name of the file; it may contain parameters.", read.named_text),
    Key("path", "text", "The path of the file, relative to the caller's folder.", read.named_text),
    *_PARAMETER_KEYS,
)  # fmt: skip
USER_DATA = key_table(
    "user data",
    Key("name", "text", "The name of the data.", read.named_text),
    Key("data", "any", "The data; without this key, the stdout of the job that writes it.", read.data),
    Key("is_ephemeral", "boolean", "A label: data lives as long as its run.", boolean),
)  # fmt: skip
RESOURCES = key_table(
    "resource requirements",
    Key("name", "text", "The name that jobs use.", read.named_text),
    Key("num_cpus", "integer", "CPUs.", integer(1, PARALLEL_MAX)),
    Key("memory", "size", "Memory: `512m`, `4g`.", memory),
    Key("num_gpus", "integer", "GPUs.", integer(0, PARALLEL_MAX)),
    Key("num_nodes", "integer", "Machines of a cluster.", integer(1, PARALLEL_MAX)),
    Key("runtime", "ISO 8601 duration", "The time limit of an attempt; one hour by default.",
        read.period),
)  # fmt: skip
HANDLER = key_table(
    "a failure handler",
    Key("name", "text", "The name that jobs use.", read.named_text),
    Key("rules", "list of rules", "The rules; one with `match_all_exit_codes` comes last."),
)  # fmt: skip
RULE = key_table(
    "a rule",
    Key("exit_codes", "exit code or list", "The exit codes that the rule answers; -1 is the end by any signal.",
        read.exit_codes),
    Key("match_all_exit_codes", "boolean", "`true`: the rule answers every exit code that no rule lists.", boolean),
    Key("recovery_script", "text", "Runs with bash before the job runs again; its failure is ignored.",
        read.named_text),
    Key("max_retries", "integer", "Attempts of the job in all.", integer(-(2**31), RETRIES_MAX)),
)  # fmt: skip
SCHEDULER = key_table(
    "a Slurm scheduler",
    Key("name", "text", "The name that jobs and actions use.", read.named_text),
    Key("account", "text", "The account to charge.", text),
    Key("nodes", "integer", "Machines.", integer(1, PARALLEL_MAX)),
    Key("num_nodes", "integer", "Older name of `nodes`.", integer(1, PARALLEL_MAX), "nodes"),
    Key("walltime", "time", "The length of the allocation, such as `04:00:00`.", read.walltime),
    Key("partition", "text", "The partition of the cluster.", text),
    Key("mem", "text", "Memory of a node.", text),
    Key("gres", "text", "Other resources of a node.", text),
    Key("qos", "text", "Quality of service.", text),
    Key("tmp", "text", "Disk of a node.", text),
    Key("ntasks_per_node", "integer", "Tasks on a node, for `srun` in jobs.", integer(1, PARALLEL_MAX)),
    Key("extra", "text", "Other options, passed unchanged.", text),
)  # fmt: skip
ACTION = key_table(
    "an action",
    one_of("trigger_type", "The event that starts the action.", *TRIGGERS),
    one_of("action_type", "The kind of action.", "run_commands", "schedule_nodes"),
    Key("jobs", _NAMES, "The jobs of a trigger about jobs.", read.texts),
    Key("job_name_regexes", _PATTERNS, "The same, by regular expressions.", read.texts),
    Key("commands", "command or list", "Commands for bash, which `run_commands` runs in order.", read.commands),
    Key("scheduler", "name", "The scheduler for `schedule_nodes`.", read.named_text),
    one_of("scheduler_type", "The kind of scheduler.", "slurm"),
    Key("num_allocations", "integer", "The number of allocations to request.", integer(1, PARALLEL_MAX)),
    Key("start_one_worker_per_node", "boolean", "`true`: start a worker on each machine.", boolean),
    Key("max_parallel_jobs", "integer", "How many jobs a worker runs at once; by default as many as fit.",
        integer(1, PARALLEL_MAX)),
    Key("persistent", "boolean", "`true`: nodes are scheduled each time that the trigger holds.", boolean),
)  # fmt: skip
MONITOR = key_table(
    "`resource_monitor`",
    Key("enabled", "boolean", "`false`: take no samples.", boolean),
    one_of("granularity", "`time_series`: take samples of running jobs.", "summary", "time_series", "Summary",
        "TimeSeries"),
    Key("sample_interval_seconds", "integer", "How often a sample is taken; 5 by default.", integer(1, COUNT_MAX)),
    Key("generate_plots", "boolean", "A label.", boolean),
    Key("metrics", "list of texts", "A label.", read.texts),
)  # fmt: skip
WORKFLOW = key_table(
    "the file",
    Key("name", "text", "The name of the workflow.", non_empty(text, "the name")),
    Key("user", "text", "A label.", text),
    Key("description", "text", "A label.", text),
    Key("project", "text", "A label.", text),
    Key("metadata", "any", "A label.", read.data),
    Key("parameters", "mapping", "Parameters that entries take by `use_parameters`.", read.parameters),
    Key("jobs", "list of jobs", "The jobs."),
    Key("files", "list of files", "Paths by name."),
    Key("user_data", "list of data", "JSON by name."),
    Key("resource_requirements", "list", "Shares of the machine by name."),
    Key("failure_handlers", "list", "Rules by name."),
    Key("slurm_schedulers", "list", "Kinds of allocations by name, for Slurm."),
    Key("slurm_defaults", "mapping", "Options of every scheduler, for Slurm.", read.options),
    Key("actions", "list of actions", "Actions at events of the run."),
    Key("resource_monitor", "mapping", "Samples of running jobs; peaks are always measured."),
    Key("use_pending_failed", "boolean", "`true`: park a failure that no rule answers.", boolean),
    one_of("jobs_sort_method", "The order in which ready jobs start.", *SORT_METHODS),
    Key("compute_node_expiration_buffer_seconds", "integer",
        "On Slurm, so long before its end an allocation ends its jobs; 60 by default.", integer(0, COUNT_MAX)),
    Key("compute_node_wait_for_new_jobs_seconds", "integer",
        "On Slurm, an allocation without jobs ends after so long; 90 by default.", integer(0, COUNT_MAX)),
    Key("compute_node_ignore_workflow_completion", "boolean", "A label: allocations end with their run.", boolean),
    Key("compute_node_wait_for_healthy_database_minutes", "integer",
        "A label: allocations do not use the database.", integer(0, COUNT_MAX)),
)  # fmt: skip
TABLES = (WORKFLOW, JOB, FILE, USER_DATA, RESOURCES, HANDLER, RULE, SCHEDULER, ACTION, MONITOR)
