"""Translates one step of a Prodigy file to native steps; failures.py translates its failure keys.

label -> action -> keys with the same meaning -> capture -> steps after a success, in this order:
    files it made, its output file, its validation, `on_success`, `on_exit_code: {0: …}`
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe, plain
from resile.dialects.native.failures.commands import attach_dangling
from resile.dialects.native.nodes import items_of, mapping, node_of, put, sequence, text_in, value_of, word
from resile.dialects.prodigy.actions import ACTIONS, add_write_file, translate_analysis, translate_prompt
from resile.dialects.prodigy.capture import KEPT_AS, add_captures, make_capture_steps
from resile.dialects.prodigy.expressions import translate_condition
from resile.dialects.prodigy.failures import add_exit_codes, add_failure_keys
from resile.dialects.prodigy.git_lists import START, Use, make_head_step, make_steps
from resile.dialects.prodigy.keys import METADATA, STEP
from resile.dialects.prodigy.maps import BESIDE_FOREACH, add_foreach
from resile.dialects.prodigy.variables import StepDraft, Translation, Where
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import name_problem
from resile.errors import shorten
from resile.model.limits import NAME_CHARACTERS_MAX

_FLAGS = ("allow_failure", "ignore_errors")
_LABELS = ("id", "name", "description")


def translate_steps(t: Translation, items: list[Node], where: Where) -> list[Node]:
    """Translate a list of steps; entries with nothing but `on_failure` belong to the step before them."""
    result: list[Node] = []
    steps: list[tuple[list[Node], list[Use]]] = []
    for item in attach_dangling(t, items):
        mark = len(t.git_uses)
        made = translate_step(t, item, where)
        uses = t.git_uses[mark:]
        del t.git_uses[mark:]
        steps.append((made, uses))
    for number, (made, uses) in enumerate(steps):
        following = steps[number + 1][1] if number + 1 < len(steps) else []
        if any(use.root == "step" for use in following):
            result.append(make_head_step(f"git_before_{following[0].capture}", following[0].node))
        if uses:
            result += _make_git_steps(t, uses, number)
        result += made
    return result


def _make_git_steps(t: Translation, uses: list[Use], number: int) -> list[Node]:
    """Make the steps that capture what earlier steps changed in git, for the step with this number in its list."""
    first = next((use for use in uses if use.root == "step"), None)
    if first is not None and not number:
        message = f"`${{step.{first.field}}}` is about the step before, and this is the first of its list"
        t.report.error("refused", message, first.node, hint="`${workflow.…}` is about the whole run")
    if any(use.root != "step" for use in uses) and not t.has_git_start:
        t.has_git_start = True
        t.before_all.append(make_head_step(START, uses[0].node))
    return make_steps(uses, f"git_before_{uses[0].capture}")


def translate_step(t: Translation, node: Node, where: Where) -> list[Node]:
    """Translate one item of a list to native steps: one, or two if it has a command and a prompt."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        is_prompt = where.is_top or node.text.startswith("/")
        text = f"/{node.text.lstrip('/')}" if is_prompt else node.text
        node = mapping(node, {"claude" if is_prompt else "shell": word(text, node)})
    if not isinstance(node, Mapping):
        t.report.error("type", f"expected a step, not {describe(node)}", node)
        return []
    given = [action for action in ACTIONS if action in node.entries]
    if given == ["shell", "claude"] and not where.is_top:
        return [made for part in _split_command_and_prompt(node) for made in translate_step(t, part, where)]
    return _translate_single(t, node, where, given)


def _split_command_and_prompt(node: Mapping) -> list[Mapping]:
    """Split a step with a command and a prompt into two; keys that only one can have go to the second."""
    last = ("capture", "capture_output", "commit_required", "on_success", "id", "name")
    first = {key: entry for key, entry in node.entries.items() if key not in ("claude", *last)}
    second = {key: entry for key, entry in node.entries.items() if key != "shell"}
    return [Mapping(first, node.line, node.column), Mapping(second, node.line, node.column)]


def _translate_single(t: Translation, node: Mapping, where: Where, given: list[str]) -> list[Node]:
    """Translate a step with one action."""
    fields = read_mapping(t, node, STEP)
    if len(given) > 1:
        second = node.entries[given[1]][0]
        t.report.error("action", f"a step does one thing: `{given[0]}` or `{given[1]}`", second)
        return []
    if "test" in fields:
        return _translate_test(t, node, where)
    for key in BESIDE_FOREACH[:-1]:
        if key in fields and "foreach" not in fields:
            t.report.error("conflict", f"`{key}` has no meaning without `foreach`", node.entries[key][0])
    metadata = read_mapping(t, fields["metadata"], METADATA) if "metadata" in fields else {}
    name = _choose_name(node, where)
    here = replace(where, env=_environment_of(t, fields, metadata, where))
    out = mapping(node, {"id": word(name, value_of(node, "id") or value_of(node, "name") or node)})
    step = StepDraft(t, node, fields, here, out, name, metadata)
    kind = _add_action(step, given[0] if given else "")
    if not kind:
        return []
    _copy_settings(step)
    inner = here.inner("on_success")
    if where.is_top:
        inner.last |= {kind: name, "any": name}
    add_captures(step)
    add_failure_keys(step, _find_tolerating_key(step))
    _remember(node, where, kind, name)
    _add_success_steps(step, inner)
    return [out]


def _environment_of(t: Translation, fields: dict[str, Node], metadata: dict[str, Node], where: Where) -> dict[str, str]:
    """The fixed values of a step's environment: those around it and its own."""
    fixed = dict(where.env)
    for given in (metadata.get("env"), fields.get("env")):
        for name, (_, value) in given.entries.items() if isinstance(given, Mapping) else ():
            fixed |= {name: t.rewrite_fixed(value, where)} if isinstance(value, Scalar) else {}
    return fixed


def _translate_test(t: Translation, node: Mapping, where: Where) -> list[Node]:
    """Translate `test: {command, on_failure}`, the older form of a command with its handler."""
    inner = node.entries["test"][1]
    rest = {key: entry for key, entry in node.entries.items() if key != "test"}
    if not isinstance(inner, Mapping) or not inner.entries.keys() <= {"command", "on_failure"}:
        t.report.error("value", "`test` takes `command` and `on_failure`", inner, hint="write it as `shell`")
        return []
    rest |= {"shell" if key == "command" else key: entry for key, entry in inner.entries.items()}
    return translate_step(t, Mapping(rest, node.line, node.column), where)


def _choose_name(node: Mapping, where: Where) -> str:
    """Choose a unique name for a step: its label if that is a valid name, else its number."""
    where.count += 1
    seek = value_of(node, "goal_seek")
    labels = [value_of(node, key) for key in _LABELS]
    labels += [value_of(seek, "goal")] if isinstance(seek, Mapping) else []
    texts = [" ".join(text_in(label).split()).replace("|", "/") for label in labels]
    name = next(filter(None, texts), "")[: NAME_CHARACTERS_MAX - 10]
    if not name or name == "end" or name_problem(name) or ('"' in name and "'" in name):
        name = f"{where.prefix}-{where.count}"
    first = name
    while name in where.taken:
        where.taken[first] += 1
        name = f"{first} ({where.taken[first]})"
    where.taken[name] = 1
    return name


def _add_action(step: StepDraft, action: str) -> str:
    """Add the action to the native step; return its kind, or an empty text after a report."""
    match action:
        case "shell":
            step.put("shell", step.t.rewrite_shell(step.fields["shell"], step.where))
        case "claude":
            step.put("agent", translate_prompt(step, step.fields["claude"]), "claude")
        case "analyze":
            step.put("agent", translate_analysis(step), "analyze")
            return "claude"
        case "write_file":
            add_write_file(step)
        case "foreach":
            return "foreach" if add_foreach(step) else ""
        case "goal_seek":
            from resile.dialects.prodigy.validation import add_goal_seek

            return add_goal_seek(step)
        case _:
            return _add_implied_action(step)
    return action


def _add_implied_action(step: StepDraft) -> str:
    """Add the action of a step without one: its check, or a slash command written as a name."""
    t, check, label = step.t, step.fields.get("validate"), step.fields.get("name")
    if check is not None:
        if isinstance(check, Scalar):
            step.put("validate", t.rewrite_shell(check, step.where))
        else:
            put(step.out, "noop", node_of(True, check))
        return "validate"
    if label is not None and text_in(label):
        message = "a step with just a name is taken as a slash command"
        t.report.notice("slash-command", message, label, hint=f"write it as `claude: /{shorten(text_in(label))}`")
        put(step.out, "agent", translate_prompt(step, word("/" + text_in(label).lstrip("/"), label)), label)
        return "claude"
    if step.node.entries.keys() <= STEP.keys.keys():
        # An unknown key may have been meant as the action, and is already reported.
        t.report.error("action", "this step does nothing", step.node, hint=did_you_mean("", ACTIONS, "actions"))
    return ""


def _copy_settings(step: StepDraft) -> None:
    """Copy the keys that mean the same in a native file."""
    t, node, fields, where, out = step.t, step.node, step.fields, step.where, step.out
    for key in ("timeout", "commit_required"):
        if key in step.metadata:
            put(out, key, step.metadata[key])
    step.copy("timeout", "commit_required")
    for key, native in (("working_dir", "working_dir"), ("output", "outputs")):
        if key in fields:
            step.put(native, t.rewrite_text(fields[key], where), key)
    env = mapping(node, t.computed if where.is_top else {})
    for given in (step.metadata.get("env"), fields.get("env")):
        written = None if given is None else t.rewrite_text(given, where)
        if isinstance(written, Mapping):
            env.entries |= written.entries
        elif written is not None:
            put(out, "env", written)
    if env.entries:
        put(out, "env", env, node)
    if "when" in fields and (condition := translate_condition(t, fields["when"], where)) is not None:
        step.put("when", condition)


def _find_tolerating_key(step: StepDraft) -> Scalar | None:
    """Find the key by which a step tolerates its failure."""
    entries, own = step.node.entries, step.metadata.get("continue_on_error")
    words = _FLAGS if step.where.in_handler or "foreach" in entries else (*_FLAGS, "continue_on_error")
    given = [entries[key] for key in words if key in entries]
    if own is not None:
        given.append((word("metadata", own), own))
    return next((key for key, value in given if plain(value) is True), None)


def _remember(node: Mapping, where: Where, kind: str, name: str) -> None:
    """Remember the step to which `shell.output`, `claude.output` and `CAPTURED_OUTPUT` refer in later texts."""
    said = value_of(node, "capture_output")
    if said is not None and plain(said) is False:
        return
    where.last |= {kind: name, "any": name}
    if (said is not None and plain(said) is True) or text_in(value_of(node, "capture")) in KEPT_AS:
        where.kept |= {kind: name, "any": name}


def _add_success_steps(step: StepDraft, inner: Where) -> None:
    """Add the steps that follow a success."""
    t, fields = step.t, step.fields
    after = make_capture_steps(step, inner)
    if "validate" in fields and "validate" not in step.out.entries:
        from resile.dialects.prodigy.validation import make_validation_steps

        after += make_validation_steps(step, inner)
    if isinstance(value_of(step.node, "goal_seek"), Mapping):
        from resile.dialects.prodigy.validation import make_goal_steps

        after += make_goal_steps(step, inner)
    if "on_success" in fields:
        after += translate_steps(t, items_of(fields["on_success"]), inner)
    after += add_exit_codes(step, inner)
    if after:
        at = step.key("on_success") if "on_success" in fields else step.node
        put(step.out, "on_success", sequence(after, at), at)
