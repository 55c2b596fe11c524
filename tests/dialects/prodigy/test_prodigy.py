"""What the texts, expressions and errors of Prodigy files come to."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

import pytest

from resile.dialects.compile import compile_text
from resile.dialects.prodigy.expressions import NotAnExpression, item_field_for, to_javascript
from resile.model.rules import Origin
from resile.model.workflow import Agent, Shell, Step, Workflow

# Where `v` and `j` are captured by the steps before, E is `x/y`, and the text is the third step's.
TEXTS = {
    "awk '{print $1}' | jq '{a: $area}'": ("awk '{print $1}' | jq '{a: $area}'", "awk '{print $1}' | jq '{a: $area}'"),
    "$$ $? $# $@ ${#v} ${v%x} $(date) `id` \\$v": ("$$ $? $# $@ ${#v} ${v%x} $(date) `id` \\$v", "$$ $? $# $@ ${#v} ${v%x} $(date) `id` \\$v"),
    "$v ${v} ${v:-none}": ("${v} ${v} ${steps.step-1.outputs.v:-none}", "${v} ${v} ${steps.step-1.outputs.v:-none}"),
    "${v.exit_code} ${v.stderr} ${v.success}": ("${v_exit_code} ${v_stderr} ${v_success}", "${v_exit_code} ${v_stderr} ${v_success}"),
    "${j.exit_code} ${j.a[0].b}": ("${j.exit_code} ${j.a[0].b}", "${j.exit_code} ${j.a[0].b}"),
    "v=1; echo $v ${v}": ("v=1; echo $v ${v-}", "v=1; echo ${v} ${v}"),
    "for v in a; do echo $v; done": ("for v in a; do echo $v; done", "for v in a; do echo ${v}; done"),
    "read -r v; echo $v; jq --arg j 1 '$j'": ("read -r v; echo $v; jq --arg j 1 '$j'", "read -r v; echo ${v}; jq --arg j 1 '${j}'"),
    "$ARG ${ARG_2:-b}": ("${inputs.ARG} ${inputs.ARG_2:-b}", "${inputs.ARG} ${inputs.ARG_2:-b}"),
    "$E ${E} ${env.E} ${E:-z}": ("$E ${E} ${E} ${E:-z}", "x/y x/y x/y x/y"),
    "${PORT:-80} $HOME ${env.HOME} ${env:HOME}": ("${PORT:-80} $HOME ${env.HOME} ${env.HOME}", "${env.PORT:-80} $HOME ${env.HOME} ${env.HOME}"),
    "${x|default:none} ${v|default:'none'}": ("${x:-none} ${steps.step-1.outputs.v:-none}", "${env.x:-none} ${steps.step-1.outputs.v:-none}"),
    "${x|length:3} ${a b}": ("${x|length:3} ${a b}", "${x|length:3} ${a b}"),
    "${shell.output} ${shell.exit_code} ${CAPTURED_OUTPUT}": ("${steps.step-2.output} ${steps.step-2.exit_code} ${steps.step-2.output}",) * 2,
    "${claude.output} $item ${item.x}": ("${claude.output} $item ${item.x}",) * 2,
    "${PROJECT_ROOT}": ("${env.PWD}", "${env.PWD}"),
}  # fmt: skip
WHEN = {
    "${a} == 'b'": '(${a} == "b")',
    '"${a}" != "b c"': '(${a} != "b c")',
    "${a.b} > 3 && ${c} <= 4.5": "(((${a.b} ?? NaN) > 3) && ((${c} ?? NaN) <= 4.5))",
    "${flag} == true || !${off}": "((String(${flag}) == String(true)) || !(!/^(|0|false|null)$/.test(${off} ?? '')))",
    "${x}": "!/^(|0|false|null)$/.test(${x} ?? '')",
    "${x.exists}": "((${x} ?? null) !== null)",
    "${a == 'b' && c.d}": "((${a} == \"b\") && !/^(|0|false|null)$/.test(${c.d} ?? ''))",
    "${a} contains 'x' and not (${b} =~ '^y')": "(((${a} ?? '').includes(\"x\")) && !(((new RegExp(\"^y\").test(${b} ?? '')))))",
    "true": "true",
}
FILTERS = {
    "severity == 'high'": '(item?.["severity"] == "high")',
    "item.score >= 10 OR File.score = 3": '(((item?.["score"] ?? NaN) >= 10) || (item?.["File"]?.["score"] == 3))',
    "path matches '\\.rs$' AND !is_null(owner)": '((new RegExp("\\\\.rs$").test(item?.["path"] ?? \'\')) && !(((item?.["owner"] ?? null) === null)))',
    "kind in ['a', 'b']": '((["a", "b"] ?? []).includes(item?.["kind"]))',
    "length(tags) == 3": "(((item?.[\"tags\"] ?? '').length) == 3)",
    "contains(name, 'x') && starts_with(name, 'y')": '(((item?.["name"] ?? \'\').includes("x")) && (String(item?.["name"] ?? \'\').startsWith("y")))',
    "a[0] == -1": '(item?.["a"]?.[0] == -1)',
}
NO_EXPRESSIONS = {
    "": "it ends too early",
    "a ==": "it ends too early",
    "== 3": "a value is missing before `==`",
    "(a": "`)` is missing",
    "a b": "`b` is not expected here",
    "nope(a)": "there is no function `nope`",
    "contains(a)": "`contains` takes 2 of them, not 1",
    "a == 'x${b}'": "'x${b}' mixes text and variables",
    "a ; b": "`; b` can't be read",
    "!" * 50 + "a": "it is nested deeper than 40 levels",
}
# Files with one mistake each: what is said, and where.
MISTAKES = {
    "- shell: a\n  capture_format: json\n": ("`capture_format` has no meaning without `capture`", 2, 3),
    "- shell: a\n  claude: b\n": ("a step does one thing: `shell` or `claude`", 2, 3),
    "- on_failure: a\n": ("`on_failure` stands alone, and there is no step before it", 1, 3),
    "- shell: a\n  when: '${a} =='\n": ("`${a} ==` is no expression: it ends too early", 2, 9),
    "- shell: a\n  timeout: soon\n": ("`soon` is not a duration: expected a duration", 2, 12),
    "- shell: a\n  capture: v\n  capture_format: xml\n": ("expected one of string, json, lines, number, boolean, not `xml`", 3, 19),
    "- shell: a\n  capture: v\n  capture_streams: {stdout: false}\n": ("`stdout: false` is not run: the name stands for it", 3, 21),
    "- shell: a\n  parallel: 2\n": ("`parallel` has no meaning without `foreach`", 2, 3),
    "- shell: a\n  do: [b]\n": ("`do` has no meaning without `foreach`", 2, 3),
    "- foreach: {items: [1], parallel: 2, do: [{shell: a}]}\n  parallel: 3\n": ("`parallel` stands in `foreach` and beside it", 2, 13),
    "commands: [{shel: a}]\n": ("a step has no key `shel`", 1, 13),
    "map: {input: [1], agent_template: [{shell: a}], timeout_config: {command_timeouts: {shell_7: 3}}}\n": ("no command of the items is `shell_7`", 1, 94),
    "map: {input: [1], agent_template: [{shell: a}], timeout_config: {command_timeouts: {bash: 3}}}\n": ("no command of the items is `bash`", 1, 91),
    "setup: {commands: [{shell: a}], capture_outputs: {V: {command_index: 0, pattern: '('}}}\nmap: {input: [1], agent_template: [{shell: a}]}\n": ("`(` is no regular expression: missing ): (", 1, 82),
    "- shell: a\n  validate: {threshold: 5}\n": ("`validate` has neither a command nor a `result_file`", 2, 13),
    "- shell: a\n  validate: {shell: b, threshold: 105}\n": ("expected a number from 0 to 100, not `105`", 2, 35),
    "- shell: a\n  on_failure: {commands: [b], shell: c}\n": ("`commands` and `shell` both say what the handler runs", 2, 31),
    "- shell: a\n  on_exit_code: {300: {shell: b}}\n": ("expected an exit code from 1 to 255, not `300`", 2, 18),
    "- goal_seek: {shell: a}\n": ("`goal_seek` needs `validate`, and `shell` or `claude`", 1, 14),
    "- foreach: [a]\n": ("`foreach` needs its items and `do`", 1, 12),
    "- shell: a\n  retry: {attempts: 0}\n": ("expected a whole number of attempts from 1 on, not `0`", 2, 21),
    "- write_file: {path: a, content: b, format: toml}\n": ("expected one of text, json, yaml, not `toml`", 1, 45),
    "mode: mapreduce\ncommands: [{shell: a}]\n": ("`mode: mapreduce` needs `map`", 1, 1),
    "mode: mapreduce\nmap: {agent_template: [{shell: a}]}\n": ("`map` needs `input`", 2, 6),
    "map: {input: [1], agent_template: [{shell: a}], max_parallel: $N}\n": ("`$N` is not known before the run", 1, 63),
    "map: {input: [1], agent_template: [{shell: a}], filter: 'a ='}\n": ("`a =` is no filter: it ends too early", 1, 57),
    "map: {input: [1], agent_template: [{shell: a}], sort_by: a NULLS FIRST}\n": ("`NULLS FIRST` is not run: items without the field come last", 1, 58),
    "commands: [{shell: a}]\nreduce: [{shell: b}]\n": ("`reduce` has no meaning without `map`", 2, 1),
    "commands: [{shell: a}]\nsecrets: {S: {provider: vault, key: k}}\n": ("`provider: vault` is not run: secrets come from variables or files", 2, 25),
    "commands: [{shell: a}]\nenv: {S: {secret: true, value: hunter2}}\n": ("the secret `S` is written in the file, where it can't be one", 2, 32),
    "- claude: '${step.commits}'\n": ("`${step.commits}` is about the step before, and this is the first of its list", 1, 11),
    "- shell: a\n  on_failure: {claude: '${step.commits}'}\n": ("`${step.commits}` is known to the steps of a list, not to handlers and steps after a success", 2, 24),
    "- shell: a ${workflow.date}\n": ("`${workflow.date}` is not provided", 1, 10),
    "- claude: a ${merge.nobody}\n": ("`${merge.nobody}` is not provided", 1, 11),
}  # fmt: skip


def compiled(text: str, profile: str = "") -> Workflow:
    """The workflow in a Prodigy file without errors."""
    result = compile_text(text, file="flow.yml", folder="/f", profile=profile)
    assert [finding.render() for finding in result.diagnostics if finding.severity == "error"] == []
    assert result.workflow is not None
    return result.workflow


@pytest.mark.parametrize("text", TEXTS)
def test_variables_become_references(text: str) -> None:
    """In a command and in a prompt; what is not ours stays as it stands, byte for byte."""
    import msgspec

    start = "{env: {E: x/y}, commands: [{shell: a, capture: v}, {shell: b, capture: j, capture_format: json}, "
    written = msgspec.json.encode(text).decode()
    command, prompt = (compiled(f"{start}{{{key}: {written}}}]}}").steps[2].action for key in ("shell", "claude"))
    assert isinstance(command, Shell)
    assert isinstance(prompt, Agent)
    assert (command.command, prompt.prompt) == TEXTS[text]


@pytest.mark.parametrize("text", WHEN)
def test_conditions_become_javascript(text: str) -> None:
    """`when` in each form that files and documents use."""
    assert to_javascript(text, lambda path: f"${{{path}}}") == WHEN[text]


@pytest.mark.parametrize("text", FILTERS)
def test_filters_become_javascript(text: str) -> None:
    """The fields of an item are named as they are."""
    assert to_javascript(text, item_field_for) == FILTERS[text]


@pytest.mark.parametrize("text", NO_EXPRESSIONS)
def test_what_is_no_expression(text: str) -> None:
    """It is said why."""
    with pytest.raises(NotAnExpression) as problem:
        to_javascript(text, item_field_for)
    assert str(problem.value) == NO_EXPRESSIONS[text]


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_has_its_place(text: str) -> None:
    """One error, where the mistake stands."""
    result = compile_text(text, file="flow.yml")
    errors = [finding for finding in result.diagnostics if finding.severity == "error"]
    assert [(error.message, error.line, error.column) for error in errors] == [MISTAKES[text]]


def test_rules_point_into_the_users_file() -> None:
    """The origin of every rule is the key that it comes from."""
    text = "- shell: a\n  on_failure:\n    claude: b\n    max_attempts: 3\n    fail_workflow: false\n  on_exit_code:\n    4: {shell: c}\n"
    (step,) = compiled(text).steps
    assert [(rule.text, rule.then, rule.origin) for rule in step.rules] == [
        ("on_exit_code 4", "recovered", Origin(7, 5)),
        ("on_failure: max_attempts 3", "retry", Origin(4, 5)),
        ("fail_workflow: false", "tolerate", Origin(5, 5)),
    ]


def test_labels_are_names() -> None:
    """By `id`, `name` or `description`, made fit and unique; else by the place."""
    text = """
- {shell: a, name: Build it}
- {shell: a, name: Build it}
- {shell: a}
- {shell: a, id: x, name: y}
- {shell: a, description: "Say | what\\nit is"}
- {shell: a, name: end}
"""
    names = [step.name for step in compiled(text).steps]
    assert names == ["Build it", "Build it (2)", "step-3", "x", "Say / what it is", "step-6"]


def test_the_phases_of_a_map_are_one_list() -> None:
    """Setup, commands, the map, reduce, merge: each needs the one before."""
    text = """
setup: [{shell: a}]
tasks: [{shell: b}]
map: {input: [1], agent_template: {commands: [{shell: c}]}}
reduce: [{shell: d}]
merge: {commands: [{shell: "e ${merge.source_branch}"}], timeout: 5}
"""
    steps = compiled(text).steps
    assert [step.name for step in steps] == ["setup-1", "step-1", "map", "reduce-1", "merge branch", "merge-1"]
    assert [step.needs[0].any_of for step in steps[1:]] == [(step.name,) for step in steps[:-1]]
    assert steps[-1].timeout_seconds == 5.0


def test_commits_ask_for_worktrees() -> None:
    """Items whose steps commit, or ask an agent, need worktrees; others have them in a git checkout."""
    templates = (
        "{shell: a, commit_required: true}", "{shell: a, on_failure: {claude: b}}", "/slash", "{name: fix}",
        "{analyze: {max_cache_age: 1}}", "{foreach: [x], do: [{claude: b}]}", "{shell: a}",
    )  # fmt: skip
    found = [compiled(f"map: {{input: [1], agent_template: [{step}]}}").steps[0].action for step in templates]
    assert [getattr(action, "isolation", "") for action in found] == [*["worktree"] * 6, "auto"]
    assert [getattr(action, "branch", "") for action in found] == ["prodigy-agent"] * 7


def test_a_profile_is_added_to_the_environment() -> None:
    """The chosen one and no other; one that is not there is an error that lists them."""
    text = "env: {A: a, B: b}\nprofiles: {dev: {A: d, description: At home.}, ci: {A: c}}\ncommands: [{claude: 'p $A'}]"
    assert compiled(text).env == {"A": "a", "B": "b"}
    chosen = compiled(text, "dev")
    assert chosen.env == {"A": "d", "B": "b"}
    assert chosen.steps[0].action == Agent("p d")
    (finding,) = compile_text(text, profile="production").diagnostics
    assert finding.message == "there is no profile `production`"
    assert finding.hint == "its profiles: dev (At home.), ci"


def test_a_check_is_made_of_steps() -> None:
    """Check, measure, complete; the loop is the ladder of `complete`."""
    text = """
- claude: make
  validate:
    commands: [{shell: one}, {shell: two}]
    threshold: 75
    on_incomplete: {claude: mend, max_attempts: 3, fail_workflow: false, commit_required: true}
"""
    (step,) = compiled(text).steps
    assert step.on_success is not None
    check1, check2, measure, complete = step.on_success.steps
    assert [inner.name for inner in step.on_success.steps] == ["check-1", "check-2", "measure", "complete"]
    assert [rule.then for rule in check1.rules] == ["recovered"]
    assert check2.when is not None
    assert check2.when.source == "${validation_code} == 0"
    assert measure.capture[0].name == "validation"
    assert [(rule.then, rule.limit) for rule in complete.rules] == [("retry", 3), ("recovered", 1)]
    repair = complete.rules[0].repair
    assert repair is not None
    assert [inner.name for inner in repair.steps] == ["on_incomplete-1", "check-1", "check-2", "measure"]
    assert [inner.commit_required for inner in repair.steps] == [True, False, False, False]


def test_a_step_that_is_its_own_check_runs_again() -> None:
    """`validate` with just a file: after `on_incomplete` the step's own command makes the file anew."""
    (step,) = compiled("- {claude: look, validate: {result_file: f, on_incomplete: [{claude: mend}]}}").steps
    assert step.on_success is not None
    assert [inner.name for inner in step.on_success.steps] == ["measure", "complete"]
    repair = step.on_success.steps[1].rules[0].repair
    assert repair is not None
    assert [(inner.name, inner.action) for inner in repair.steps[:2]] == [
        ("on_incomplete-1", Agent("mend")),
        ("check", Agent("look")),
    ]


def test_an_unknown_key_is_told_with_the_nearest() -> None:
    """A typing error is not swallowed, as it is by Prodigy."""
    result = compile_text("- shell: a\n  on_failur: b\n", file="flow.yml")
    (finding,) = result.diagnostics
    assert (finding.message, finding.hint) == ("a step has no key `on_failur`", "did you mean `on_failure`?")


def test_handlers_may_hold_handlers() -> None:
    """A handler is a full step: what it says about its own failures is kept."""
    text = "- shell: a\n  on_failure:\n    shell: b\n    on_failure: {claude: c}\n    on_success: {shell: d}\n"
    (step,) = compiled(text).steps
    repair = step.rules[0].repair
    assert repair is not None
    inner: Step = repair.steps[0]
    assert inner.action == Shell("b")
    assert [rule.then for rule in inner.rules] == ["recovered"]
    assert inner.on_success is not None
    assert [step.action for step in inner.on_success.steps] == [Shell("d")]


def test_what_of_a_variable_is_not_taken_is_told() -> None:
    """A filter that nobody knows, and a default that no reference can hold."""
    text = "- {shell: x, capture: v, capture_format: json}\n- shell: echo ${v|length:100} ${v.a:-[]} ${v.b:-none} ${w|length:3}\n"
    found = compile_text(text, file="flow.yml")
    assert found.workflow is not None
    assert [finding.message for finding in found.diagnostics if finding.severity == "warning"] == [
        "`${v|length:100}` is left as it stands: the one filter that is known is `|default:`",
        "the default of `${v.a:-[]}` is not taken: it holds quotes, brackets or a line break",
    ]
