"""One step of a Prodigy file as native steps; what it says about failures is in prodigy_failure.

label -> action -> keys that mean the same -> capture -> what follows a success, in this order:
    files it made, its output file, its validation, `on_success`, `on_exit_code: {0: …}`
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, describe
from resile.dialects.native.failures.commands import attach_dangling
from resile.dialects.native.nodes import flag, items_of, mapping, put, put_in_step, sequence, text_in, value_of, word
from resile.dialects.prodigy.actions import ACTIONS, analyze, prompt, write_file
from resile.dialects.prodigy.capture import captures, follow_capture
from resile.dialects.prodigy.expressions import NotAnExpression, javascript, quoted
from resile.dialects.prodigy.failures import answers, exit_codes
from resile.dialects.prodigy.keys import METADATA, STEP
from resile.dialects.prodigy.maps import BESIDE_FOREACH
from resile.dialects.prodigy.variables import Translation, Where
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import name_problem
from resile.errors import shorten
from resile.languages.references import is_one_reference
from resile.model.limits import NAME_CHARACTERS_MAX

_FLAGS = ("allow_failure", "ignore_errors")
_LABELS = ("id", "name", "description")


def steps(t: Translation, items: list[Node], where: Where) -> list[Node]:
    """A list of steps; entries that are nothing but `on_failure` belong to the step before them."""
    result: list[Node] = []
    for item in attach_dangling(t, items):
        result += step(t, item, where)
    return result


def step(t: Translation, node: Node, where: Where) -> list[Node]:
    """The native steps for one item of a list: one, or two where a command and a prompt stand together."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        is_prompt = where.is_top or node.text.startswith("/")
        text = f"/{node.text.lstrip('/')}" if is_prompt else node.text
        node = mapping(node, {"claude" if is_prompt else "shell": word(text, node)})
    if not isinstance(node, Mapping):
        t.report.error("type", f"expected a step, not {describe(node)}", node)
        return []
    given = [action for action in ACTIONS if action in node.entries]
    if given == ["shell", "claude"] and not where.is_top:
        return [made for part in _parted(node) for made in step(t, part, where)]
    return _one(t, node, where, given)


def _parted(node: Mapping) -> list[Mapping]:
    """A command and a prompt that stand together: one after the other; what only one can have is the second's."""
    last = ("capture", "capture_output", "commit_required", "on_success", "id", "name")
    first = {key: entry for key, entry in node.entries.items() if key not in ("claude", *last)}
    second = {key: entry for key, entry in node.entries.items() if key != "shell"}
    return [Mapping(first, node.line, node.column), Mapping(second, node.line, node.column)]


def _one(t: Translation, node: Mapping, where: Where, given: list[str]) -> list[Node]:
    """A step with one action."""
    fields = read_mapping(t, node, STEP)
    if len(given) > 1:
        second = node.entries[given[1]][0]
        t.report.error("action", f"a step does one thing: `{given[0]}` or `{given[1]}`", second)
        return []
    if "test" in fields:
        return _tested(t, node, where)
    for key in BESIDE_FOREACH[:-1]:
        if key in fields and "foreach" not in fields:
            t.report.error("conflict", f"`{key}` has no meaning without `foreach`", node.entries[key][0])
    metadata = read_mapping(t, fields["metadata"], METADATA) if "metadata" in fields else {}
    name = _label(node, where)
    here = replace(where, env=_environment(t, fields, metadata, where))
    out = mapping(node, {"id": word(name, value_of(node, "id") or value_of(node, "name") or node)})
    kind = _action(t, node, fields, here, out, name, given[0] if given else "")
    if not kind:
        return []
    _settings(t, node, fields, metadata, here, out)
    inner = here.inner("on_success")
    if where.is_top:
        inner.last |= {kind: name, "any": name}
    captures(t, node, fields, here, out, name)
    answers(t, node, fields, metadata, here, out, _is_allowed(node, metadata, here))
    _remember(node, where, kind, name)
    _follow(t, node, fields, inner, out)
    return [out]


def _environment(t: Translation, fields: dict[str, Node], metadata: dict[str, Node], where: Where) -> dict[str, str]:
    """The fixed values of a step's environment: those around it and its own."""
    fixed = where.env
    for given in (metadata.get("env"), fields.get("env")):
        if isinstance(given, Mapping):
            values = {name: value for name, (_, value) in given.entries.items() if isinstance(value, Scalar)}
            fixed = {**fixed, **{name: t.fixed(value, where) for name, value in values.items()}}
    return fixed


def _tested(t: Translation, node: Mapping, where: Where) -> list[Node]:
    """`test: {command, on_failure}`: a command with its handler, as older files write it."""
    inner = node.entries["test"][1]
    rest = {key: entry for key, entry in node.entries.items() if key != "test"}
    if not isinstance(inner, Mapping) or not inner.entries.keys() <= {"command", "on_failure"}:
        t.report.error("value", "`test` takes `command` and `on_failure`", inner, hint="write it as `shell`")
        return []
    for key, (place, value) in inner.entries.items():
        rest["shell" if key == "command" else key] = (place, value)
    return step(t, Mapping(rest, node.line, node.column), where)


def _label(node: Mapping, where: Where) -> str:
    """What a step is called: by its label as far as that can be a name, else by its number; never twice the same."""
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


def _action(
    t: Translation, node: Mapping, fields: dict[str, Node], where: Where, out: Mapping, name: str, action: str
) -> str:
    """Put the one thing that a step does into the native step; its kind, or an empty text after a report."""
    match action:
        case "shell":
            put(out, "shell", t.shell(fields["shell"], where), node.entries["shell"][0])
        case "claude":
            put(out, "agent", prompt(t, fields["claude"], fields, where), node.entries["claude"][0])
        case "analyze":
            put(out, "agent", analyze(t, fields["analyze"], where), node.entries["analyze"][0])
            return "claude"
        case "write_file":
            write_file(t, fields["write_file"], where, out, node.entries["write_file"][0])
        case "foreach":
            from resile.dialects.prodigy.maps import foreach

            return "foreach" if foreach(t, fields, where, out, name) else ""
        case "goal_seek":
            from resile.dialects.prodigy.validation import seek

            return seek(t, fields["goal_seek"], where, out)
        case _:
            return _without_action(t, node, fields, where, out)
    return action


def _without_action(t: Translation, node: Mapping, fields: dict[str, Node], where: Where, out: Mapping) -> str:
    """A step without an action: a check by itself, or a slash command that is written as a name."""
    if "validate" in fields:
        check = fields["validate"]
        if isinstance(check, Scalar):
            put(out, "validate", t.shell(check, where), node.entries["validate"][0])
        else:
            put(out, "noop", flag(True, check))
        return "validate"
    if "name" in fields and text_in(fields["name"]):
        label = fields["name"]
        message = "a step with just a name is taken as a slash command"
        t.report.notice("slash-command", message, label, hint=f"write it as `claude: /{shorten(text_in(label))}`")
        command = word("/" + text_in(label).lstrip("/"), label)
        put(out, "agent", prompt(t, command, fields, where), label)
        return "claude"
    if node.entries.keys() <= STEP.keys.keys():
        # A word that nobody knows was told already, and may have been meant to say it.
        t.report.error("action", "this step does nothing", node, hint=did_you_mean("", ACTIONS, "actions"))
    return ""


def _settings(
    t: Translation, node: Mapping, fields: dict[str, Node], metadata: dict[str, Node], where: Where, out: Mapping
) -> None:
    """Keys that mean the same in a native file."""
    for key in ("timeout", "commit_required"):
        if key in fields:
            put(out, key, fields[key], node.entries[key][0])
        elif key in metadata:
            put(out, key, metadata[key])
    for key, native in (("working_dir", "working_dir"), ("output", "outputs")):
        if key in fields:
            put(out, native, t.text(fields[key], where), node.entries[key][0])
    env = Mapping({}, node.line, node.column)
    if where.is_top:
        env.entries |= mapping(node, t.computed).entries
    for given in (metadata.get("env"), fields.get("env")):
        written = None if given is None else t.data(given, where)
        if isinstance(written, Mapping):
            env.entries |= written.entries
        elif written is not None:
            put(out, "env", written)
    if env.entries:
        put(out, "env", env, node)
    if "when" in fields:
        condition = when(t, fields["when"], where)
        if condition is not None:
            put(out, "when", condition, node.entries["when"][0])


def when(t: Translation, node: Node, where: Where) -> Node | None:
    """A condition as an expression of the native file."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return node

    def name(path: str) -> str:
        """A variable of the workflow as the value that it stands for."""
        found = t.reference(path, node, where, False)
        if found is None:
            return f"${{{path}}}"
        return found if is_one_reference(found) else quoted(found)

    try:
        return word(javascript(node.text, name), node)
    except NotAnExpression as problem:
        hint = "such as: ${count} > 3 && ${target} == 'release'"
        t.report.error("expression", f"{describe(node)} is no expression: {problem}", node, hint=hint)
        return None


def _is_allowed(node: Mapping, metadata: dict[str, Node], where: Where) -> Scalar | None:
    """The key by which a step says that its failure does not matter."""
    words = _FLAGS if where.in_handler or "foreach" in node.entries else (*_FLAGS, "continue_on_error")
    given = [node.entries[key] for key in words if key in node.entries]
    if "continue_on_error" in metadata:
        given.append((word("metadata", metadata["continue_on_error"]), metadata["continue_on_error"]))
    return next((key for key, value in given if isinstance(value, Scalar) and value.value is True), None)


def _remember(node: Mapping, where: Where, kind: str, name: str) -> None:
    """Which step's output later texts mean by `shell.output`, `claude.output` and `CAPTURED_OUTPUT`."""
    said = value_of(node, "capture_output")
    if isinstance(said, Scalar) and said.value is False:
        return
    where.last |= {kind: name, "any": name}
    if isinstance(said, Scalar) and said.value is True:
        where.kept |= {kind: name, "any": name}


def _follow(t: Translation, node: Mapping, fields: dict[str, Node], inner: Where, out: Mapping) -> None:
    """What follows the success of a step."""
    after = follow_capture(t, node, fields, inner, out)
    if "validate" in fields and "validate" not in out.entries:
        from resile.dialects.prodigy.validation import validation

        after += validation(t, fields["validate"], inner, out, value_of(node, "on_failure"))
    goal = value_of(node, "goal_seek")
    if isinstance(goal, Mapping):
        from resile.dialects.prodigy.validation import goal_check

        after += goal_check(t, goal, inner, out)
    if "on_success" in fields:
        after += steps(t, items_of(fields["on_success"]), inner)
    codes = exit_codes(t, fields, inner)
    if codes is not None:
        again, others = codes
        after += again
        if others.entries:
            put_in_step(out, "on_exit_code", others, node.entries["on_exit_code"][0])
    if after:
        at = node.entries["on_success"][0] if "on_success" in fields else node
        put(out, "on_success", sequence(after, at), at)
