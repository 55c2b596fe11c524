"""Rewrites the variables in the texts of a Prodigy file as native references.

    $ARG ${ARG_1}      ${inputs.ARG}                 $item ${item.x:-y}   ${item} ${item.x:-y}
    ${shell.output}    of the failed command in a handler, else of the last earlier step that kept its output
    ${v.exit_code}     ${v_exit_code}                 ${coverage.spec}     ${coverage_spec}
    $NAME              left to the shell; replaced by its value if no shell reads the text (prompts, paths, content)

Everything else that starts with a dollar stays byte for byte: awk's `$1`, jq's `$area`, `${PORT:-80}`. A name that the
command sets itself (`for item in`, `read v`, `--arg v`) is left to the command.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import node_of, put, word
from resile.dialects.prodigy.git_lists import MERGE_NAMES, NAMES, Use
from resile.dialects.reading.context import Reading
from resile.dialects.reading.values import IDENTIFIER
from resile.errors import shorten

if TYPE_CHECKING:
    from resile.dialects.prodigy.shell_locals import ShellLocals
    from resile.dialects.reading.context import Source
    from resile.dialects.reading.diagnostics import Diagnostics

STREAMS = ("stderr", "exit_code", "success", "duration")
"""Properties of a captured step besides its value, by Prodigy's names."""
INLINED_CHARACTERS_MAX = 64 * 1024
"""A longer value of the environment is refused: every text that names it would repeat it."""

_TOKEN = re.compile(r"\\.|\$\$|\$\{([^{}$]*)\}|\$([A-Za-z_]\w*|\d+)", re.DOTALL)
_REFERENCE = re.compile(
    r"([A-Za-z_]\w*)((?:\.[\w-]+|\[-?\d{1,9}\])*)(?:(?::-|\|\s*default:\s*)(['\"]?)([^'\"]*)\3)?", re.DOTALL
)
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+(?![.|])")
"""A variable of the shell: it has no dotted path and no filter."""
_DEFAULT_REFUSED = frozenset("[]{}$`\\\"'\n")
_OF_FAILURE = {
    "output": "shell.output", "stdout": "error.stdout", "stderr": "error.stderr", "exit_code": "error.exit_code",
    "attempt": "error.attempt",
}  # fmt: skip
_OF_STEP = {"output": "output", "stdout": "output", "stderr": "stderr", "exit_code": "exit_code"}
_ITEM = ("item", "item_index", "item_id")
_OWN_KINDS = ("shell", "claude", "test")
_MERGED = {"source_branch": "merge_branch", "target_branch": "merge_branch", "worktree": "merge_worktree"}
_RESERVED = ("workflow", "step", "last", "merge", "map")
"""Roots of variables that Prodigy provides: no shell has a name with a dot, so an unknown one is refused."""
_RUN_ID = (("merge", "session_id"), ("workflow", "id"), ("workflow", "session_id"))
_MAP_FIELDS = ("total", "total_items", "successful", "failed", "skipped", "failure_rate", "results", "outcomes",
               "error_types", "failure_patterns", "dead_letters")  # fmt: skip
BRANCH = "prodigy-agent"
"""How the branches of items begin, as Prodigy names them."""
_MERGE_OF_ITEMS = re.compile(rf"(\bgit\s+merge\b[^\n;&|]*?)(['\"]?){BRANCH}-\*\2")
_BRANCHES_OF_ITEMS = r"\1$(printf 'HEAD %s' ${map.branches})"
"""A pattern names no branch for `git merge`: those of the items that succeeded; HEAD where there are none."""
_PLAIN = re.compile(r"[\w .-]+")
_PLACES = {"PROJECT_ROOT": "env.PWD", "WORKTREE": "env.PWD"}


class Where(Struct):
    """The context of a text in the file.

    `last` maps a kind (`shell`, `claude`, `any`) to the last such step before the text, for `shell.output`; `kept`
    has only steps with `capture_output: true`. `item` is the step around the text that runs once for each item. `env`
    has the fixed values of the environment. `taken` counts the names of neighbouring steps; unnamed ones are called by
    `prefix` and `count`. `is_top` marks a list of steps, not the commands of a handler.
    """

    env: dict[str, str] = {}
    item: str = ""
    in_handler: bool = False
    last: dict[str, str] = {}
    kept: dict[str, str] = {}
    taken: dict[str, int] = {}
    prefix: str = "step"
    count: int = 0
    is_top: bool = True

    def inner(self, prefix: str, *, in_handler: bool = False) -> Where:
        """The context of a list of commands inside this one."""
        return replace(
            self,
            in_handler=in_handler or self.in_handler,
            last=dict(self.last),
            kept=dict(self.kept),
            taken={},
            prefix=prefix,
            count=0,
            is_top=False,
        )


StepTranslator = Callable[["Translation", "list[Node]", Where], "list[Node]"]


class Translation(Reading):
    """State of translating one Prodigy file: names that texts can use, and declarations for the native file.

    `captured` maps each captured name to its form; `streams` are the names whose streams are used too; `files` maps
    (step, output) to the name that captures the file's path. `inputs` maps each input to whether it is required.
    With `names_branches` steps after the map name the branches of its items, and merge them.
    `step_translator` translates lists of steps inside maps, handlers and checks.
    """

    def __init__(self, source: Source, report: Diagnostics, step_translator: StepTranslator) -> None:
        super().__init__(source, report)
        self._step_translator = step_translator
        self.captured: dict[str, str] = {}
        self.capturers: dict[str, str] = {}
        self.files: dict[tuple[str, str], str] = {}
        self.streams: set[tuple[str, str]] = set()
        self.inputs: dict[str, bool] = {}
        self.before_all: list[Node] = []
        self.merged: set[str] = set()
        self.names_branches = False
        self.computed: dict[str, Node] = {}
        self.retries: Node | None = None
        self.handlers: dict[str, Node] = {}
        self.git_uses: list[Use] = []
        self.git_count = 0
        self.has_git_start = False
        self.workflow_name = ""
        self.ids: set[str] = set()

    def translate_steps(self, items: list[Node], where: Where) -> list[Node]:
        """Translate a list of steps to native steps."""
        return self._step_translator(self, items, where)

    def rewrite_shell(self, node: Node, where: Where) -> Node:
        """Rewrite the variables of a shell command."""
        if not isinstance(node, Scalar):
            return node
        made = self._rewrite_scalar(node, where, True)
        if not self.names_branches or not isinstance(made.value, str) or where.item:
            return made
        return word(_MERGE_OF_ITEMS.sub(_BRANCHES_OF_ITEMS, made.text), made)

    def rewrite_text(self, node: Node, where: Where) -> Node:
        """Rewrite the variables of a text that no shell reads, or of all texts in a list or mapping."""
        if isinstance(node, Scalar):
            return self._rewrite_scalar(node, where, False)
        if isinstance(node, Sequence):
            return Sequence([self.rewrite_text(item, where) for item in node.items], node.line, node.column)
        entries = {name: (key, self.rewrite_text(value, where)) for name, (key, value) in node.entries.items()}
        return Mapping(entries, node.line, node.column)

    def _rewrite_scalar(self, node: Scalar, where: Where, is_shell: bool) -> Scalar:
        if not isinstance(node.value, str) or "$" not in node.text:
            return node
        return word(self.rewrite(node.text, node, where, is_shell), node)

    def rewrite_fixed(self, node: Scalar, where: Where) -> str:
        """Rewrite a fixed value of the environment; refuse one that grows beyond bounds."""
        text = self.rewrite(node.text, node, where, False)
        if len(text) <= INLINED_CHARACTERS_MAX:
            return text
        message = f"with its variables this value has more than {INLINED_CHARACTERS_MAX} characters"
        self.report.error("limit", message, node)
        return ""

    def rewrite(self, text: str, node: Node, where: Where, is_shell: bool) -> str:
        """Rewrite the variables of a text as references; `node` is its position."""
        names = _shell_locals_of(text) if is_shell else None
        lacking: dict[str, str] = {}

        def replace_token(token: re.Match[str]) -> str:
            """Leave a token unchanged, or replace it by a reference."""
            name, is_bare = token[1] if token[2] is None else token[2], token[2] is not None
            if name is None:
                return token[0]
            root = _SHELL_NAME.match(name)
            if names is not None and root is not None and names.holds(root[0], token.start(), is_bare):
                if names.may_lack(root[0], token.start()) and root[0] not in lacking:
                    lacking[root[0]] = self.reference_for(root[0], node, where, is_shell) or ""
                # Only the shell expands `${name-}`; Resile leaves it alone.
                is_known = name in self.captured or (where.item and name in _ITEM)
                return f"${{{name}-}}" if is_known and not is_bare else token[0]
            found = self.reference_for(name, node, where, is_shell, is_bare=is_bare)
            return token[0] if found is None else found

        written = _TOKEN.sub(replace_token, text)
        return "".join(f"{name}={value}; " for name, value in lacking.items() if value) + written

    def reference_for(
        self, name: str, node: Node, where: Where, is_shell: bool, *, is_bare: bool = False
    ) -> str | None:
        """The reference or text for one variable, or None if it belongs to the shell."""
        if name.startswith("env:") and IDENTIFIER.fullmatch(name[4:]):
            return f"${{env.{name[4:]}}}"
        match = _REFERENCE.fullmatch(name)
        if match is None:
            return self._check_odd_name(name, node, where)
        root, path, default = match[1], match[2], match[4]
        fixed = path[1:] if root == "env" else "" if path else root
        if fixed in where.env and not is_shell:
            return where.env[fixed]
        if fixed in where.env and root == "env":
            return f"${{{fixed}}}"
        if (root, path) == ("workflow", ".name") and root not in self.captured:
            return self._name_of_workflow(node)
        found = self._resolve(root, path, node, where, has_default=default is not None)
        if found is None and root in _RESERVED and path and root not in where.env and default is None:
            message = f"`${{{shorten(name)}}}` is not provided"
            hint = "a step before can capture it: shell: …, capture: value"
            self.report.error("refused", message, node, hint=hint)
            return None
        if found is None and root in _RESERVED and path and root not in where.env:
            return default
        if found is None:
            # A variable of the shell, or of the environment.
            if default is None or is_bare or path or root in where.env:
                return None
            if is_shell:
                return f"${{{root}:-{default}}}" if "|" in name else None
            return default if not _DEFAULT_REFUSED.isdisjoint(default) else f"${{env.{root}:-{default}}}"
        if default is None:
            return f"${{{found}}}"
        if not _DEFAULT_REFUSED.isdisjoint(default):
            message = f"the default of `${{{shorten(name)}}}` is not taken: it holds quotes, brackets or a line break"
            self.report.warning("default", message, node)
            return f"${{{found}}}"
        if found in self.capturers:
            found = f"{reference_to_step(self.capturers[found])}.outputs.{found}"
        return f"${{{found}:-{default}}}" if "." in found else f"${{{found}}}"

    def _check_odd_name(self, name: str, node: Node, where: Where) -> str | None:
        """Check a variable that is no plain name: capture lists of changed files, leave the rest to the shell."""
        root, _, rest = name.partition(".")
        field, *modifiers = rest.split(":")
        if root in ("step", "workflow") and field in NAMES:
            return f"${{{self._capture_from_git(root, field, tuple(modifiers), node, where)}}}"
        known = IDENTIFIER.match(name)
        if "|" in name and known is not None and known[0] in self.captured:
            message = f"`${{{shorten(name)}}}` is left as it stands: the one filter that is known is `|default:`"
            self.report.warning("filter", message, node)
        return None

    def _capture_from_git(self, root: str, field: str, modifiers: tuple[str, ...], node: Node, where: Where) -> str:
        """The name that captures what steps changed in git; `translate_steps` adds the step that captures it."""
        if not where.is_top:
            message = (
                f"`${{{root}.{field}}}` is known to the steps of a list, not to handlers and steps after a success"
            )
            self.report.error("refused", message, node, hint="name it in the next step of the list")
            return field
        self.git_count += 1
        use = Use(root, field, modifiers, f"git_{self.git_count}", node)
        self.git_uses.append(use)
        return use.capture

    def _resolve(self, root: str, path: str, node: Node, where: Where, *, has_default: bool = False) -> str | None:
        """The native name of a variable, or None if the workflow does not define it."""
        if root == "ARG" or re.fullmatch(r"ARG_\d{1,3}", root):
            self.inputs[root] = self.inputs.get(root, False) or not has_default
            return None if path else f"inputs.{root}"
        if root in ("item", "item_json"):
            return f"item{path}" if where.item else None
        if root in ("item_id", "item_index", "index", "total"):
            if path or not where.item:
                return None
            return {"item_id": "item_id", "total": f"{reference_to_step(where.item)}.total"}.get(root, "item_index")
        field = path.removeprefix(".")
        if root == "merge" and root not in self.captured and field in MERGE_NAMES:
            return self._capture_from_git(root, field, (), node, where)
        is_special = root in _OWN_KINDS or root in ("CAPTURED_OUTPUT", "error", "validation", "merge", "env", "last")
        if is_special and root not in self.captured and (root, path[1:]) not in _RUN_ID:
            return self._resolve_special(root, path.lstrip("."), where)
        if (root, field) in self.files:
            return self.files[root, field]
        if root in self.captured:
            return f"{root}_{field}" if field in STREAMS and self.captured[root] != "json" else root + path
        if root in self.ids and field in (*STREAMS, "output"):
            return f"{reference_to_step(root)}.output" if field == "output" else f"{root}_{field}"
        if root == "map" and re.split(r"[.\[]", field)[0] in _MAP_FIELDS:
            # Prodigy's `results` include those of failed items.
            return "map" + re.sub(r"\A\.results\b", ".outcomes", path)
        if root in ("step", "workflow") and field in NAMES:
            return self._capture_from_git(root, field, (), node, where)
        if (root, field) in _RUN_ID:
            return self._capture_run_id(node)
        if root in _PLACES and root not in where.env and not path:
            return _PLACES[root]
        return None

    def _resolve_special(self, root: str, field: str, where: Where) -> str | None:
        """The native name of a variable that Prodigy itself provides."""
        match root:
            case "env":
                return f"env.{field}" if IDENTIFIER.fullmatch(field) else None
            case "error":
                return {"type": "error.kind", "item": "item"}.get(field, f"error.{field}")
            case "validation":
                return "error.attempt" if field == "attempt_number" and where.in_handler else f"validation.{field}"
            case "merge":
                if field not in _MERGED:
                    return None
                self.merged.add(_MERGED[field])
                return _MERGED[field]
        if where.in_handler and field in _OF_FAILURE:
            return _OF_FAILURE[field]
        if root in ("CAPTURED_OUTPUT", "last"):
            root, field = "any", "output" if root == "CAPTURED_OUTPUT" else field
        step = where.kept.get(root) or where.last.get(root)
        return f"{reference_to_step(step)}.{_OF_STEP[field]}" if step and field in _OF_STEP else None

    def _name_of_workflow(self, node: Node) -> str | None:
        """The name of the workflow, which the file fixes."""
        if _PLAIN.fullmatch(self.workflow_name):
            return self.workflow_name
        message = (
            "`${workflow.name}` is not put into texts: the name holds more than letters, digits, blanks, `.` and `-`"
        )
        self.report.error("refused", message, node)
        return None

    def _capture_run_id(self, node: Node) -> str:
        """The name that captures the number of the run, which a first step prints."""
        if "run_id" not in self.captured:
            self.captured["run_id"] = "text"
            step = {"id": "run id", "shell": 'echo "$RESILE_WORKFLOW_ID"', "capture": "run_id"}
            self.before_all.append(node_of(step, node))
        return "run_id"

    def declare(self, name: str, form: str, step: str) -> None:
        """Record that a step captures this name."""
        self.captured[name] = form
        if step:
            self.capturers.setdefault(name, step)


class StepDraft(Struct):
    """One step of the file during its translation: the values of its keys, its context, and the native step `out`.

    `metadata` has the values of the key `metadata`; `name` is the name of the native step.
    """

    t: Translation
    node: Mapping
    fields: dict[str, Node]
    where: Where
    out: Mapping
    name: str
    metadata: dict[str, Node] = {}

    def key(self, name: str) -> Scalar:
        """The node of one of the step's keys."""
        return self.node.entries[name][0]

    def put(self, key: str, value: Node, source: str = "") -> None:
        """Set a key of the native step at the position of the key `source`, which has the same name by default."""
        put(self.out, key, value, self.key(source or key))

    def copy(self, *names: str) -> None:
        """Copy those of these keys that the step has to the native step."""
        for name in names:
            if name in self.fields:
                self.put(name, self.fields[name])


def add_defaults(items: list[Node], entries: dict[str, tuple[Scalar, Node]]) -> list[Node]:
    """Add these keys to the mappings among some items, each where it has no such key itself."""
    return [
        Mapping({**entries, **item.entries}, item.line, item.column) if isinstance(item, Mapping) else item
        for item in items
    ]


def _shell_locals_of(text: str) -> ShellLocals:
    """The variables that a command sets itself."""
    from resile.dialects.prodigy.shell_locals import find_shell_locals

    tokens = [token for token in _TOKEN.finditer(text) if token[1] or token[2]]
    roots = {root[0] for token in tokens if (root := IDENTIFIER.match(token[1] or token[2]))}
    references = {token.start(): token[1] for token in tokens if token[1] and _REFERENCE.fullmatch(token[1])}
    return find_shell_locals(text, roots, references)


def reference_to_step(name: str) -> str:
    """The reference to a step by its name."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", name):
        return f"steps.{name}"
    return f'steps["{name}"]' if "'" in name else f"steps['{name}']"
