"""Which variables of a command are the command's own, and that no other is ever emptied."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from resile.dialects.compile import compile_text
from resile.model.workflow import Shell
from tests.dialects.prodigy.folder import Folder

# Where `v` and `j` are captured by steps before; what is written, and what becomes of it.
OURS = (
    'git commit -qm "chore: v=${v}"',
    "echo v=${v} --v=${v} 'http://x/?v=${v}&b=1'",
    'echo "- v: ${v}"; echo "v = ${v}"',
    "cat <<E\nv=${v}\nread v\nE\necho ${v}",
    "# v=foo, read v, for v in\necho ${v}",
    "echo please read v ${v}",
    "echo for v in ${v}",
    "printf 'v=%s\\n' ${v}",
    "env v=${v} cmd ${v}",
    "make v=${v} ${v}; x=v=${v}; echo ${v}",
    "test v = ${v} && echo ${v} > v=${v}",
    "echo ${v.length} ${v[0]}",
)
OWN = {
    "v=1; echo $v ${v} ${v:-x}": "v=1; echo $v ${v-} ${v:-x}",
    'v="v${v}"; echo $v': 'v="v${v}"; echo $v',
    "v='${v}'\necho \"$v\" | cat": "v='${v}'\necho \"$v\" | cat",
    "echo $v; v=1\necho $v": "echo ${v}; v=1\necho $v",
    "v=1 j=$v; echo $v $j": "v=1 j=$v; echo $v $j",
    "v=(${v} b); echo ${v[0]}": "v=(${v} b); echo ${v[0]}",
    "export v=${v}; echo $v; sh -c 'echo $v ${v}'": "export v=${v}; echo $v; sh -c 'echo $v ${v-}'",
    "declare -r v=1; readonly j=2; echo $v $j": "declare -r v=1; readonly j=2; echo $v $j",
    "export v; echo $v": "export v; echo ${v}",
    "for v in ${v}; do echo ${v}; done": "for v in ${v}; do echo ${v-}; done",
    "select v in a b; do echo $v; done": "select v in a b; do echo $v; done",
    "while IFS= read -r v; do echo $v; done < $j": "while IFS= read -r v; do echo $v; done < ${j}",
    'read -p "is $v" -r v j <<< "$v"; echo $v $j': 'read -p "is ${v}" -r v j <<< "${v}"; echo $v $j',
    'while getopts "ab" v; do echo $v; done': 'while getopts "ab" v; do echo $v; done',
    "mapfile -t v < f; echo ${v[@]} ${v}": "mapfile -t v < f; echo ${v[@]} ${v-}",
    # It ends where the shell that has it ends.
    "(v=1; echo $v); echo $v": "(v=1; echo $v); echo ${v}",
    "x=$(v=2; echo $v) y=$v": "x=$(v=2; echo $v) y=${v}",
    "x=`v=2; echo $v`; echo $v": "x=`v=2; echo $v`; echo ${v}",
    "ls | while read v; do echo $v; done; echo $v": "ls | while read v; do echo $v; done; echo ${v}",
    "ls |\nwhile read v; do echo $v\ndone\necho $v": "ls |\nwhile read v; do echo $v\ndone\necho ${v}",
    "f() { local v=$1; echo $v; }; f a; echo $v": "f() { local v=$1; echo $v; }; f a; echo ${v}",
    # In front of a command it is for the program.
    "v=${v} sh -c 'echo $v'; echo $v": "v=${v} sh -c 'echo $v'; echo ${v}",
    'v=1 cmd $v "$v"': 'v=1 cmd ${v} "${v}"',
    "env v=2 sh -c 'echo $v ${v}'": "env v=2 sh -c 'echo $v ${v-}'",
    # A here-document is read as things stand where it is announced.
    "read v <<E\n$v\nE\necho $v": "read v <<E\n${v}\nE\necho $v",
    "while read j; do echo $j; done <<E\n$j\nE": "while read j; do echo $j; done <<E\n${j}\nE",
    "v=1; cat <<E\n$v\nE": "v=1; cat <<E\n$v\nE",
    # Code and programs in quotes.
    "find . -exec sh -c 'for v in \"$@\"; do echo $v ${v}; done; echo $j' _ {} +": "find . -exec sh -c 'for v in \"$@\"; do echo $v ${v-}; done; echo ${j}' _ {} +",
    "bash <<'E'\nv=1; echo $v $j\nE": "bash <<'E'\nv=1; echo $v ${j}\nE",
    "sh -c 'echo $(' $v": "sh -c 'echo $(' ${v}",
    "jq --arg v ${v} '{v: $v}'; echo '$v'": "jq --arg v ${v} '{v: $v}'; echo '$v'",
    "jq --arg v ${v} '{w: \"${v}\"}'": "jq --arg v ${v} '{w: \"${v}\"}'",
    "jq '{v: $v}' --argjson v \"$v\"": "jq '{v: $v}' --argjson v \"${v}\"",
    "jq '.[] as $v | $v.a' <<< $v; jq '. as [$j] | def f($v): $j, $v; .'": "jq '.[] as $v | $v.a' <<< ${v}; jq '. as [$j] | def f($v): $j, $v; .'",
    "echo 'known as $v'": "echo 'known as ${v}'",
    "awk -v v=2 '{print $v}' $v": "awk -v v=2 '{print $v}' ${v}",
    # Where it may get no value it has ours to begin with.
    'if [ -z "$v" ]; then v=1; fi; echo $v': 'v=${v}; if [ -z "${v}" ]; then v=1; fi; echo $v',
    '[ -n "$v" ] || v=1\necho ${v}': 'v=${v}; [ -n "${v}" ] || v=1\necho ${v-}',
    "v+=-dev; echo $v": "v=${v}; v+=-dev; echo $v",
    "case $j in a) v=1;; esac; echo $v": "v=${v}; case ${j} in a) v=1;; esac; echo $v",
    "if x; then v=1; echo $v; fi": "if x; then v=1; echo $v; fi",
    # What can't be followed keeps what was found up to there.
    "v=1; echo $v 'open": "v=1; echo $v 'open",
    "[ $ARG ] || ARG=1; echo $ARG": "ARG=${inputs.ARG}; [ ${inputs.ARG} ] || ARG=1; echo $ARG",
}  # fmt: skip


def written(text: str) -> str:
    """What a command becomes."""
    steps = f"[{{shell: a, capture: v}}, {{shell: b, capture: j}}, {{shell: {msgspec.json.encode(text).decode()}}}]"
    workflow = compile_text(steps, file="flow.yml").workflow
    assert workflow is not None
    action = workflow.steps[2].action
    assert isinstance(action, Shell)
    return action.command


@pytest.mark.parametrize("text", OURS)
def test_what_only_looks_like_an_assignment_is_none(text: str) -> None:
    """Arguments, quoted texts, comments and here-documents give no values to anything."""
    assert written(text) == text
    assert written(text.replace("${v}", "$v")) == text


@pytest.mark.parametrize("text", OWN)
def test_a_variable_of_the_command_is_its_own(text: str) -> None:
    """From where it has a value to where that ends; before and behind that it is ours."""
    assert written(text) == OWN[text]


def test_an_item_keeps_its_fields() -> None:
    """No shell has a variable with fields, so such a one is ours also where the name is the command's."""
    text = "map: {input: [1], agent_template: [{shell: 'item=''${item}''; echo \"$item ${item} ${item.name}\"'}]}"
    workflow = compile_text(text, file="flow.yml").workflow
    assert workflow is not None
    (step,) = workflow.steps[0].action.steps  # type: ignore[union-attr]
    assert step.action == Shell("item='${item}'; echo \"$item ${item-} ${item.name}\"")


def test_no_value_is_emptied(tmp_path: Path) -> None:
    """The forms that files have, run for real: each line has the value."""
    lines = [
        'echo "chore: version=${version}"',
        "echo version=${version}",
        "env version=${version} sh -c 'echo $version'",
        'version="${version}"; echo $version',
        "export version=${version}; sh -c 'echo $version'",
        "cat <<E\nversion=${version}\nE",
        "# version=foo\necho $version",
        "for version in ${version}; do echo $version; done",
        "echo please read version ${version}",
        "version='${version}'; echo \"$version\"",
        'if [ -z "$version" ]; then version=none; fi; echo $version',
        "version=${version} sh -c 'echo $version'",
        "echo ${version} | while read version; do echo $version; done",
    ]
    steps = [{"shell": "echo 1.2", "capture": "version"}, *({"shell": f"{{ {line}\n}} >> trace"} for line in lines)]
    trace = Folder(tmp_path).run(msgspec.json.encode(steps).decode())
    starts = ["chore: version=", "version=", "", "", "", "version=", "", "", "please read version ", "", "", "", ""]
    assert trace == [f"{start}1.2" for start in starts]


def test_an_argument_may_be_given_again(tmp_path: Path) -> None:
    """Where a name is only given to itself the argument is still asked for, and comes through."""
    folder = Folder(tmp_path)
    text = '- shell: |\n    ARG="$ARG"\n    ./step "$ARG"\n'
    assert folder.run(text, "--input", "ARG=a b") == ["a b"]
