"""Steps that call a tool, and steps that check out a repository.

tools, transport: custom   the command of a tool of the file
mcp                        a `python` step whose code asks the server (executors/programs/mcp_step.py)
git-checkout               a command with its values in the environment, so that no value can become code
"""

from __future__ import annotations

from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, plain
from resile.dialects.native.nodes import StepPart
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.key_tables import read_keys
from resile.dialects.visor.keys import TOOL
from resile.dialects.visor.schemas import is_schema
from resile.dialects.visor.values import Call, VisorReading
from resile.errors import shorten

_CALL_MCP = "from resile.executors.programs.mcp_step import main"
_BY_TRANSPORT = {"stdio": ("command", "command_args", "workingDirectory"), "sse": ("url", "headers"),
                 "http": ("url", "headers")}  # fmt: skip
CHECKOUTS = ".resile/checkouts"
"""The folder of checkouts that name none."""
_CHECKOUT = r"""
set -eu
fail() { printf '%s\n' "$1" >&2; exit 1; }
text() { printf '%s' "$1" | sed 's/[\\"]/\\&/g'; }
repository=${CHECKOUT_REPOSITORY:-${GITHUB_REPOSITORY:-.}}
ref=${CHECKOUT_REF:-HEAD}
case $ref in -*) fail "the ref '$ref' begins with a dash";; esac
case $repository in
  -*) fail "the repository '$repository' begins with a dash";;
  *://*|*@*:*|/*|.|./*|../*) url=$repository;;
  */*) url=https://github.com/$repository.git;;
  *) fail "the repository '$repository' is neither a url, a path, nor owner/name";;
esac
case $url in .|./*|../*) url=$(cd "$url" && pwd) ;; esac
name=$(printf '%s-%s' "$repository" "$ref" | tr -c 'A-Za-z0-9._-' '-' | sed 's/^[.-]*//')
folder=${CHECKOUT_FOLDER:-$CHECKOUT_BASE/$name}
if [ -n "${CHECKOUT_TOKEN:-}" ]; then
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=http.extraHeader
  export GIT_CONFIG_VALUE_0="Authorization: Basic $(printf 'x-access-token:%s' "$CHECKOUT_TOKEN" | base64 | tr -d '\n')"
fi
export GIT_TERMINAL_PROMPT=0
new=; [ -e "$folder" ] || new=1
if [ "$CHECKOUT_CLEANUP" = true ] && [ -n "$new" ]; then trap '[ $? = 0 ] || rm -rf -- "$folder"' EXIT; fi
mkdir -p -- "$folder"
if [ -e "$folder/.git" ]; then
  [ "$(git -C "$folder" config remote.origin.url)" = "$url" ] || fail "$folder holds another repository"
elif [ -n "$(ls -A -- "$folder")" ]; then
  fail "$folder is not empty, and no checkout"
else
  git -C "$folder" init -q
  git -C "$folder" remote add origin "$url"
fi
if [ -n "$CHECKOUT_SPARSE" ]; then printf '%s\n' "$CHECKOUT_SPARSE" | git -C "$folder" sparse-checkout set --stdin; fi
git -C "$folder" fetch -q $CHECKOUT_OPTIONS origin "$ref" >&2
git -C "$folder" checkout -q ${CHECKOUT_FORCE:+--force} --detach FETCH_HEAD >&2
if [ -n "$CHECKOUT_FORCE" ]; then git -C "$folder" clean -qfdx >&2; fi
case $CHECKOUT_SUBMODULES in
  true) git -C "$folder" submodule update -q --init >&2;;
  recursive) git -C "$folder" submodule update -q --init --recursive >&2;;
esac
if [ "$CHECKOUT_LFS" = true ]; then git -C "$folder" lfs pull >&2; fi
path=$(cd "$folder" && pwd)
printf '{"success": true, "path": "%s", "ref": "%s", "commit": "%s", "repository": "%s", "worktree_id": "%s"}\n' \
  "$(text "$path")" "$(text "$ref")" "$(git -C "$folder" rev-parse HEAD)" "$(text "$repository")" "$(text "$name")"
"""


def checkout_of(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> dict[str, Any]:
    """The command that checks out a repository; its values go into the environment of the step."""
    if "ref" not in node.entries:
        reading.report.error("value", "a `git-checkout` step needs `ref`", node)
    options = [f"--depth={fields['fetch_depth']}"] if fields.get("fetch_depth") else []
    options += ["--tags"] if fields.get("fetch_tags") else []
    places = {**reading.fields.get("worktree_cache", {}), **reading.fields.get("workspace", {})}
    base = places.get("base_path", CHECKOUTS)
    fields["env"] = fields.get("env", {}) | {
        "CHECKOUT_REPOSITORY": fields.get("repository", ""),
        "CHECKOUT_REF": fields.get("ref", ""),
        "CHECKOUT_TOKEN": fields.get("token", ""),
        "CHECKOUT_FOLDER": fields.get("working_directory", ""),
        "CHECKOUT_BASE": base,
        "CHECKOUT_OPTIONS": " ".join(options),
        "CHECKOUT_FORCE": "true" if fields.get("clean", True) else "",
        "CHECKOUT_SUBMODULES": fields.get("submodules", ""),
        "CHECKOUT_SPARSE": "\n".join(fields.get("sparse_checkout", ())),
        "CHECKOUT_LFS": str(fields.get("lfs", False)).lower(),
        "CHECKOUT_CLEANUP": str(fields.get("cleanup_on_failure", False)).lower(),
    }
    return {"shell": _CHECKOUT}


def mcp_of(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> dict[str, Any]:
    """The action that calls a tool; its arguments are data, or a template that gives JSON."""
    transport = fields.get("transport", "stdio")
    if "method" not in node.entries:
        reading.report.error("value", "an `mcp` step needs `method`", node)
    if "methodArgs" in node.entries and "argsTransform" in node.entries:
        message = "`methodArgs` and `argsTransform` say the same thing"
        reading.report.error("conflict", message, node.entries["argsTransform"][0])
    taken = _BY_TRANSPORT.get(transport, ())
    for word in ("command", "command_args", "workingDirectory", "url", "headers"):
        if word in node.entries and word not in taken:
            reading.report.error(
                "conflict", f"`{word}` has no meaning for `transport: {transport}`", node.entries[word][0]
            )
    if transport == "custom":
        return _custom(reading, node, fields)
    if taken and taken[0] not in node.entries:
        reading.report.error("value", f"`transport: {transport}` needs `{taken[0]}`", node)
    settings = {
        "transport": transport,
        "command": fields.get("command", ""),
        "args": fields.get("command_args", []),
        "directory": fields.get("workingDirectory", ""),
        "url": fields.get("server", ""),
        "headers": fields.get("given_headers", {}),
        "method": fields.get("method", ""),
        "arguments": fields.get("argsTransform", fields.get("methodArgs", {})),
    }
    return {"python": {"source": _CALL_MCP, "inputs": {"settings": settings}}}


def _custom(reading: VisorReading, node: Mapping, fields: dict[str, Any]) -> dict[str, Any]:
    """The command of a tool of the file, as the action of a step; the step's own transform sees the tool's value."""
    name = fields.get("method", "")
    if "argsTransform" in node.entries:
        reading.report.error("conflict", "a tool of the file takes `methodArgs`", node.entries["argsTransform"][0])
    if name and name not in reading.tools:
        hint = did_you_mean(name, reading.tools, "tools")
        reading.report.error(
            "unknown-tool", f"there is no tool `{shorten(name)}`", node.entries["method"][1], hint=hint
        )
    if name not in reading.tools:
        return {"noop": True}
    place = node.entries["method"][0]
    step = tool_of(reading, Call("tool", name, place, fields.get("methodArgs", {})))
    if step is None:
        return {"noop": True}
    made = step["transform"]
    if made.keys() & {"template", "code"} and node.entries.keys() & _TRANSFORMS.keys():
        fields["tool_transform"] = made
    else:
        fields |= {word: made[native] for word, native in _TRANSFORMS.items() if native in made}
        fields |= {"output_format": "json"} if made["parse"] == "json" else {}
    fields["env"] = step.get("env", {}) | fields.get("env", {})
    if "timeout" in step:
        fields.setdefault("timeout", step["timeout"])
    return {"shell": step["shell"], "stdin": step.get("stdin"), "args": step.get("args")}


_TRANSFORMS = {"transform": "template", "transform_js": "code"}


def tool_of(reading: VisorReading, call: Call) -> StepPart | None:
    """The step that runs the command of a tool."""
    key, node = reading.tools[call.name]
    fields = read_keys(reading, node, TOOL)
    if "exec" not in fields:
        if "exec" not in node.entries:
            reading.report.error("value", f"the tool `{shorten(call.name)}` has no `exec`", key)
        return None
    transform = {"parse": "json" if fields.get("parseJson") else "auto"}
    return StepPart(
        call.node,
        shell=fields["exec"],
        stdin=fields.get("stdin") or None,
        capture={call.name: "value"},
        transform=transform | {native: fields[word] for word, native in _TRANSFORMS.items() if word in fields},
        timeout=fields.get("timeout"),
        env=fields.get("env") or None,
        args=_arguments(reading, fields.get("inputSchema"), call) or None,
    )


def _arguments(reading: VisorReading, node: Node | None, call: Call) -> dict[str, Any]:
    """Check the arguments of a tool against its schema, and fill in defaults."""
    if node is None:
        return call.args
    schema = plain(node)
    if not is_schema(reading, node, schema) or not isinstance(schema, dict) or not call.is_checked:
        return call.args
    properties = schema.get("properties", {})
    given = dict(call.args)
    for name, about in properties.items():
        if isinstance(about, dict) and "default" in about:
            given.setdefault(name, about["default"])
    required = schema.get("required", [])
    for name in required if isinstance(required, list) else []:
        if name not in given:
            reading.report.error("input", f"the tool `{shorten(call.name)}` needs `{shorten(str(name))}`", call.node)
    for name in given:
        if properties and name not in properties:
            hint = did_you_mean(name, properties, "its arguments")
            reading.report.error(
                "input", f"the tool `{shorten(call.name)}` takes no `{shorten(name)}`", call.node, hint=hint
            )
    return given
