"""The environment of a Prodigy file: `env` with computed values, `profiles`, `secrets`.

A step before all others captures each computed value, and every step gets it in its environment; fixed values belong to
the workflow's environment. Secrets are not copied: a file names the variable or the file that holds one.
"""

from __future__ import annotations

import re
from shlex import quote

from resile.dialects.formats.nodes import Mapping, Node, Scalar, plain
from resile.dialects.native.nodes import Part, mapping, node_of, put, text_in, value_of, word
from resile.dialects.prodigy.expressions import translate_condition
from resile.dialects.prodigy.keys import COMPUTED, SECRET
from resile.dialects.prodigy.variables import Translation, Where
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import read_mapping
from resile.dialects.reading.values import IDENTIFIER, wrong
from resile.errors import shorten

_FROM_ENV = re.compile(r"\$\{(?:env[:.])?([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)|([A-Za-z_]\w*)")
_POSITIONAL = re.compile(r"\$(?:\{(\d{1,3})\}|(\d{1,3}))")


def translate_environment(
    t: Translation, node: Node | None, profile: Mapping | None, secrets: Mapping, where: Where
) -> Mapping:
    """Make the native `env`: computed values become steps, fixed values are added to `where.env`."""
    out = mapping(node or secrets)
    entries: dict[str, tuple[Scalar, Node]] = {}
    for given in (node, profile):
        if isinstance(given, Mapping):
            entries |= given.entries
        elif given is not None:
            wrong(t, given, "a mapping of names to values")
    for name, (key, value) in entries.items():
        kept = _translate_computed(t, name, key, value, secrets, where) if isinstance(value, Mapping) else value
        if isinstance(kept, Scalar) and kept.value is not None:
            written = _POSITIONAL.sub(lambda found: f"${{ARG_{found[1] or found[2]}}}", kept.text)
            # A value may refer to the variables before it; its own name refers to the caller's environment.
            kept = word(t.rewrite_fixed(word(written, kept), where), kept)
            where.env[name] = kept.text
        if kept is not None:
            out.entries[name] = (key, kept)
    return out


def _translate_computed(
    t: Translation, name: str, key: Scalar, node: Mapping, secrets: Mapping, where: Where
) -> Node | None:
    """Translate a variable that is a mapping: None for a computed value or a secret, else the plain value."""
    fields = read_mapping(t, node, COMPUTED)
    kinds = [kind for kind in ("command", "condition", "value") if kind in fields]
    if len(kinds) != 1:
        message = f"the variable `{shorten(name)}` needs `command`, `condition` or `value`, one of them"
        t.report.error("value", message, key)
        return None
    if not IDENTIFIER.fullmatch(name):
        t.report.error("name", f"`{shorten(name)}` can't be the name of a computed variable", key)
        return None
    match kinds[0]:
        case "command":
            command = t.rewrite_shell(fields["command"], where)
            t.before_all.append(node_of({"id": f"env {name}", "shell": command, "capture": name}, key))
        case "condition":
            t.before_all.append(_make_conditional_step(t, name, key, fields, where))
        case "value":
            return _read_plain_value(t, name, fields, secrets)
    t.declare(name, "text", f"env {name}")
    t.computed[name] = word(f"${{{name}}}", key)
    return None


def _make_conditional_step(t: Translation, name: str, key: Scalar, fields: dict[str, Node], where: Where) -> Node:
    """Make a step that captures the value for `false`, and replaces it if the condition holds."""
    yes, no = (f"printf %s {quote(text_in(fields.get(key)))}" for key in ("when_true", "when_false"))
    condition = translate_condition(t, fields["condition"], where)
    then = Part(key, id="condition", shell=yes, when=condition, capture=name)
    return node_of({"id": f"env {name}", "shell": no, "capture": name, "on_success": then}, key)


def _read_plain_value(t: Translation, name: str, fields: dict[str, Node], secrets: Mapping) -> Node | None:
    """Read a plain value that is written as a mapping; None for a secret, which names its variable."""
    value, said = fields["value"], fields.get("secret")
    if said is None or plain(said) is False:
        return value
    match = _FROM_ENV.fullmatch(text_in(value))
    if match is None or match[3]:
        message = f"the secret `{shorten(name)}` is written in the file, where it can't be one"
        t.report.error("refused", message, value, hint="name the variable that holds it: value: ${NAME}")
    else:
        put(secrets, name, mapping(value, {"env": word(match[1] or match[2], value)}))
    return None


def translate_secrets(t: Translation, node: Node | None, out: Mapping) -> None:
    """Translate secrets: each names the variable or the file that holds it."""
    if node is None:
        return
    if not isinstance(node, Mapping):
        wrong(t, node, "a mapping of names to variables")
        return
    for name, (key, value) in node.entries.items():
        if not isinstance(value, Mapping):
            match = _FROM_ENV.fullmatch(text_in(value))
            if match is None:
                wrong(t, value, "the name of an environment variable", "API_KEY: SECRET_API_KEY")
            else:
                put(out, name, mapping(value, {"env": word(match[1] or match[2] or match[3], value)}), key)
            continue
        fields = read_mapping(t, value, SECRET)
        provider = text_in(fields.get("provider")) or "env"
        if provider not in ("env", "file"):
            message = f"`provider: {shorten(provider)}` is not run: secrets come from variables or files"
            t.report.error("refused", message, fields["provider"], hint="provider: env or file")
        elif "key" not in fields:
            t.report.error("value", f"the secret `{shorten(name)}` needs `key`", key)
        else:
            put(out, name, mapping(value, {provider: fields["key"]}), key)


def choose_profile(t: Translation, node: Node | None, profile: str) -> Mapping | None:
    """Choose the environment of the profile that the caller named."""
    found: dict[str, Node] = {}
    if isinstance(node, Mapping):
        found = {name: value for name, (_, value) in node.entries.items()}
    elif node is not None:
        wrong(t, node, "a mapping of names to environments")
    result: Mapping | None = None
    for name, value in found.items():
        if not isinstance(value, Mapping):
            wrong(t, value, "a mapping of names to values")
        elif name == profile:
            kept = {key: entry for key, entry in value.entries.items() if key != "description"}
            result = Mapping(kept, value.line, value.column)
    if profile and profile not in found:
        hint = did_you_mean(profile, found) or "its profiles: " + ", ".join(map(_describe_profile, found.items()))
        t.report.error("profile", f"there is no profile `{shorten(profile)}`", node, hint=hint if found else "")
    return result


def _describe_profile(profile: tuple[str, Node]) -> str:
    name, node = profile
    said = text_in(value_of(node, "description")) if isinstance(node, Mapping) else ""
    return f"{name} ({said})" if said else name
