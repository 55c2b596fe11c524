"""Translates one step of a Prodigy file to native steps; failures.py translates its failure keys.

label -> action -> keys with the same meaning -> capture -> steps after a success, in this order:
    files it made, its output file, its validation, `on_success`, `on_exit_code: {0: …}`
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe
from resile.dialects.native.failures.commands import attach_dangling
from resile.dialects.native.nodes import flag, items_of, mapping, put, put_in_step, sequence, text_in, value_of, word
from resile.dialects.prodigy.actions import ACTIONS, translate_analysis, translate_prompt, translate_write_file
from resile.dialects.prodigy.capture import add_captures, make_capture_steps
from resile.dialects.prodigy.expressions import NotAnExpression, quote_text, to_javascript
from resile.dialects.prodigy.failures import add_failure_keys, translate_exit_codes
from resile.dialects.prodigy.keys import METADATA, STEP
from resile.dialects.prodigy.maps import BESIDE_FOREACH, translate_foreach
from resile.dialects.prodigy.variables import Translation, Where
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import name_problem
from resile.errors import shorten
from resile.languages.references import is_one_reference
from resile.model.limits import NAME_CHARACTERS_MAX

_FLAGS = ("allow_failure", "ignore_errors")
_LABELS = ("id", "name", "description")


def translate_steps(t: Translation, items: list[Node], where: Where) -> list[Node]:
    """Translate a list of steps; entries with nothing but `on_failure` belong to the step before them."""
    result: list[Node] = []
    for item in attach_dangling(t, items):
        result += translate_step(t, item, where)
    return result


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
    kind = _add_action(t, node, fields, here, out, name, given[0] if given else "")
    if not kind:
        return []
    _copy_settings(t, node, fields, metadata, here, out)
    inner = here.inner("on_success")
    if where.is_top:
        inner.last |= {kind: name, "any": name}
    add_captures(t, node, fields, here, out, name)
    add_failure_keys(t, node, fields, metadata, here, out, _find_tolerating_key(node, metadata, here))
    _remember(node, where, kind, name)
    _add_success_steps(t, node, fields, inner, out)
    return [out]


def _environment_of(t: Translation, fields: dict[str, Node], metadata: dict[str, Node], where: Where) -> dict[str, str]:
    """The fixed values of a step's environment: those around it and its own."""
    fixed = where.env
    for given in (metadata.get("env"), fields.get("env")):
        if isinstance(given, Mapping):
            values = {name: value for name, (_, value) in given.entries.items() if isinstance(value, Scalar)}
            fixed = {**fixed, **{name: t.rewrite_fixed(value, where) for name, value in values.items()}}
    return fixed


def _translate_test(t: Translation, node: Mapping, where: Where) -> list[Node]:
    """Translate `test: {command, on_failure}`, the older form of a command with its handler."""
    inner = node.entries["test"][1]
    rest = {key: entry for key, entry in node.entries.items() if key != "test"}
    if not isinstance(inner, Mapping) or not inner.entries.keys() <= {"command", "on_failure"}:
        t.report.error("value", "`test` takes `command` and `on_failure`", inner, hint="write it as `shell`")
        return []
    for key, (place, value) in inner.entries.items():
        rest["shell" if key == "command" else key] = (place, value)
    return translate_step(t, Mapping(rest, node.line, node.column), where)


def _choose_name(node: Mapping, where: Where) -> str:
    """Choose a unique name for a step: its label if that is a valid name, else its number."""
    where.count += 1
    name = ""
    for key in _LABELS:
        name = name or " ".join(text_in(value_of(node, key)).split()).replace("|", "/")[: NAME_CHARACTERS_MAX - 10]
    seek = value_of(node, "goal_seek")
    if not name and isinstance(seek, Mapping):
        name = " ".join(text_in(value_of(seek, "goal")).split()).replace("|", "/")[: NAME_CHARACTERS_MAX - 10]
    if not name or name == "end" or name_problem(name) or ('"' in name and "'" in name):
        name = f"{where.prefix}-{where.count}"
    first = name
    while name in where.taken:
        where.taken[first] += 1
        name = f"{first} ({where.taken[first]})"
    where.taken[name] = 1
    return name


def _add_action(
    t: Translation, node: Mapping, fields: dict[str, Node], where: Where, out: Mapping, name: str, action: str
) -> str:
    """Add the action to the native step; return its kind, or an empty text after a report."""
    match action:
        case "shell":
            put(out, "shell", t.rewrite_shell(fields["shell"], where), node.entries["shell"][0])
        case "claude":
            put(out, "agent", translate_prompt(t, fields["claude"], fields, where), node.entries["claude"][0])
        case "analyze":
            put(out, "agent", translate_analysis(t, fields["analyze"], where), node.entries["analyze"][0])
            return "claude"
        case "write_file":
            translate_write_file(t, fields["write_file"], where, out, node.entries["write_file"][0])
        case "foreach":
            return "foreach" if translate_foreach(t, fields, where, out, name) else ""
        case "goal_seek":
            from resile.dialects.prodigy.validation import translate_goal_seek

            return translate_goal_seek(t, fields["goal_seek"], where, out)
        case _:
            return _add_implied_action(t, node, fields, where, out)
    return action


def _add_implied_action(t: Translation, node: Mapping, fields: dict[str, Node], where: Where, out: Mapping) -> str:
    """Add the action of a step without one: its check, or a slash command written as a name."""
    if "validate" in fields:
        check = fields["validate"]
        if isinstance(check, Scalar):
            put(out, "validate", t.rewrite_shell(check, where), node.entries["validate"][0])
        else:
            put(out, "noop", flag(True, check))
        return "validate"
    if "name" in fields and text_in(fields["name"]):
        label = fields["name"]
        message = "a step with just a name is taken as a slash command"
        t.report.notice("slash-command", message, label, hint=f"write it as `claude: /{shorten(text_in(label))}`")
        command = word("/" + text_in(label).lstrip("/"), label)
        put(out, "agent", translate_prompt(t, command, fields, where), label)
        return "claude"
    if node.entries.keys() <= STEP.keys.keys():
        # An unknown key may have been meant as the action, and is already reported.
        t.report.error("action", "this step does nothing", node, hint=did_you_mean("", ACTIONS, "actions"))
    return ""


def _copy_settings(
    t: Translation, node: Mapping, fields: dict[str, Node], metadata: dict[str, Node], where: Where, out: Mapping
) -> None:
    """Copy the keys that mean the same in a native file."""
    for key in ("timeout", "commit_required"):
        if key in fields:
            put(out, key, fields[key], node.entries[key][0])
        elif key in metadata:
            put(out, key, metadata[key])
    for key, native in (("working_dir", "working_dir"), ("output", "outputs")):
        if key in fields:
            put(out, native, t.rewrite_text(fields[key], where), node.entries[key][0])
    env = Mapping({}, node.line, node.column)
    if where.is_top:
        env.entries |= mapping(node, t.computed).entries
    for given in (metadata.get("env"), fields.get("env")):
        written = None if given is None else t.rewrite_data(given, where)
        if isinstance(written, Mapping):
            env.entries |= written.entries
        elif written is not None:
            put(out, "env", written)
    if env.entries:
        put(out, "env", env, node)
    if "when" in fields:
        condition = translate_condition(t, fields["when"], where)
        if condition is not None:
            put(out, "when", condition, node.entries["when"][0])


def translate_condition(t: Translation, node: Node, where: Where) -> Node | None:
    """Translate a condition to an expression of the native file."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return node

    def name_value(path: str) -> str:
        """The reference to a variable, or its fixed value as a literal."""
        found = t.reference_for(path, node, where, False)
        if found is None:
            return f"${{{path}}}"
        return found if is_one_reference(found) else quote_text(found)

    try:
        return word(to_javascript(node.text, name_value), node)
    except NotAnExpression as problem:
        hint = "such as: ${count} > 3 && ${target} == 'release'"
        t.report.error("expression", f"{describe(node)} is no expression: {problem}", node, hint=hint)
        return None


def _find_tolerating_key(node: Mapping, metadata: dict[str, Node], where: Where) -> Scalar | None:
    """Find the key by which a step tolerates its failure."""
    words = _FLAGS if where.in_handler or "foreach" in node.entries else (*_FLAGS, "continue_on_error")
    given = [node.entries[key] for key in words if key in node.entries]
    if "continue_on_error" in metadata:
        given.append((word("metadata", metadata["continue_on_error"]), metadata["continue_on_error"]))
    return next((key for key, value in given if isinstance(value, Scalar) and value.value is True), None)


def _remember(node: Mapping, where: Where, kind: str, name: str) -> None:
    """Remember the step to which `shell.output`, `claude.output` and `CAPTURED_OUTPUT` refer in later texts."""
    said = value_of(node, "capture_output")
    if isinstance(said, Scalar) and said.value is False:
        return
    where.last |= {kind: name, "any": name}
    if isinstance(said, Scalar) and said.value is True:
        where.kept |= {kind: name, "any": name}


def _add_success_steps(t: Translation, node: Mapping, fields: dict[str, Node], inner: Where, out: Mapping) -> None:
    """Add the steps that follow a success."""
    after = make_capture_steps(t, node, fields, inner, out)
    if "validate" in fields and "validate" not in out.entries:
        from resile.dialects.prodigy.validation import make_validation_steps

        after += make_validation_steps(t, fields["validate"], inner, out, value_of(node, "on_failure"))
    goal = value_of(node, "goal_seek")
    if isinstance(goal, Mapping):
        from resile.dialects.prodigy.validation import make_goal_steps

        after += make_goal_steps(t, goal, inner, out)
    if "on_success" in fields:
        after += translate_steps(t, items_of(fields["on_success"]), inner)
    codes = translate_exit_codes(t, fields, inner)
    if codes is not None:
        again, others = codes
        after += again
        if others.entries:
            put_in_step(out, "on_exit_code", others, node.entries["on_exit_code"][0])
    if after:
        at = node.entries["on_success"][0] if "on_success" in fields else node
        put(out, "on_success", sequence(after, at), at)
