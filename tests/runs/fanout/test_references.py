"""`input` as one reference: the list that it stands for, wherever that comes from."""

from __future__ import annotations

import pytest

from tests.runs.ladder.flows import Flows

BOOKS = "inputs: {books: {type: json, default: [a, b]}}\n"
OBJECT = '- {id: list, shell: "echo \'{\\"l\\": [\\"a\\", \\"b\\"]}\'", capture: {d: json}}\n'


@pytest.mark.parametrize(
    ("before", "reference"),
    [
        ("", "${inputs.books}"),
        ("- {id: list, shell: \"printf 'a\\\\nb\\\\n'\", capture: {captured: lines}}\n", "${captured}"),
        ("- {id: list, shell: \"echo '[\\\"a\\\", \\\"b\\\"]'\", capture: captured}\n", "${captured}"),
        (OBJECT, "${d.l}"),
        (OBJECT, "${steps.list.output.l}"),
        ("- {id: list, shell: \"echo '[\\\"a\\\", \\\"b\\\"]'\"}\n", "${steps.list.output}"),
    ],
)  # fmt: skip
def test_a_list_by_its_name(flows: Flows, before: str, reference: str) -> None:
    """An input, what a step captured, a part of it, or what it printed."""
    ran = flows.run(
        f"{BOOKS}steps:\n{before}- {{id: m, map: {{input: '{reference}', steps: [{{shell: './step ${{item}}'}}]}}}}\n"
    )
    assert ran.order == ["a", "b"]


def test_a_map_inside_an_item_takes_a_list_of_the_item(flows: Flows) -> None:
    """Each item has its own."""
    ran = flows.run("""steps:
- id: outer
  map:
    input: [{n: x, files: [1, 2]}, {n: y, files: []}, {n: z, files: [3]}]
    steps:
    - id: inner
      map: {input: "${item.files}", steps: [{shell: "./step ${item}"}]}
""")
    assert ran.order == ["1", "2", "3"]


def test_an_item_has_the_name_that_its_map_gives(flows: Flows) -> None:
    """`item_name` is a second name for the item, which the items of an inner map and handlers see too."""
    ran = flows.run("""steps:
- id: outer
  map:
    input: [{n: 7, files: [1, 2]}]
    item_name: row
    steps:
    - id: inner
      map:
        input: "${row.files}"
        item_name: file
        max_parallel: 1
        steps:
        - {shell: "./step ${row.n}-${file}-${item}", when: "${file} > 1"}
        - {shell: exit 3, on_failure: "./step mended-${file}"}
""")
    assert ran.order == ["mended-1", "7-2-2", "mended-2"]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("${item.flies}", "`item` has no `flies`; it has: files, n"),
        ("${item.n}", "`${item.n}` is not a list"),
    ],
)
def test_what_is_no_list_fails_the_map_inside(flows: Flows, reference: str, message: str) -> None:
    """And says why, before an item runs."""
    ran = flows.run(
        f"""steps:
- id: outer
  map:
    input: [{{files: [1], n: 3}}]
    steps: [{{id: inner, map: {{input: "{reference}", steps: [{{shell: "./step ${{item}}"}}]}}}}]
""",
        1,
    )
    assert (ran.order, ran.of("attempt_failed")[0]["data"]["message"]) == ([], message)


def test_a_name_that_nobody_captures_is_refused(flows: Flows) -> None:
    """No shell reads it here, so it can't be the shell's."""
    messages = flows.refused("steps:\n- {id: m, map: {input: '${FILES}', steps: [{shell: x}]}}\n")
    assert messages == ["`${FILES}`: no step captures `FILES`, and no shell reads it here"]


def test_an_input_that_is_not_declared_is_refused(flows: Flows) -> None:
    """As in any other text."""
    messages = flows.refused("steps:\n- {id: m, map: {input: '${inputs.x}', steps: [{shell: x}]}}\n")
    assert messages == ["`${inputs.x}`: there is no input `x`"]
