"""Code in a workflow: `when` as an expression, run_js and goto_js with what they can see, and what is refused."""

from __future__ import annotations

from tests.engine.conftest import Place, statuses


def test_when_is_an_expression_over_values(place: Place) -> None:
    """`${x}` stands for the value itself, whatever it holds; what it names but nobody knows is null."""
    code, document = place.run(
        """
resile: 1
inputs: {target: {default: release, type: text}, n: {default: 3, type: number}}
steps:
  - {id: yes, shell: 'true', when: "${inputs.target} == 'release' && ${inputs.n} > 2"}
  - {id: no, shell: 'true', when: "${inputs.target} !== 'release'"}
  - id: out
    shell: echo '[1,2]'
    capture: {list: json}
  - {id: long, shell: 'true', when: "${list}.length === 2"}
""",
        "--input",
        "target=release",
    )
    assert (code, statuses(document)) == (
        0,
        {"yes": "completed", "no": "skipped", "out": "completed", "long": "completed", "end": "completed"},
    )


def test_a_hostile_value_in_an_expression_is_only_a_value(place: Place) -> None:
    """It can't end the string it is compared with, because it never is part of the code."""
    code, document = place.run(
        "resile: 1\ninputs: {v: text}\nsteps:\n  a: {shell: 'true', when: \"${inputs.v} == 'x'\"}\n",
        "--input",
        "v=' || true || '",
    )
    assert (code, statuses(document)["a"]) == (0, "skipped")


def test_an_expression_that_does_not_parse_is_refused_when_the_file_is_loaded(place: Place) -> None:
    """Exit 2 with the place in the file; nothing runs."""
    code, document = place.run("resile: 1\nsteps:\n  a: {shell: touch ran}\n  b: {shell: 'true', when: 'a ==='}\n")
    assert (code, document["error"]["code"]) == (2, "expression")
    assert document["error"]["where"].startswith("flow.yaml:4:")
    assert not (place.folder / "ran").exists()


def test_an_expression_that_goes_wrong_fails_its_step(place: Place) -> None:
    """The step fails, the message says why, and nothing after it runs."""
    code, document = place.run(
        "resile: 1\nsteps:\n  - {id: a, shell: 'true', when: nothing.here}\n  - {id: b, shell: 'true'}\n"
    )
    assert (code, statuses(document)) == (1, {"a": "failed", "b": "canceled", "end": "completed"})
    assert document["first_failure"]["message"] == (
        "`when: nothing.here` at flow.yaml:3:34: ReferenceError: nothing is not defined (line 1, column 1)"
    )


def test_code_chooses_the_remedy_from_the_error(place: Place) -> None:
    """run_js sees stderr, exit code, attempt and outputs; the step runs again after what it names."""
    code, document = place.run("""
resile: 1
steps:
  seed:
    shell: echo '{"kind":"soft"}'
  build:
    needs: [seed]
    shell: echo build >> order; test -e fixed || { echo lint problem >&2; exit 4; }
    on_failure:
      run_js: |
        const fixes = [];
        if (error.stderr.includes('lint') && error.exitCode === 4 && outputs.seed.kind === 'soft' && attempt === 1)
          fixes.push('fix');
        return fixes;
  fix: {shell: echo fix >> order; touch fixed}
""")
    assert (code, place.text("order").split()) == (0, ["build", "fix", "build"])
    assert {job["step"]: job["recovered"] for job in document["jobs"]}["build"]


def test_code_chooses_where_to_go_and_falls_back_to_the_static_target(place: Place) -> None:
    """An answer that is no ancestor is recorded; then `goto` applies."""
    for answer, expected in (("'middle'", ["s", "m", "a", "m", "a"]), ("'nowhere'", ["s", "m", "a", "s", "m", "a"])):
        (place.folder / "order").write_text("")
        (place.folder / "ok").unlink(missing_ok=True)
        code, _ = place.run(f"""
resile: 1
steps:
  setup: {{shell: echo s >> order}}
  middle: {{shell: echo m >> order, needs: [setup]}}
  a:
    needs: [middle]
    shell: echo a >> order; test -e ok || {{ touch ok; exit 1; }}
    on_failure:
      goto: setup
      goto_js: return {answer};
""")
        assert (code, place.text("order").split()) == (0, expected)
