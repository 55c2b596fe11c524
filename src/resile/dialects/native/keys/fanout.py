"""Key tables for fan-outs: `map`, its `error_policy`, and their parts, with the readers of their values.

`native/fanout.py`, `native/foreach.py` and `native/failures/error_policy.py` compile the values.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe
from resile.dialects.native.keys.elsewhere import MAP_WORDS
from resile.dialects.native.keys.failures import read_backoff
from resile.dialects.reading import values as read
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, Key, read_mapping, table
from resile.errors import shorten
from resile.languages.references import names
from resile.model.fanout import Breaker
from resile.model.limits import ITEMS_MAX, PARALLEL_MAX, RETRIES_MAX

ITEM_FAILURES = ("dlq", "retry", "skip", "stop", "fail", "carry_on")
CUSTOM = "custom:"
FILE_ENDINGS = (".json", ".jsonl", ".ndjson")
"""A single word with such an ending is a file of items."""
# Keep patterns as texts: compiling them at import would slow down every file, also those without a map.
_FIELD = r"[^\s,.]+(?:\.[^\s,.]+)*"
_SORT = rf"(?i)({_FIELD})(\s+ASC|\s+DESC)?(\s+NULLS\s+(?:FIRST|LAST))?"
_PLAIN_PATH = r"\$(?:\.[A-Za-z_]\w*|\[\*\]|\[[0-9]{1,9}\])*"


def _path(reading: Reading, node: Node) -> Any:
    """Read a JSON path and check it, unless it contains a reference."""
    import re

    source = read.non_empty(read.template, "`json_path`")(reading, node)
    if source is INVALID or "${" in source or re.fullmatch(_PLAIN_PATH, source):
        return source
    from jsonpath import JSONPathEnvironment, JSONPathError

    try:
        JSONPathEnvironment(strict=True).compile(source)
    except (JSONPathError, RecursionError, ValueError) as problem:
        reason = str(problem).partition("\n")[0]
        reading.report.error("value", f"{describe(node)} is no JSON path: {reason}", node, hint="such as `$.items[*]`")
        return INVALID
    return source


def _filter(reading: Reading, node: Node) -> Any:
    """Read an expression about one item; it takes no references."""
    source = read.expression(reading, node)
    if source is not INVALID and (found := names(source)):
        message = f"`${{{shorten(found[0][0])}}}` can't stand in a filter"
        reading.report.error("value", message, node, hint="it is JavaScript that sees `item`: item.size > 3")
        return INVALID
    return source


def _sort_by(reading: Reading, node: Node) -> Any:
    """Read sort fields with their directions, in normalized form."""
    import re

    source = read.non_empty(read.text, "`sort_by`")(reading, node)
    if source is INVALID:
        return INVALID
    parts: list[str] = []
    for part in source.split(","):
        found = re.fullmatch(_SORT, part.strip())
        if found is None:
            hint = "sort_by: size DESC, owner.name NULLS FIRST"
            return read.wrong(reading, node, "fields, each with ASC or DESC, NULLS FIRST or NULLS LAST as needed", hint)
        order = " ".join(word.upper() for word in f"{found[2] or ''} {found[3] or ''}".split())
        parts.append(f"{found[1]} {order}".rstrip())
    return ", ".join(parts)


def _field(reading: Reading, node: Node) -> Any:
    """Read the name of an item's field, or a dotted path to one."""
    import re

    source = read.text(reading, node)
    if source is INVALID or re.fullmatch(_FIELD, source):
        return source
    return read.wrong(reading, node, "a field of the items, such as name or owner.id")


def _branch(reading: Reading, node: Node) -> Any:
    """Read the beginning of a branch's name."""
    import re

    source = read.text(reading, node)
    if source is INVALID or re.fullmatch(r"[A-Za-z0-9]+(?:[_/-][A-Za-z0-9]+)*", source):
        return source
    return read.wrong(reading, node, "the beginning of a branch's name: letters and digits, with `-`, `_` or `/`")


def _on_item_failure(reading: Reading, node: Node) -> Any:
    """Read a word, or `custom:` with a handler's name: the word and the node of the name."""
    if isinstance(node, Scalar) and node.text.startswith(CUSTOM):
        return CUSTOM, node
    word = read.choice(*ITEM_FAILURES, f"{CUSTOM}NAME")(reading, node)
    return INVALID if word is INVALID else (word, node)


def _collection(reading: Reading, node: Node) -> Any:
    """Read how errors are reported, and the batch size if in batches."""
    if isinstance(node, Mapping):
        size = read_mapping(reading, node, ERROR_COLLECTION).get("batched", INVALID)
        return INVALID if size is INVALID else ("batched", size)
    if isinstance(node, Scalar) and node.text.startswith("batched:"):
        digits = node.text.removeprefix("batched:").strip()
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else digits
        size = _batch_size(reading, Scalar(value, digits, node.line, node.column))
        return INVALID if size is INVALID else ("batched", size)
    word = read.choice("aggregate", "immediate", "batched")(reading, node)
    return INVALID if word is INVALID else (word, None)


def _read_batch_size(reading: Reading, node: Node) -> Any:
    """Read a batch size: a number, or a mapping with it."""
    if not isinstance(node, Mapping):
        return _batch_size(reading, node)
    fields = read_mapping(reading, node, BATCHED)
    if "size" not in node.entries:
        reading.report.error("value", "`batched` needs `size`", node)
    return fields.get("size", INVALID)


def read_breaker(reading: Reading, node: Node) -> Any:
    """The circuit breaker of a map."""
    fields = read_mapping(reading, node, CIRCUIT_BREAKER)
    return Breaker(**fields) if isinstance(node, Mapping) else INVALID


def read_item_backoff(reading: Reading, node: Node) -> Any:
    """A backoff, or null for none."""
    return None if isinstance(node, Scalar) and node.value is None else read_backoff(reading, node)


def _retry_config(reading: Reading, node: Node) -> Any:
    fields = read_mapping(reading, node, RETRY_CONFIG)
    return fields if isinstance(node, Mapping) else INVALID


_count = read.integer(1, ITEMS_MAX)
_batch_size = read.integer(1, ITEMS_MAX)
max_parallel = read.integer(1, PARALLEL_MAX)

INPUT_STEP = table(
    "input", "Where the items of a map come from: one of these.",
    Key("step", "name", "The step before this one whose output is the list of items; the map needs it.",
        read.non_empty(read.text, "`step`")),
    Key("path", "path", "A file beside the workflow file.", read.non_empty(read.template, "`path`")),
    Key("command", "command", "A command that prints them.", read.non_empty(read.text, "`command`")),
    Key("template", "text", "A text whose value is a list.", read.non_empty(read.template, "`template`")),
)  # fmt: skip
PHASE = table(
    "setup, reduce, agent_template", "A list of steps, as a mapping.",
    Key("commands", "list of steps", "The steps, which run in order."),
)  # fmt: skip
_MAP = table(
    "map", "Steps that run once for each item; they see `${item}`, `${item_index}` and `${item_id}`.",
    Key("input", "list, path, command or mapping",
        "The items: a list; a file beside the workflow file, or one word that ends in .json, .jsonl or .ndjson; a "
        "step's output; any other text is a command that prints them."),
    Key("json_path", "JSON path", "The part of the input that has the items; one array means its elements.", _path),
    Key("filter", "expression", "Only items for which this holds; it sees `item`.", _filter),
    read.true_or_false("filter_bare", "`true`: the filter sees the fields of an item by their names as well."),
    Key("sort_by", "fields", "The order: fields, each with `ASC` or `DESC`, `NULLS FIRST` or `NULLS LAST`.", _sort_by),
    Key("distinct", "field", "Only the first of the items that share a value of this field.", _field),
    Key("offset", "whole number", "Skip this many items at the start.", read.integer(0, ITEMS_MAX)),
    Key("max_items", "whole number", "No more items than this.", _count, "items_max"),
    Key("max_parallel", "whole number", "Items that run at once.", max_parallel),
    Key("redrive_parallel", "whole number", "Items that `dlq retry` runs at once; `max_parallel`, else 5.",
        max_parallel),
    Key("item_timeout", "duration", "The time for each item, all its steps together.", read.duration,
        "item_timeout_seconds"),
    Key("timeout_per_agent", "as `item_timeout`", "The same as `item_timeout`.", read.duration, "item_timeout_seconds"),
    Key("steps", "list or mapping", "What runs for each item: a list in order, a mapping by `needs`."),
    Key("agent_template", "list, or {commands}", "The same as `steps`, as a list.", field="steps"),
    Key("error_policy", "mapping", "What failed items mean; instead of the workflow's, as a whole."),
    read.one_of("isolation", "`worktree`: each item has a git worktree, and its commits are merged; `auto`: the "
        "same in a git checkout with a commit, `none` elsewhere.", "none", "worktree", "auto"),
    Key("branch", "text", "With `isolation: worktree`: how the names of the items' branches begin.", _branch),
    read.true_or_false("merge",
        "With `isolation: worktree`, `false`: the commits of an item stay on its branch, one of `${STEP.branches}`."),
    Key("scope", "text", "The name of the items' scopes; the step's name by default.",
        read.non_empty(read.text, "`scope`")),
    Key("item_name", "name", "A second name for `item` in texts.", read.text),
)  # fmt: skip
MAP = replace(_MAP, elsewhere=MAP_WORDS)
ERROR_POLICY = table(
    "error_policy", "What a failed item means for itself and for its map.",
    Key("on_item_failure", "dlq, retry, skip, stop, fail, carry_on, custom:NAME",
        "`dlq`: keep it as a dead letter, and fail the map once all are done unless one of the next three keys lets it "
        "go on; `retry`: run it again first, three times in all where `retry_config` does not say otherwise; `skip`: "
        "drop it; `stop`: keep it and end the map; `fail`: as `dlq`, whatever the other keys say; `carry_on`: as "
        "`fail`, but what needs the map runs where some items succeeded; `custom:NAME`: a failure handler or one of "
        "`handlers` answers the failures of its steps, then as `dlq`.", _on_item_failure),
    read.true_or_false("continue_on_failure",
        "`true`: failed items do not fail the map; `false`: the first failed item ends it."),
    Key("max_failures", "whole number", "The number of failed items that ends and fails the map; fewer do not fail it.",
        _count, "failures_max"),
    Key("failure_threshold", "number from 0 to 1",
        "A larger share of failed items ends and fails the map; a smaller one does not fail it.", read.number(0, 1)),
    Key("failure_threshold_min_items", "whole number",
        "Judge the share before the map ends only after this many items; 10 by default.", _count,
        "threshold_items_min"),
    Key("error_collection", "aggregate, immediate, batched, or {batched}",
        "Report failed items at the end, at once, or in batches of 10 or of a given size.", _collection),
    Key("circuit_breaker", "mapping", "Hold the items back while too many fail in a row.", read_breaker, "breaker"),
    Key("retry_config", "mapping", "Run a failed item again before `on_item_failure` applies, whatever its value.",
        _retry_config),
)  # fmt: skip
RETRY_CONFIG = table(
    "retry_config", "Run a failed item again.",
    Key("max_attempts", "whole number", "Executions in all, the first included; 3 by default.",
        read.integer(1, RETRIES_MAX), "attempts_max"),
    Key("backoff", "duration, type, mapping or null",
        "The waits between executions; 1s, 2s, 4s … by default, none with null.", read_item_backoff),
)  # fmt: skip
ERROR_COLLECTION = table(
    "error_collection", "Reports in batches.",
    Key("batched", "whole number or {size}", "How many failed items one report has.", _read_batch_size),
)  # fmt: skip
BATCHED = table(
    "batched", "The size of a batch.",
    Key("size", "whole number", "How many failed items one report has.", _batch_size),
)  # fmt: skip
CIRCUIT_BREAKER = table(
    "circuit_breaker", "Hold items back while a service that they use is down; held items wait, none is lost.",
    Key("failure_threshold", "whole number", "The failures in a row that open it; 5 by default.", _count),
    Key("success_threshold", "whole number", "The successes that close it again; 3 by default.", _count),
    Key("timeout", "duration", "How long it stays open; 30s by default.", read.duration, "timeout_seconds"),
    Key("half_open_requests", "whole number", "How many items then test it; 3 by default.", max_parallel),
)  # fmt: skip

FANOUT_TABLES = (
    MAP, INPUT_STEP, PHASE, ERROR_POLICY, RETRY_CONFIG, ERROR_COLLECTION, BATCHED, CIRCUIT_BREAKER
)  # fmt: skip
