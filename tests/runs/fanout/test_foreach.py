"""forEach: what a step below a producer sees, its own counters in each item, and jumps that stay inside."""

from __future__ import annotations

from tests.runs.fanout.runs import counts
from tests.runs.ladder.flows import Flows

LIST = "  list: {shell: \"echo '[3, 1, 2]'\", foreach: true}\n"


def test_every_dependent_runs_for_each_item_and_reduce_once(flows: Flows) -> None:
    """`fanout: map` is the default, `reduce` runs once after all items, with their results."""
    ran = flows.run(
        f"name: x\nsteps:\n{LIST}"
        "  each: {shell: './step each-${item}; echo ${steps.list.output}0', needs: [list]}\n"
        "  check: {shell: './step check-${steps.each.output}', needs: [each], fanout: map}\n"
        "  report: {shell: 'echo ${item_index} ${steps.list.output}; ./step report', needs: [check], fanout: reduce}\n"
    )
    assert ran.order == ["each-3", "check-30", "each-1", "check-10", "each-2", "check-20", "report"]
    assert counts(ran, "each+check") == (3, 3, 0, 0, 0)


def test_an_empty_array_runs_no_item(flows: Flows) -> None:
    """Nothing runs for no items, and the step after them does."""
    ran = flows.run(
        "name: x\nsteps:\n  list: {shell: \"echo '[]'\", foreach: true}\n"
        "  each: {shell: ./step each, needs: [list]}\n"
        "  report: {shell: ./step report, needs: [each], fanout: reduce}\n"
    )
    assert ran.order == ["report"]
    assert counts(ran, "each") == (0, 0, 0, 0, 0)


def test_an_output_that_is_no_array_fails_the_step(flows: Flows) -> None:
    """A single value is not taken for a list of one."""
    ran = flows.run(
        "name: x\nsteps:\n  list: {shell: echo 7, foreach: true}\n  each: {shell: ./step each, needs: [list]}\n", 1
    )
    assert ran.order == []
    assert ran.failed == "the output of 'list' is not a list"


def test_each_item_has_its_own_attempt_and_loop_counters(flows: Flows) -> None:
    """Each item may go back once and retry once, although the budget of a scope is two."""
    ran = flows.run(
        f"name: x\nrouting: {{max_loops: 2}}\nsteps:\n{LIST}"
        "  prepare: {shell: './step prepare-${item}', needs: [list]}\n"
        "  work:\n    shell: './step work-${item} 2'\n    needs: [prepare]\n"
        "    on_failure: {goto: prepare}\n"
    )
    one = [name for item in (3, 1, 2) for name in [f"prepare-{item}", f"work-{item}"] * 3]
    assert ran.order == one
    assert {route["scope"] for route in ran.document["routes"]} == {"list[0]", "list[1]", "list[2]"}


def test_a_spent_budget_fails_its_item_only(flows: Flows) -> None:
    """The item that loops too often fails with the message of the budget, the others are done."""
    ran = flows.run(
        "name: x\nrouting: {max_loops: 1}\nsteps:\n"
        + LIST.replace("true}", "true, error_policy: {continue_on_failure: true}}")
        + "  prepare: {shell: './step prepare-${item}', needs: [list]}\n"
        "  work:\n    shell: 'test ${item} -ne 1 || ./step work-1 9'\n    needs: [prepare]\n"
        "    on_failure: {goto: prepare}\n"
    )
    assert counts(ran, "prepare+work") == (3, 2, 1, 0, 0)
    (event,) = ran.of("loop_budget_exceeded")
    assert event["data"]["message"] == "Routing loop budget exceeded (max_loops=1) during on_failure goto"
    assert event["scope"] == "list[1]"


def test_expressions_see_the_foreach_context(flows: Flows) -> None:
    """`foreach` has key, index, total and path inside an item, and is null outside."""
    ran = flows.run(
        f"name: x\nsteps:\n{LIST}"
        "  each:\n    shell: exit 1\n    needs: [list]\n"
        '    on_failure: {run_js: "[`fix-${foreach.index}-${foreach.total}`]"}\n'
        "  fix-0-3: {shell: ./step first}\n  fix-1-3: {shell: ./step second}\n  fix-2-3: {shell: ./step third}\n"
        "  outside:\n    shell: exit 1\n    on_failure: {run_js: \"foreach === null ? ['note'] : []\"}\n"
        "  note: {shell: ./step note}\n",
        1,
    )
    assert sorted(ran.order) == ["first", "note", "second", "third"]


def test_names_are_resolved_inside_the_item(flows: Flows) -> None:
    """A remedy that is called for runs in the item that called for it, and sees that item."""
    ran = flows.run(
        f"name: x\nsteps:\n{LIST}"
        "  each:\n    shell: './step each-${item} 1'\n    needs: [list]\n    on_failure: {run: [mend]}\n"
        "  mend: {shell: './step mend-${item}'}\n"
    )
    assert ran.order == [name for item in (3, 1, 2) for name in (f"each-{item}", f"mend-{item}", f"each-{item}")]


def test_jumps_across_scopes_are_refused_when_the_file_is_loaded(flows: Flows) -> None:
    """Nothing leads out of an item, and nothing into one."""
    text = (
        f"name: x\nsteps:\n  before: {{shell: x}}\n{LIST.replace('foreach', 'needs: [before], foreach')}"
        "  each: {shell: x, needs: [list], on_failure: {goto: before}}\n"
        "  after: {shell: x, needs: [each], fanout: reduce, on_failure: {goto: each, run: [each]}}\n"
    )
    assert flows.refused(text) == [
        "`before` is outside of the item, and nothing jumps out of one",
        "`each` runs for each item, and nothing jumps into an item",
    ]


def test_a_computed_jump_out_of_an_item_is_not_taken(flows: Flows) -> None:
    """`goto_js` that names a step outside is recorded as rejected, and the failure stands."""
    ran = flows.run(
        f"name: x\nsteps:\n  before: {{shell: ./step before}}\n{LIST.replace('foreach', 'needs: [before], foreach')}"
        "  each: {shell: exit 1, needs: [list], on_failure: {goto_js: \"'before'\"}}\n",
        1,
    )
    assert ran.order == ["before"]
    assert len(ran.of("expression_rejected")) == 3


def test_on_finish_follows_the_last_item(flows: Flows) -> None:
    """Once, after all items, whatever came of them."""
    for shell, code in (("true", 0), ("exit 1", 1)):
        ran = flows.run(
            "name: x\nsteps:\n  list: {shell: \"echo '[1, 2]'\", foreach: true, on_finish: {run: [tell]}}\n"
            f"  each: {{shell: './step each-${{item}}; {shell}', needs: [list]}}\n  tell: {{shell: ./step tell}}\n",
            code,
        )
        assert ran.order == ["each-1", "each-2", "tell"]


def test_nested_fan_outs(flows: Flows) -> None:
    """A producer inside an item fans out again; `reduce` goes one level out at a time."""
    ran = flows.run(
        "name: x\nsteps:\n  outer: {shell: \"echo '[10, 20]'\", foreach: true}\n"
        "  inner: {shell: \"printf '[%s1, %s2]' ${item} ${item}\", needs: [outer], foreach: true}\n"
        "  leaf: {shell: './step leaf-${item}', needs: [inner]}\n"
        "  join: {shell: './step join-${steps.outer.output}-${steps.leaf.total}', needs: [leaf], fanout: reduce}\n"
        "  all: {shell: ./step all, needs: [join], fanout: reduce}\n"
    )
    assert ran.order == ["leaf-101", "leaf-102", "join-10-2", "leaf-201", "leaf-202", "join-20-2", "all"]


def test_an_item_sees_itself_while_its_list_is_made_again(flows: Flows) -> None:
    """A jump back runs the producer once more, which waits until further items have run: they know what they are."""
    ran = flows.run(
        """
steps:
  list:
    shell: |
      test -e seen && until test $(wc -l < seen) -ge 3; do sleep 0.02; done
      ./step list; echo [1, 2, 3, 4]
    foreach: true
    max_parallel: 1
  work:
    shell: echo ${item} >> seen; until grep -q judge trace; do sleep 0.02; done
    when: outputs.list > 0
    needs: [list]
  judge:
    shell: until test -e seen; do sleep 0.02; done; ./step judge 1
    needs: [list]
    fanout: reduce
    on_failure: {goto: list}
""",
        0,
        "--max-parallel",
        "3",
    )
    assert ran.order == ["list", "judge", "list", "judge"]
    assert [job for job in ran.document["jobs"] if job["step"] == "work" and job["status"] == "skipped"] == []
    assert ran.document["maps"]["work"]["successful"] == 4
