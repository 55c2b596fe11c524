"""Translates `map` and `foreach` of a Prodigy file to native maps."""

from __future__ import annotations

import re

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe, plain
from resile.dialects.native import nodes
from resile.dialects.prodigy.expressions import translate_filter
from resile.dialects.prodigy.keys import FOREACH, MAP, PHASE, TIMEOUTS
from resile.dialects.prodigy.variables import BRANCH, StepDraft, Translation, Where, add_defaults
from resile.dialects.reading.diagnostics import Place
from resile.dialects.reading.key_tables import Table, read_mapping
from resile.dialects.reading.values import wrong

FOLDER = ".prodigy"
"""The folder in which Prodigy and its users keep files."""
STEP = "map"
PARALLEL_DEFAULT = 10
REDRIVE_PARALLEL_DEFAULT = 5
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_COMMIT = re.compile(r"\bgit\b[^\n|;&]{0,200}\bcommit\b")
_NULLS = re.compile(r"\s+NULLS\s+(FIRST|LAST)", re.IGNORECASE)
BESIDE_FOREACH = ("do", "parallel", "max_items", "continue_on_error")
"""Keys of `foreach` that may also stand beside it, but in a handler `continue_on_error` beside it is the command's."""
_KINDS_WITH_TIMEOUT = ("claude", "shell")
_TOLERANCE_KEYS = frozenset(("continue_on_failure", "max_failures", "failure_threshold"))
_POLICIES_WITHOUT_NOTICE = ("skip", "stop")
_POLICIES = {"peragent": "agent", "percommand": "command", "hybrid": "both"}


def make_map_step(t: Translation, node: Node, where: Where, policy: Node | None) -> Mapping | None:
    """Translate `map` to a step called `map`."""
    fields = read_mapping(t, node, MAP)
    if not isinstance(node, Mapping):
        return None
    for key in ("input", "agent_template"):
        if key not in node.entries:
            t.report.error("value", f"`map` needs `{key}`", node)
    step = StepDraft(t, node, fields, where, nodes.mapping(node), STEP)
    if "input" in fields:
        step.put("input", t.rewrite_text(fields["input"], where))
    step.copy("json_path", "distinct", "offset", "max_items")
    if "limit" in fields:
        step.put("max_items", fields["limit"], "limit")
    _add_selection(step)
    parallel = _read_fixed_number(step, fields.get("max_parallel"))
    nodes.put(step.out, "max_parallel", parallel or nodes.node_of(PARALLEL_DEFAULT, node))
    if "max_parallel" not in fields:
        nodes.put(step.out, "redrive_parallel", nodes.node_of(REDRIVE_PARALLEL_DEFAULT, node))
    template = fields.get("agent_template")
    items = [] if template is None else read_phase(t, template)
    made = _translate_timed_steps(t, items, _read_timeouts(step), Where(env=where.env, item=STEP))
    if made:
        made[:0] = _add_worktree(step, template or node, made)
    nodes.put(step.out, "steps", nodes.sequence(made, template or node))
    kept = _policy_of(step, policy)
    nodes.put(step.out, "error_policy", _tolerate_failed_items(t, kept, node))
    return nodes.mapping(node, {"id": nodes.word(STEP, node), STEP: step.out})


def _add_worktree(step: StepDraft, template: Node, made: list[Node]) -> list[Node]:
    """Give each item a worktree, as Prodigy does; return the steps to run first.

    Items that neither commit nor run an agent also run outside of a git checkout, in place.
    """
    t, node = step.t, step.node
    commits = any(_makes_commit(part) for part in nodes.walk(template))
    agents = any(isinstance(part, Mapping) and "agent" in part.entries for item in made for part in nodes.walk(item))
    needed = commits or agents
    if not commits:
        where = "" if needed else "in a git checkout "
        message = (
            f"as in Prodigy, {where}each item works in a worktree, and what it does not commit is discarded with it"
        )
        t.report.warning("not-committed", message, template, hint="`commit_required: true` says that a step commits")
    settings = nodes.Part(
        node, isolation="worktree" if needed else "auto", branch=BRANCH, merge=None if not t.names_branches else False
    )
    for key, value in settings.items():
        nodes.put(step.out, key, nodes.node_of(value, node))
    return make_folder_steps(template, node)


def make_folder_steps(root: Node | None, at: Place) -> list[Node]:
    """Make a step that creates the folder `.prodigy`, as Prodigy does when it starts, if a text names a file in it."""
    step = nodes.node_of({"id": FOLDER, "shell": f"mkdir -p {FOLDER}"}, at)
    return [step] if nodes.mentions(root, f"{FOLDER}/") else []


def read_phase(t: Translation, node: Node, known: Table = PHASE, what: str = "a phase") -> list[Node]:
    """Read the steps of a phase: a list, or `commands` of a mapping; steps without a timeout get the phase's."""
    if not isinstance(node, Mapping):
        if not isinstance(node, Sequence):
            wrong(t, node, "a list of steps, or {commands: […]}")
        return nodes.items_of(node)
    fields = read_mapping(t, node, known)
    if "commands" not in fields:
        t.report.error("value", f"{what} needs `commands`", node)
        return []
    timeout = {"timeout": fields["timeout"]} if "timeout" in fields else {}
    return add_defaults(nodes.items_of(fields["commands"]), nodes.mapping(node, timeout).entries)


def _add_selection(step: StepDraft) -> None:
    """Add the keys that select and sort the map's items."""
    t, fields = step.t, step.fields
    if "filter" in fields and (condition := translate_filter(t, fields["filter"])) is not None:
        step.put("filter", condition)
    if "sort_by" not in fields:
        return
    said = fields["sort_by"]
    if any(found.upper() == "FIRST" for found in _NULLS.findall(nodes.text_in(said))):
        message = "`NULLS FIRST` is not run: items without the field come last"
        t.report.error("refused", message, said, hint="leave `NULLS` out")
    order = [part.strip().removeprefix("item.") for part in _NULLS.sub("", nodes.text_in(said)).split(",")]
    step.put("sort_by", nodes.word(", ".join(order), said) if nodes.text_in(said) else said)


def _read_fixed_number(step: StepDraft, node: Node | None) -> Node | None:
    """Read a number, or a variable such as `$N`, whose value `env` of the file must give."""
    if node is None or not isinstance(node, Scalar) or not isinstance(node.value, str):
        return node
    match = _VARIABLE.fullmatch(node.text)
    text = step.where.env.get(match[1], "") if match else node.text
    if match and not text:
        message = f"{describe(node)} is not known before the run"
        step.t.report.error("value", message, node, hint=f"give `{match[1]}` a value under `env`")
        return None
    return (
        nodes.node_of(int(text), node)
        if text.isascii() and text.isdigit() and len(text) < 10
        else nodes.word(text, node)
    )


def _read_timeouts(step: StepDraft) -> dict[str, Node]:
    """Add the timeout of an item to the map; return the timeouts of its commands, by kind of command."""
    t, fields = step.t, step.fields
    given = [fields[key] for key in ("agent_timeout_secs", "timeout_per_agent") if key in fields]
    config: dict[str, Node] = {}
    if "timeout_config" in fields:
        config = read_mapping(t, fields["timeout_config"], TIMEOUTS)
        given += [config["agent_timeout_secs"]] if "agent_timeout_secs" in config else []
    if len(given) > 1:
        t.report.error("conflict", "the time for an item is given twice", given[1], hint="keep one of them")
    commands = config.get("command_timeouts")
    limits: dict[str, Node] = {}
    if isinstance(commands, Mapping):
        limits = {name: value for name, (_, value) in commands.entries.items()}
    elif commands is not None:
        wrong(t, commands, "a mapping of kinds to times")
    _check_policy(t, config, bool(given), bool(limits))
    if "cleanup_grace_period_secs" in config:
        limits["grace"] = config["cleanup_grace_period_secs"]
    if given and (seconds := _read_fixed_number(step, given[0])) is not None:
        nodes.put(step.out, "item_timeout", seconds, step.node)
    return limits


def _check_policy(t: Translation, config: dict[str, Node], has_agent: bool, has_commands: bool) -> None:
    """Refuse timeouts that `timeout_policy` ignores, and a `timeout_action` that does more than let the item fail."""
    said = config.get("timeout_policy")
    if said is not None:
        policy = _POLICIES.get(nodes.text_in(said).lower().replace("_", ""))
        if policy is None:
            wrong(t, said, "one of PerAgent, PerCommand, Hybrid")
        if (policy == "agent" and has_commands) or (policy == "command" and has_agent):
            t.report.error("conflict", f"`timeout_policy` leaves out some of these times: {describe(said)}", said)
    action = config.get("timeout_action")
    if action is not None and nodes.text_in(action).lower().replace("_", "") not in ("dlq", "gracefulterminate"):
        message = (
            f"`timeout_action: {nodes.text_in(action)}` is not run: `on_item_failure` says what a failed item means"
        )
        t.report.error("refused", message, action, hint="Dlq or GracefulTerminate")


def _translate_timed_steps(t: Translation, items: list[Node], limits: dict[str, Node], where: Where) -> list[Node]:
    """Translate the steps of an item; `limits` are the timeouts from `command_timeouts`, and `grace`."""
    made: list[Node] = []
    kinds: dict[str, int] = {}
    left = {name: value for name, value in limits.items() if name != "grace"}
    for item in items:
        kind = next((key for key in _KINDS_WITH_TIMEOUT if isinstance(item, Mapping) and key in item.entries), "")
        numbered = f"{kind}_{kinds.get(kind, 0)}"
        kinds[kind] = kinds.get(kind, 0) + 1
        limit = limits.get(numbered, limits.get(kind))
        for name in (numbered, kind):
            left.pop(name, None)
        made += add_defaults([item], nodes.mapping(item, {} if limit is None else {"timeout": limit}).entries)
    for name, value in left.items():
        if name in _KINDS_WITH_TIMEOUT:
            t.report.notice("command-timeout", f"no command of the items is of the kind `{name}`", value)
        else:
            hint = "`shell`, `claude`, or `claude_0`"
            t.report.error("value", f"no command of the items is `{name}`", value, hint=hint)
    result = t.translate_steps(made, where)
    for step in result if "grace" in limits else ():
        if isinstance(step, Mapping):
            nodes.put(step, "grace", limits["grace"])
    return result


def _makes_commit(node: Node) -> bool:
    """Does a step make a commit, or require one? Then its item needs a worktree."""
    if not isinstance(node, Mapping):
        return False
    said = nodes.value_of(node, "commit_required")
    return (said is not None and plain(said) is True) or bool(
        _COMMIT.search(nodes.text_in(nodes.value_of(node, "shell")))
    )


def _policy_of(step: StepDraft, policy: Node | None) -> Node | None:
    """The error policy of the map: its own, or that of the file; with the retries of `retry_on_failure`."""
    t, fields, node = step.t, step.fields, step.node
    if "error_policy" in fields and policy is not None:
        message = "`error_policy` stands here and at the top of the file"
        t.report.error("conflict", message, step.key("error_policy"), hint="keep one")
    kept = fields.get("error_policy", policy)
    retries = fields.get("retry_on_failure")
    if retries is None or not (kept is None or isinstance(kept, Mapping)):
        return kept
    count = plain(retries)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        wrong(t, retries, "a whole number from 0 on")
        return kept
    config = nodes.mapping(retries, {"max_attempts": nodes.node_of(count + 1, retries)})
    entries = dict(kept.entries) if kept is not None else {}
    if "retry_config" in entries:
        t.report.error("conflict", "`retry_on_failure` and `retry_config` say the same thing", retries)
    return Mapping({**entries, "retry_config": (nodes.word("retry_config", retries), config)}, node.line, node.column)


def _tolerate_failed_items(t: Translation, policy: Node | None, node: Mapping) -> Node:
    """Add `continue_on_failure` to an error policy without limits: in Prodigy failed items do not fail the map."""
    entries = policy.entries if isinstance(policy, Mapping) else {}
    if (policy is not None and not isinstance(policy, Mapping)) or not _TOLERANCE_KEYS.isdisjoint(entries):
        return policy or node
    if policy is None or nodes.text_in(nodes.value_of(policy, "on_item_failure")) not in _POLICIES_WITHOUT_NOTICE:
        message = "as in Prodigy, items that stay failed become dead letters and do not fail the workflow"
        hint = "`continue_on_failure: false`, `max_failures` and `failure_threshold` make them count"
        t.report.notice("tolerated", message, policy or node, hint=hint)
    result = Mapping(dict(entries), node.line, node.column)
    nodes.put(result, "continue_on_failure", nodes.node_of(True, node), node)
    return result


def add_foreach(step: StepDraft) -> bool:
    """Add the action of `foreach` in each of its spellings; return False if it is incomplete."""
    t, fields, where, node = step.t, step.fields, step.where, step.fields["foreach"]
    given: dict[str, Node] = read_mapping(t, node, FOREACH) if isinstance(node, Mapping) else {"foreach": node}
    for key in BESIDE_FOREACH if not where.in_handler else BESIDE_FOREACH[:-1]:
        if key in fields and key in given:
            message = f"`{key}` stands in `foreach` and beside it"
            t.report.error("conflict", message, fields[key], hint="keep one of them")
        elif key in fields:
            given[key] = fields[key]
    sources = [given[key] for key in ("foreach", "input", "items") if key in given]
    if len(sources) != 1 or "do" not in given:
        t.report.error("value", "`foreach` needs its items and `do`", node, hint="foreach: {foreach: […], do: […]}")
        return False
    items = sources[0]
    # A list has the items; a text is a command that prints them.
    rewrite = t.rewrite_text if isinstance(items, Sequence) else t.rewrite_shell
    parallel = _parallel_limit_of(given.get("parallel"), node)
    inside = nodes.Part(node, input=rewrite(items, where), max_parallel=parallel, max_items=given.get("max_items"))
    goes_on = given.get("continue_on_error", nodes.node_of(False, node))
    if plain(goes_on) is False:
        inside["error_policy"] = nodes.mapping(node, {"continue_on_failure": nodes.node_of(False, goes_on)})
    elif plain(goes_on) is True:
        inside["error_policy"] = nodes.mapping(node, {"continue_on_failure": nodes.node_of(True, goes_on)})
    else:
        wrong(t, goes_on, "true or false")
    # Steps inside `do` have a scope of their own for names, and can refer to the steps around it.
    inner = replace(where, item=step.name, prefix="do", count=0, taken={}, last={}, kept={}, is_top=True)
    inside["steps"] = nodes.sequence(t.translate_steps(nodes.items_of(given["do"]), inner), given["do"])
    nodes.put(step.out, "map", inside.to_node(), node)
    return True


def _parallel_limit_of(node: Node | None, at: Node) -> Node:
    if node is None or plain(node) is False:
        return nodes.node_of(1, at)
    return nodes.node_of(PARALLEL_DEFAULT, node) if plain(node) is True else node
