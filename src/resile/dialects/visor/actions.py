"""The actions of Visor steps: the keys of a step's type become a native action and a transform of its output.

Agent steps run `claude -p`: the keys of `ai` become its options, a schema becomes a part of the prompt.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.nodes import word
from resile.dialects.reading.beside import open_beside
from resile.dialects.reading.context import Reading
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import text, wrong
from resile.dialects.visor.keys import PROMPT
from resile.dialects.visor.schemas import Schema, wording_of
from resile.dialects.visor.tools import checkout_of, mcp_of
from resile.dialects.visor.values import VisorReading, filled_template, path_beside, template
from resile.errors import shorten
from resile.languages.liquid.templates import SERVER_VARIABLE, is_one_output, is_template
from resile.languages.urls import is_whole_url, names_server
from resile.model.limits import FILE_BYTES_MAX

AGENT = ("claude", "-p")
COMMAND_SECONDS = 60.0
"""Visor's default timeout of commands."""
_PROVIDERS = ("anthropic", "claude-code", "claude")
_ALL_TOOLS = "Bash,Edit,Write,Read,Glob,Grep,WebFetch,WebSearch,Task,NotebookEdit"
_TOOLS = {"allowBash": "Bash", "allowEdit": "Edit,Write"}
_PROMPT_FILE = re.compile(r"[^\s{}]+\.(?:liquid|md|txt|prompt)")
_NEEDS_KEY = ("get", "set", "append", "increment", "delete")
_NEEDS_VALUE = ("set", "append")
_TAKES_VALUE = (*_NEEDS_VALUE, "increment")


def action_of(
    reading: VisorReading, kind: str, node: Mapping, fields: dict[str, Any], schema: Schema
) -> dict[str, Any]:
    """The native action keys of a step of this type; report missing keys."""
    match kind:
        case "command":
            own = {"stdin": fields.get("stdin") or None, "working_dir": fields.get("working_directory") or None}
            return {"shell": _require(reading, kind, node, fields, "exec"), **own}
        case "script":
            code = _require(reading, kind, node, fields, "content")
            return {"script": {"code": code, "namespace": fields.get("namespace", reading.namespace)}}
        case "log":
            message, level = _require(reading, kind, node, fields, "message"), fields.get("level", "info")
            with_outputs = fields.get("include_dependencies", False)
            return {"log": {"message": message, "level": level, "with_outputs": with_outputs}}
        case "memory" if fields.get("operation") == "exec_js":
            return {"script": _memory_code(reading, node, fields)}
        case "memory":
            return {"memory": _memory(reading, node, fields)}
        case "http":
            return {"http": _http(reading, node, fields)}
        case "mcp":
            if fields.get("transport") in ("sse", "http") and "url" in node.entries:
                fields |= {"server": _url(reading, node, fields.get("url"))}
                fields |= {"given_headers": _headers(reading, fields.get("headers"))}
            return mcp_of(reading, node, fields)
        case "git-checkout":
            return checkout_of(reading, node, fields)
        case "http_input":
            endpoint = msgspec.json.encode(_require(reading, kind, node, fields, "endpoint")).decode()
            code = f"return ['', {endpoint}].includes(inputs.endpoint) ? inputs.webhook : null"
            return {"script": {"code": code, "namespace": reading.namespace}}
        case "human-input":
            return {"ask": _ask(reading, node, fields)}
        case "ai" | "claude-code":
            return {"agent": _agent(reading, kind, node, fields, schema)}
        case _:
            return {"noop": True}


def _require(reading: Reading, kind: str, node: Mapping, fields: dict[str, Any], key: str) -> str:
    """The value of a required key; report it if it is missing."""
    if key not in node.entries:
        reading.report.error("value", f"a `{kind}` step needs `{key}`", node)
    value: str = fields.get(key, "")
    return value


def _memory(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> dict[str, Any]:
    """Translate one memory operation, with exactly the keys that it takes."""
    _require(reading, "memory", node, fields, "operation")
    report, given, operation = reading.report, node.entries, fields.get("operation", "get")
    if operation in _NEEDS_KEY and "key" not in given:
        report.error("value", f"`{operation}` needs `key`", node)
    if "value" in given and "value_js" in given:
        report.error("conflict", "`value` and `value_js` say the same thing", given["value_js"][0])
    if operation in _NEEDS_VALUE and not {"value", "value_js"} & given.keys():
        report.error("value", f"`{operation}` needs `value` or `value_js`", node)
    for key, operations in (("key", _NEEDS_KEY), ("value", _TAKES_VALUE), ("value_js", _TAKES_VALUE)):
        if key in given and operation not in operations:
            report.error("conflict", f"`{key}` has no meaning for `{operation}`", given[key][0])
    if "memory_js" in given:
        report.error("conflict", f"`memory_js` has no meaning for `{operation}`", given["memory_js"][0])
    natives = {"key": "key", "value": "value", "value_js": "code"}
    written = {native: fields[key] for key, native in natives.items() if key in fields}
    return {"operation": operation, "namespace": fields.get("namespace", reading.namespace), **written}


def _memory_code(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> dict[str, Any]:
    """Translate `exec_js` to the code of a script, because every script can use the memory."""
    for key in ("key", "value", "value_js"):
        if key in node.entries:
            message = f"`{key}` has no meaning for `exec_js`"
            reading.report.error("conflict", message, node.entries[key][0])
    code = _require(reading, "memory", node, fields, "memory_js")
    return {"code": code, "namespace": fields.get("namespace", reading.namespace)}


def _http(reading: Reading, node: Mapping, fields: dict[str, Any]) -> dict[str, Any]:
    """Translate a request. No value may choose its server, unless the whole URL is one value."""
    body: Any = fields.get("body")
    given: dict[str, Any] = {}
    if isinstance(body, dict | list):
        given["json"] = body
    elif body is not None:
        given["body"] = str(body) if not isinstance(body, bool) else str(body).lower()
    method = fields.get("method", "POST" if given else "GET").upper()
    if not re.fullmatch(r"[A-Z]{1,20}", method):
        wrong(reading, node.entries["method"][1], "a method such as GET, POST, PUT, PATCH, DELETE")
    url, headers = _url(reading, node, fields.get("url")), _headers(reading, fields.get("headers"))
    return {"url": url, "method": method, "headers": headers, **given}


def _url(reading: Reading, node: Mapping, given: Node | None) -> str:
    """Check a URL; values may fill its path and query only."""
    if given is None:
        reading.report.error("value", "an `http` step needs `url`", node)
        return ""
    url = template(reading, given)
    if url is INVALID:
        return ""
    if is_one_output(url) or re.match(SERVER_VARIABLE + r"(?:[/?#]|\Z)", url):
        return str(url)
    if is_template(url) and not names_server(re.split(r"\{[{%]", url)[0]):
        hint = "write the server out, or make the whole url one output: url: '{{ inputs.url }}'"
        message = f"`{shorten(url)}`: a value can't decide on the scheme or the server of a url"
        reading.report.error("value", message, given, hint=hint)
    elif not is_template(url) and not is_whole_url(url):
        reading.report.error("value", f"`{shorten(url)}` is no http url", given, hint="http://host/path")
    return str(url)


def _headers(reading: Reading, node: Node | None) -> dict[str, str]:
    """Translate headers; `${NAME}` in one is the caller's environment variable."""
    if node is None:
        return {}
    if not isinstance(node, Mapping):
        wrong(reading, node, "a mapping of names to values")
        return {}
    result: dict[str, str] = {}
    for name, (key, value) in node.entries.items():
        content = template(reading, value)
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            reading.report.error("name", f"`{shorten(name)}` can't be the name of a header", key)
        elif content is not INVALID:
            result[name] = re.sub(r"\$\{([A-Za-z_]\w*)\}", r"{{ env['\1'] }}", content)
    return result


def _ask(reading: Reading, node: Mapping, fields: dict[str, Any]) -> dict[str, Any]:
    """Translate a question, with hints about its answer."""
    question = _require(reading, "human-input", node, fields, "prompt")
    hints = [fields["example"]] if fields.get("example") else []
    if fields.get("multiline"):
        hints.append("several lines are fine")
    if "default" in fields:
        hints.append(f"an empty answer means {fields['default']!r}")
    elif fields.get("allow_empty"):
        hints.append("an empty answer is fine")
    # The question is a template; the hints are plain text.
    more = f" {{% raw %}}({'; '.join(hints)}){{% endraw %}}" if hints else ""
    return {"question": question.rstrip() + more, "default": fields.get("default", "")}


def _agent(reading: VisorReading, kind: str, node: Mapping, fields: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Make the prompt for `claude -p`, with the options for the file's settings."""
    prompt = _prompt(reading, node, fields)
    if "prompt" not in node.entries and "appendPrompt" not in node.entries and "focus" not in node.entries:
        hint = "" if "type" in node.entries else "a step without `type` asks an agent"
        reading.report.error("value", f"a `{kind}` step needs `prompt`", node, hint=hint)
    settings = {**fields.get("ai", {}), **fields.get("claude_code", {})}
    words = [*AGENT, *_options(reading, node, fields, settings)]
    role = settings.get("prompt_type", fields.get("ai_prompt_type", ""))
    parts = [
        f"Work as: {role.replace('-', ' ')}." if role else "",
        settings.get("custom_prompt", fields.get("ai_custom_prompt", "")),
        settings.get("system_prompt", fields.get("ai_system_prompt", "")),
        f"Focus on: {fields['focus']}." if "focus" in fields else "",
        prompt,
        fields.get("appendPrompt", ""),
        settings.get("completion_prompt", ""),
        wording_of(schema),
    ]
    return {"prompt": "\n\n".join(part.strip() for part in parts if part.strip()), "command": words}


def _prompt(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> str:
    """Read the prompt, inline or from a file."""
    given: Node | None = fields.get("prompt")
    if isinstance(given, Mapping):
        parts = read_keys(reading, given, PROMPT)
        if len(given.entries) != 1:
            reading.report.error("value", "`prompt` needs `file` or `content`, one of them", node.entries["prompt"][0])
        given = _content_of(reading, parts["file"]) if "file" in parts else parts.get("content")
    elif isinstance(given, Scalar) and _PROMPT_FILE.fullmatch(given.text.strip()):
        given = _content_of(reading, given)
    prompt = INVALID if given is None else filled_template(reading, given)
    return "" if prompt is INVALID else str(prompt)


def _content_of(reading: VisorReading, node: Node) -> Scalar | None:
    """Read a file into a text node with the position of its name; None after a report."""
    name = text(reading, node)
    if name is INVALID:
        return None
    try:
        with open_beside(path_beside(reading, name.strip())) as file:
            return word(file.read(FILE_BYTES_MAX).decode("utf-8"), node)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        reading.report.error("file", f"the prompt `{shorten(name)}` can't be read: {reason}", node)
        return None


def _options(reading: VisorReading, node: Mapping, fields: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The options of `claude -p`."""
    provider = settings.get("provider", fields.get("ai_provider", reading.models.get("ai_provider", "")))
    model = settings.get("model", fields.get("ai_model", reading.models.get("ai_model", "")))
    words: list[str] = []
    if provider and provider not in _PROVIDERS:
        message = f"`claude -p` is asked, not {shorten(provider)}" + (f" with {shorten(model)}" if model else "")
        reading.report.warning("provider", message, node, hint="a program `claude` on PATH may ask whom it likes")
    elif model:
        words += ["--model", model]
    words += _fallback(reading, node, settings.get("fallback", {}))
    words += [word for folder in settings.get("folders", ()) for word in ("--add-dir", folder)]
    if settings.get("disableTools"):
        words += ["--disallowedTools", _ALL_TOOLS]
    bash = settings.get("bashConfig", {})
    # Commands that are listed are allowed instead of all commands.
    given = [key for key in _TOOLS if settings.get(key) and not (key == "allowBash" and bash.get("allow"))]
    allowed = [*settings.get("allowedTools", ()), *(_TOOLS[key] for key in given), *_commands(bash.get("allow", ()))]
    if allowed:
        words += ["--allowedTools", ",".join(allowed)]
    denied = [_TOOLS[key] for key in _TOOLS if settings.get(key) is False] + _commands(bash.get("deny", ()))
    if denied and not settings.get("disableTools"):
        words += ["--disallowedTools", ",".join(denied)]
    servers = {**reading.servers, **fields.get("ai_mcp_servers", {}), **settings.get("mcpServers", {})}
    if servers and not settings.get("disableTools"):
        words += ["--mcp-config", msgspec.json.encode({"mcpServers": servers}).decode()]
    if "max_iterations" in settings:
        words += ["--max-turns", str(settings["max_iterations"])]
    return words


def _commands(patterns: tuple[str, ...]) -> list[str]:
    """The commands that an agent may or may not run: `git:log:*` there is `Bash(git log:*)` here."""
    found: list[str] = []
    for pattern in patterns:
        name = pattern.removesuffix(":*").replace(":", " ")
        found.append("Bash" if name == "*" else f"Bash({name}:*)")
    return found


def _fallback(reading: VisorReading, node: Mapping, given: dict[str, Any]) -> list[str]:
    """The option for the model that is asked if the first one is overloaded."""
    models: list[str] = list(given.get("models", ()))
    for other in given.get("providers", ()):
        provider = other.get("provider", "anthropic")
        if provider in _PROVIDERS and other.get("model"):
            models.append(other["model"])
        elif provider not in _PROVIDERS:
            message = f"`claude -p` does not fall back to {shorten(provider)}"
            reading.report.warning("provider", message, node, hint="a program `claude` on PATH may ask whom it likes")
    return ["--fallback-model", models[0]] if models else []


def transform_of(kind: str, fields: dict[str, Any], schema: Schema) -> dict[str, Any] | None:
    """The transform of a step's output to its value; None if the step has no output."""
    if kind == "noop" and not ({"transform", "transform_js", "forEach"} & fields.keys()):
        return None
    parse = "auto"
    if schema.is_text or fields.get("output_format") == "text":
        parse = "text"
    elif fields.get("output_format") == "json" or fields.get("parseJson"):
        parse = "json"
    natives = {"transform": "template", "transform_js": "code", "forEach": "as_items"}
    written = {native: fields[key] for key, native in natives.items() if key in fields}
    first = {"first": fields["tool_transform"]} if "tool_transform" in fields else {}
    return {"parse": parse, **first, **written, **({} if schema.rules is None else {"schema": schema.rules}),
            **({"schema_name": schema.name} if schema.name else {})}  # fmt: skip


def timeout_of(kind: str, fields: dict[str, Any]) -> float | None:
    """The timeout of each attempt."""
    settings = fields.get("ai", {})
    given = fields.get("timeout", settings.get("timeout", settings.get("ai_timeout")))
    if given is None and kind in ("command", "mcp"):
        return COMMAND_SECONDS
    return None if given is None else float(given)
