"""The keys of `executor`, in a native file and in the table `[executor]` of a file for `--executor`."""

from __future__ import annotations

import re
from typing import Any, get_args

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.reading import values as read
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Key, read_mapping, table
from resile.model.executor import ExecutorSettings, Provider

PROVIDERS: tuple[str, ...] = get_args(Provider)
COUNT_MAX = 100_000
_CLOCK = re.compile(r"(?:(\d{1,3})-)?(\d{1,4}):([0-5]\d):([0-5]\d)")
_REFUSED = {
    "flux": "Parsl has no provider for Flux, only an executor that runs its own workers and has no blocks",
    "kubernetes": "Parsl's pods need an image and volumes that no key describes, and share no disk with the engine",
}
_INSTEAD = f"{', '.join(PROVIDERS)}; inside a Flux allocation or a pod `local` uses what is there"
_SBATCH_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,@+-]{0,127}")


def _walltime(reading: Reading, node: Node) -> Any:
    """A time as batch systems write it (`01:30:00`, `2-00:00:00`), or a duration."""
    match = _CLOCK.fullmatch(node.text) if isinstance(node, Scalar) else None
    if match is None:
        return read.duration(reading, node)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds) or read.wrong(reading, node, "a time")


def _word(reading: Reading, node: Node) -> Any:
    """A name that goes into the script of a batch system, so it can't be any text."""
    if isinstance(node, Scalar) and isinstance(node.value, str) and _SBATCH_WORD.fullmatch(node.value):
        return node.value
    return read.wrong(reading, node, "a name of letters, digits and . _ - , @ +")


def _plain_text(reading: Reading, node: Node) -> Any:
    """A text; a number or `true` is a mistake here."""
    if isinstance(node, Scalar) and not isinstance(node.value, str):
        return read.wrong(reading, node, "a text")
    return read.text(reading, node)


def _provider(reading: Reading, node: Node) -> Any:
    """A batch system; those that Parsl can't start blocks on in this way are refused with the reason."""
    if isinstance(node, Scalar) and node.text in _REFUSED:
        reading.report.error("value", f"`provider` can't be `{node.text}`: {_REFUSED[node.text]}", node, hint=_INSTEAD)
        return INVALID
    return read.choice(*PROVIDERS)(reading, node)


_count = read.integer(1, COUNT_MAX)
EXECUTOR = table(
    "executor", "Where attempts run, if not on this machine: blocks of nodes, which Parsl starts.",
    read.one_of("kind", "What starts the blocks.", "parsl"),
    Key("provider", ", ".join(PROVIDERS),
        "The batch system, or `local`: blocks on this machine, for which `account`, `partition`, `qos`, `walltime` and"
        " `grace` say nothing.", _provider, "", PROVIDERS),
    Key("account", "name", "The account that pays for the blocks.", _word),
    Key("partition", "name", "The partition, or queue, that blocks ask for.", _word),
    Key("qos", "name", "The quality of service that blocks ask for.", _word),
    Key("walltime", "time", "How long a block may last: `01:30:00`, or a duration; 1 hour by default.", _walltime,
        "walltime_seconds"),
    Key("nodes_per_block", "whole number", "Nodes in each block; 1 by default.", _count),
    Key("blocks_min", "whole number", "Blocks that are kept, even without work; 0 by default.",
        read.integer(0, COUNT_MAX)),
    Key("blocks_max", "whole number", "Blocks at a time; 1 by default.", _count),
    Key("workers_per_node", "whole number", "Attempts that run at once on a node; 1 by default.", _count),
    Key("idle", "duration", "An idle block ends after this time; 2 minutes by default.", read.duration,
        "idle_seconds"),
    Key("queue_limit", "duration",
        "If no block has started after this time, its jobs fail with the kind `spawn`; 1 hour by default.",
        read.duration, "queue_limit_seconds"),
    Key("grace", "duration",
        "How long before its end a block tells its steps; by default 1 minute, at most a quarter of `walltime`.",
        read.duration, "grace_seconds"),
    Key("directory", "path", "A folder that all nodes see: results and outputs go there.",
        read.non_empty(_plain_text, "`directory`")),
    Key("worker_init", "text", "Shell commands that run first on each node, such as `module load`.", _plain_text),
    Key("address", "text", "The address of this machine that nodes can reach; all of its own by default.", _word),
)  # fmt: skip


def read_executor(reading: Reading, node: Node) -> Any:
    """Read where attempts run; the directory is required, because nodes and engine meet there."""
    errors = len(reading.report.errors)
    fields = read_mapping(reading, node, EXECUTOR)
    if len(reading.report.errors) > errors or not isinstance(node, Mapping):
        return INVALID
    for required in ("kind", "directory"):
        if required not in fields:
            hint = 'kind = "parsl"' if required == "kind" else 'such as directory = "/scratch/me"'
            reading.report.error("value", f"`executor` has no `{required}`", node, hint=hint)
            return INVALID
    del fields["kind"]
    if fields.get("blocks_min", 0) > fields.get("blocks_max", 1):
        where = node.entries["blocks_min"][1]
        reading.report.error("value", "`blocks_min` is more than `blocks_max`", where)
        return INVALID
    settings = ExecutorSettings(**fields)
    if not _is_possible(reading, node, settings):
        return INVALID
    if "grace_seconds" not in fields:
        return replace(settings, grace_seconds=min(settings.grace_seconds, settings.walltime_seconds / 4))
    if settings.grace_seconds >= settings.walltime_seconds:
        where = node.entries["grace"][1]
        reading.report.error("value", "`grace` is not less than `walltime`", where, hint="such as a tenth of it")
        return INVALID
    return settings


def _is_possible(reading: Reading, node: Mapping, settings: ExecutorSettings) -> bool:
    """Can the batch system be asked for all this? If not, say so."""
    provider = settings.provider
    if settings.nodes_per_block > 1 and provider in ("local", "lsf"):
        where = node.entries["nodes_per_block"][1]
        message = f"a block of `{provider}` has one node"
        reading.report.error("value", message, where, hint="leave `nodes_per_block` out, and raise `blocks_max`")
        return False
    if settings.qos and provider in ("pbs", "lsf"):
        message, hint = f"`{provider}` knows no `qos`", "choose a queue with `partition`"
        reading.report.error("value", message, node.entries["qos"][1], hint=hint)
        return False
    return True
