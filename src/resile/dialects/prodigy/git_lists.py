"""Translates `${step.files_added}` and the like: what a step, or the whole run so far, changed in git.

    ${step.NAME}        what the previous step changed
    ${workflow.NAME}    what the run has changed since it began
    ${merge.NAME}       the same, with the names and formats that Prodigy gives to the steps of `merge`
    ${step.NAME:GLOB}   only the files that match
    ${step.NAME:json}   as a JSON list; `:lines` and `:csv` likewise; without them, separated by spaces

Before a step that uses such a variable comes a step that captures its value. Uncommitted changes and untracked files
count, too.
"""

from __future__ import annotations

from shlex import quote

from msgspec import Struct

from resile.dialects.formats.nodes import Node
from resile.dialects.native.nodes import node_of

START = "git_start"
_FILES = {"files_added": "A", "files_modified": "M", "files_deleted": "D", "files_changed": ""}
_COUNTS = {
    "commit_count": 'git rev-list --count "$base"..HEAD',
    "insertions": "git diff --numstat \"$base\" | awk '{ n += $1 } END { print n + 0 }'",
    "deletions": "git diff --numstat \"$base\" | awk '{ n += $2 } END { print n + 0 }'",
}
NAMES = (*_FILES, *_COUNTS, "commits")
_CHANGED = '{ git diff --name-only "$base" --; git ls-files --others --exclude-standard; } | LC_ALL=C sort -u'
_JOIN = "paste -sd '|' - | sed 's/|/, /g'"
_QUOTE = r"""sed 's/\\/\\\\/g; s/"/\\"/g'"""
_COMMITS = r"""git log --reverse --format='%H%x09%h%x09%an%x09%cI%x09%s' "$base"..HEAD | @QUOTE | awk -F '\t' '
BEGIN { printf "[" }
{ said = $5; for (i = 6; i <= NF; i++) said = said "\\t" $i
  printf "%s{\"id\":\"%s\",\"short_id\":\"%s\",", (NR > 1 ? "," : ""), $1, $2
  printf "\"author\":\"%s\",\"timestamp\":\"%s\",\"message\":\"%s\"}", $3, $4, said }
END { print "]" }'"""
_MODIFIED = r"""{ git diff --name-status --no-renames "$base" --
git ls-files --others --exclude-standard | sed 's/^/A\t/'; } |
@QUOTE | LC_ALL=C sort -t "$(printf '\t')" -u -k 2 | awk -F '\t' '
BEGIN { printf "["; kind["A"] = "Added"; kind["D"] = "Deleted" }
{ printf "%s{\"path\":\"%s\",", (NR > 1 ? "," : ""), $2
  printf "\"modification_type\":\"%s\"}", ($1 in kind ? kind[$1] : "Modified") }
END { print "]" }'"""
_OF_MERGE = {
    "commits": _COMMITS.replace("@QUOTE", _QUOTE),
    "commit_count": _COUNTS["commit_count"],
    "commit_ids": f'git log --reverse --format=%h "$base"..HEAD | {_JOIN}',
    "modified_files": _MODIFIED.replace("@QUOTE", _QUOTE),
    "file_count": f"{_CHANGED} | wc -l | tr -d ' '",
    "file_list": f"{_CHANGED} | {_JOIN}",
}
_OUTSIDE_REPOSITORY = {"commits": "[]", "modified_files": "[]", "commit_count": "0", "file_count": "0"}
MERGE_NAMES = tuple(_OF_MERGE)
"""The names after `merge.`; the values of `commits` and `modified_files` are JSON lists of objects."""
_FORMS = {
    "": "paste -sd ' ' -",
    "lines": "cat",
    "csv": "paste -sd , -",
    "json": r"""sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&"/' | paste -sd , - | sed 's/.*/[&]/'""",
}


class Use(Struct, frozen=True):
    """One variable in the text of a step, `${root.field:modifier:modifier}`, and the name that captures its value."""

    root: str
    field: str
    modifiers: tuple[str, ...]
    capture: str
    node: Node


def make_steps(uses: list[Use], head: str) -> list[Node]:
    """Make the steps that capture these variables; `head` is the variable with the commit before the earlier step."""
    return [
        node_of(
            {
                "id": f"{use.root}.{use.field} {use.capture}",
                "shell": _command_of(use, START if use.root != "step" else head),
                "capture": use.capture,
            },
            use.node,
        )
        for use in uses
    ]


def make_head_step(name: str, node: Node) -> Node:
    """Make the step that captures the current commit under this name; an empty text outside of a repository."""
    return node_of({"id": name, "shell": "git rev-parse -q --verify HEAD || true", "capture": name}, node)


def _command_of(use: Use, base: str) -> str:
    """The command that prints the value of a variable: the changes since the commit that the variable `base` holds."""
    if use.root == "merge":
        nothing = _OUTSIDE_REPOSITORY.get(use.field, "")
        return f'base=${{{base}}}; test -n "$base" || {{ echo "{nothing}"; exit 0; }}; {_OF_MERGE[use.field]}'
    begin = f'base=${{{base}}}; test -n "$base" || exit 0; '
    if use.field in _COUNTS:
        return begin + _COUNTS[use.field]
    globs = [modifier for modifier in use.modifiers if modifier not in _FORMS]
    form = next((modifier for modifier in use.modifiers if modifier in _FORMS), "")
    if use.field == "commits":
        return f'{begin}git rev-list --reverse "$base"..HEAD | {_FORMS[form]}'
    only = _FILES[use.field]
    paths = "".join(f" {quote(glob)}" for glob in globs)
    found = f'git diff --name-only{f" --diff-filter={only}" if only else ""} "$base" --{paths}'
    if only in ("A", ""):
        found += f"; git ls-files --others --exclude-standard --{paths}"
    return f"{begin}{{ {found}; }} | LC_ALL=C sort -u | {_FORMS[form]}"
