"""The Prodigy front end: it translates a Prodigy file to a native tree, which the native front end reads.

    tree of the user's file --translate--> native tree with the same positions --compile_part--> Workflow

    [steps]                              commands | steps | tasks: [steps]
    setup -> commands -> map -> reduce -> merge     one list, in this order; the map is the step `map`

If texts name files in `.prodigy`, the first step creates that folder, as Prodigy does.

The translation follows what a file evidently means, even where Prodigy itself did something else; the compatibility
page lists the decisions. Unsupported keys are refused by name, at their position.
"""

from __future__ import annotations

from os.path import basename, splitext

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe, plain
from resile.dialects.native.compile import compile_part
from resile.dialects.native.context import NativeReading
from resile.dialects.native.nodes import (
    Part,
    items_of,
    mapping,
    mentions,
    node_of,
    put,
    sequence,
    text_in,
    value_of,
    word,
)
from resile.dialects.prodigy.capture import (
    MULTILINES,
    SOURCES,
    add_capture,
    append_on_success,
    find_names,
    make_cutting_step,
)
from resile.dialects.prodigy.environment import choose_profile, translate_environment, translate_secrets
from resile.dialects.prodigy.keys import CAPTURED, SETUP, TABLES, WORKFLOW
from resile.dialects.prodigy.maps import make_folder_steps, make_map_step, read_phase
from resile.dialects.prodigy.step import translate_steps
from resile.dialects.prodigy.variables import BRANCH, Translation, Where
from resile.dialects.reading.context import Source
from resile.dialects.reading.diagnostics import Diagnostics, did_you_mean
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import wrong
from resile.model.workflow import Workflow

NAME = "prodigy"
__all__ = ["TABLES", "compile_prodigy"]

_LISTS = ("commands", "steps", "tasks")
_KEYS_WITH_DURATIONS = frozenset(("error_policy", "retry_config", "retry", "retry_defaults", "circuit_breaker"))
_POLICY = ("on_item_failure", "continue_on_failure", "max_failures", "failure_threshold", "error_collection")
_CAPTURED_FOR_MERGE = {"merge_branch": "git branch --show-current", "merge_worktree": "pwd"}
_HAS_ITEMS = "${map.total} > 0"


def compile_prodigy(source: Source, root: Node, report: Diagnostics) -> Workflow | None:
    """Compile a Prodigy file; return None if it has an error."""
    native = _translate(source, root, report)
    if native is None or report.errors:
        return None
    reading = NativeReading(source, report)
    reading.errexit = False
    workflow = compile_part(reading, native)
    # What changed in native files is no news in a Prodigy file.
    report.warnings = [finding for finding in report.warnings if finding.code != "since-0.2"]
    return None if workflow is None else replace(workflow, dialect=NAME)


def _translate(source: Source, root: Node, report: Diagnostics) -> Mapping | None:
    """Translate a Prodigy file to a native tree, and report unsupported parts."""
    if isinstance(root, Sequence):
        root = mapping(root, {"commands": root})
    if not isinstance(root, Mapping):
        report.error("type", f"expected a list of steps or a mapping, not {describe(root)}", root)
        return None
    root = _documented_form_of(root)
    t = Translation(source, report, translate_steps)
    fields = read_mapping(t, root, WORKFLOW)
    find_names(t, root)
    t.workflow_name = text_in(fields.get("name", fields.get("description"))) or splitext(basename(source.file))[0]
    t.retries = fields.get("retry_defaults")
    _check_mode(t, root, fields)
    where = Where()
    secrets = mapping(root)
    translate_secrets(t, fields.get("secrets"), secrets)
    profile = choose_profile(t, fields.get("profiles"), source.profile)
    env = translate_environment(t, fields.get("env"), profile, secrets, where)
    made = _translate_phases(t, fields, root, where)
    folder = make_folder_steps(root, root) if made else []
    inputs = {name: {"required": True} if needed else {"type": "text"} for name, needed in t.inputs.items()}
    return Part(
        root,
        resile=1,
        ir={"condition_errors": "skip"},
        name=fields.get("name", fields.get("description")),
        env=env if env.entries else None,
        secrets=secrets if secrets.entries else None,
        env_files=fields.get("env_files"),
        failure_handlers=t.handlers or None,
        handlers=_translate_handlers(t, fields.get("handlers"), where),
        inputs=inputs or None,
        steps=[*folder, *t.before_all, *made],
    ).to_node()


def _translate_handlers(t: Translation, node: Node | None, where: Where) -> Node | None:
    """Translate the lists of steps that `custom:NAME` names; they run for an item."""
    if not isinstance(node, Mapping):
        return node
    inner = replace(where.inner("on_failure", in_handler=True), item="map")
    made: dict[str, tuple[Scalar, Node]] = {
        name: (key, sequence(t.translate_steps(items_of(value), inner), value))
        for name, (key, value) in node.entries.items()
    }
    return Mapping(made, node.line, node.column)


def _documented_form_of(root: Mapping, in_policy: bool = False) -> Mapping:
    """Rewrite values from the forms of Prodigy's own parser to those of its documentation.

        !custom NAME            custom:NAME           as `on_item_failure`
        {secs: 1, nanos: 0}     1000ms                in error policies, retries and breakers

    The YAML parser has already turned `!word VALUE` into `word: VALUE` (formats/yaml.py).
    """
    entries: dict[str, tuple[Scalar, Node]] = {}
    for name, (key, value) in root.entries.items():
        custom = value_of(value, "custom") if isinstance(value, Mapping) and name == "on_item_failure" else None
        if isinstance(custom, Scalar):
            value = word(f"custom:{custom.text}", value)
        entries[name] = (key, _rewrite(value, in_policy or name in _KEYS_WITH_DURATIONS))
    return Mapping(entries, root.line, root.column)


def _rewrite(node: Node, in_policy: bool) -> Node:
    """Rewrite a value; durations occur in policies only."""
    if isinstance(node, Sequence):
        return sequence([_rewrite(item, in_policy) for item in node.items], node)
    if isinstance(node, Scalar):
        return node
    return (_duration_of(node) if in_policy else None) or _documented_form_of(node, in_policy)


def _duration_of(node: Mapping) -> Scalar | None:
    """The duration of `{secs, nanos}`, or None for another mapping."""
    if not node.entries or not node.entries.keys() <= {"secs", "nanos"}:
        return None
    parts = plain(node)
    seconds, nanoseconds = parts.get("secs", 0), parts.get("nanos", 0)
    if type(seconds) is not int or type(nanoseconds) is not int or min(seconds, nanoseconds) < 0:
        return None
    return word(f"{seconds * 1000 + nanoseconds // 1_000_000}ms", node)


def _check_mode(t: Translation, root: Mapping, fields: dict[str, Node]) -> None:
    """Check that the mode is known and fits the other keys."""
    mode = fields.get("mode")
    known = ("standard", "sequential", "mapreduce")
    said = text_in(mode)
    if mode is not None and said not in known:
        wrong(t, mode, f"one of {', '.join(known)}", did_you_mean(said, known))
    if said == "mapreduce" and "map" not in fields:
        t.report.error("value", "`mode: mapreduce` needs `map`", root)
    if mode is not None and said in known[:2] and "map" in fields:
        t.report.error("conflict", f"`mode: {said}` has no `map`", root.entries["map"][0], hint="mode: mapreduce")
    if "map" not in fields:
        for key in ("error_policy", "reduce", *_POLICY):
            if key in fields:
                t.report.error("conflict", f"`{key}` has no meaning without `map`", root.entries[key][0])


def _translate_phases(t: Translation, fields: dict[str, Node], root: Mapping, where: Where) -> list[Node]:
    """Translate all phases into one list of steps."""
    lists = [key for key in _LISTS if key in fields]
    if len(lists) > 1:
        message = f"`{lists[1]}` and `{lists[0]}` say the same thing"
        t.report.error("conflict", message, root.entries[lists[1]][0])
    made: list[Node] = []
    if "setup" in fields:
        made += _translate_setup(t, fields["setup"], where)
    for key in lists[:1]:
        if not isinstance(fields[key], Sequence):
            wrong(t, fields[key], "a list of steps")
        where.prefix, where.count = "step", 0
        made += translate_steps(t, items_of(fields[key]), where)
        if not made:
            t.report.warning("empty", f"`{key}` has no steps: nothing runs", fields[key])
            made = [node_of({"id": "nothing", "noop": True}, fields[key])]
    if "map" in fields:
        t.names_branches = any(mentions(fields.get(key), f"{BRANCH}-") for key in ("reduce", "merge"))
        step = make_map_step(t, fields["map"], where, _policy_of(fields, root))
        made += [] if step is None else [step]
        where.taken["map"] = 1
    for key in ("reduce", "merge"):
        if key in fields:
            where.prefix, where.count = key, 0
            steps = translate_steps(t, read_phase(t, fields[key]), where)
            made += _make_merge_steps(t, fields[key]) if key == "merge" else []
            made += steps if key == "merge" else _skip_without_items(t, fields[key], steps)
    if not made and not t.report.errors:
        t.report.error("value", "there are no steps", root, hint="`commands` is a list of steps")
    return made


def _skip_without_items(t: Translation, node: Node, steps: list[Node]) -> list[Node]:
    """Let the steps of `reduce` be skipped where the map has no items, as Prodigy skips the phase."""
    t.report.notice("no-items", "as in Prodigy, `reduce` is skipped where the map has no items", node)
    for step in steps:
        if isinstance(step, Mapping):
            own = text_in(value_of(step, "when"))
            put(step, "when", word(f"{_HAS_ITEMS} && ({own})" if own else _HAS_ITEMS, step), step)
    return steps


def _make_merge_steps(t: Translation, node: Node) -> list[Node]:
    """Make the steps that capture the branch and the folder for a merge that names them."""
    if "merge_branch" in t.merged:
        message = "the work is done in place: `merge.source_branch` and `merge.target_branch` are the current branch"
        t.report.notice("merge", message, node)
    return [
        node_of({"id": name.replace("_", " "), "shell": command, "capture": name}, node)
        for name, command in _CAPTURED_FOR_MERGE.items()
        if name in t.merged
    ]


def _policy_of(fields: dict[str, Node], root: Mapping) -> Node | None:
    """The error policy of the file; keys at the top of the file override those inside it."""
    policy = fields.get("error_policy")
    over = {key: root.entries[key] for key in _POLICY if key in fields}
    if not over or (policy is not None and not isinstance(policy, Mapping)):
        return policy
    entries = policy.entries if policy is not None else {}
    at = policy or next(iter(over.values()))[1]
    return Mapping({**entries, **over}, at.line, at.column)


def _translate_setup(t: Translation, node: Node, where: Where) -> list[Node]:
    """Translate the steps of `setup`."""
    where.prefix = "setup"
    items = read_phase(t, node, SETUP, "`setup`")
    timeout, captured = (
        value_of(node, key) if isinstance(node, Mapping) else None for key in ("timeout", "capture_outputs")
    )
    if timeout is not None:
        message = "`timeout` of `setup` is taken as the time for each of its steps that has no own"
        t.report.notice("setup-timeout", message, timeout)
    made = translate_steps(t, items, where)
    if captured is not None:
        _capture_outputs(t, captured, made)
    return made


def _capture_outputs(t: Translation, node: Node, made: list[Node]) -> None:
    """Let the steps of `setup` capture their outputs under the names that `capture_outputs` gives them by index."""
    if not isinstance(node, Mapping):
        wrong(t, node, "a mapping of names to places")
        return
    own = [
        step for step in made if isinstance(step, Mapping) and not text_in(value_of(step, "capture")).startswith("git_")
    ]
    for name, (key, value) in node.entries.items():
        fields: dict[str, Node] = {"command_index": value}
        if isinstance(value, Mapping):
            fields = read_mapping(t, value, CAPTURED)
        index = fields.get("command_index")
        place = index.value if isinstance(index, Scalar) else None
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(own):
            wrong(t, index or value, f"the place of a step of `setup`, from 0 to {max(len(own) - 1, 0)}")
            continue
        form = _form_of(t, fields)
        step = own[place]
        if form:
            add_capture(step, key, {name: form})
        else:
            whole = f"output_{key.line}_{key.column}"
            add_capture(step, key, {whole: "text", f"{whole}_err": "stderr"})
            append_on_success(step, make_cutting_step(t, name, whole, fields, key))
        t.declare(name, form or "text", text_in(value_of(step, "id")))


def _form_of(t: Translation, fields: dict[str, Node]) -> str:
    """The native form of a captured output; empty if a further step cuts it out."""
    source, lines = fields.get("source"), fields.get("multiline")
    for given, known in ((source, SOURCES), (lines, MULTILINES)):
        if given is not None and text_in(given) not in known:
            wrong(t, given, f"one of {', '.join(known)}")
    cut = fields.keys() & {"pattern", "json_path", "default", "max_size"}
    if cut or text_in(source) == "both" or text_in(lines) in ("join", "first_line", "last_line"):
        return ""
    if text_in(source) == "stderr":
        return "stderr"
    return "lines" if text_in(lines) == "array" else "text"
