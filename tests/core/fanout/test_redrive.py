"""Dead letters of maps inside of others, of child workflows and of handlers run again, where they were."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from resile.core.actions import Order, ReadGroups, ReadItems
from resile.core.events import CancelRequested, EpochStarted, Event, Redriven, RunResumed
from resile.core.scheduling.scopes import restore_scope
from resile.core.state import ROOT, decode, encode, new_state
from resile.model.failure import Outcome
from resile.model.items import LetterGroup
from resile.model.workflow import Child, Need, Noop, Repair, Rule, Step, Workflow
from tests.core.items import SH, Items, fan, step
from tests.core.world import OK, failed, flow


def child(name: str, *steps: Step) -> Step:
    """A step that runs another workflow."""
    end = Step(name="end", action=Noop())
    inner = Workflow(name="inner", dialect="native", file="", folder="", steps=steps, end=end)
    return Step(name=name, action=Child(path="inner.yaml", workflow=inner))


def leaf_fails(name: str, index: int, _number: int) -> Outcome:
    """Every second item fails at its leaf."""
    return failed() if name == "leaf" and index % 2 else OK


def all_pass(_name: str, _index: int, _number: int) -> Outcome:
    """The cause is gone."""
    return OK


NESTED = {
    "map in map": flow(fan(fan(step("leaf"), name="inner"))),
    "map in child": flow(child("sub", fan(step("leaf")))),
    "map in child in item": flow(fan(child("sub", fan(step("leaf"), name="inner")))),
    "child in item of a map in a child": flow(child("sub", fan(child("low", fan(step("leaf"), name="inner"))))),
    "map in map in map": flow(fan(fan(fan(step("leaf"), name="low"), name="mid"))),
    "map in item with more steps": flow(fan(step("first"), fan(step("leaf"), name="in", needs=("first",)), step("x"))),
}


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("case", NESTED)
def test_letters_at_any_depth_run_again_where_they_were(case: str, parallel: int) -> None:
    """Only the failed leaves run, in their own scopes; then no letter is left, and nothing restored either."""
    world = Items(NESTED[case], total=4, item=leaf_fails, parallel=parallel).until_end()
    letters = sorted(world.letters)
    assert letters
    held, before = len(world.state.jobs), len(world.runs)
    world.item = all_pass
    world.redrive(parallel=parallel)
    assert sorted(world.runs[before:]) == [f"{name}/leaf" for name in letters]
    assert (world.letters, world.ended) == ({}, "completed")
    assert world.state.redrive is None
    world.feed(RunResumed(world.clock, world.capacity))
    assert (len(world.state.jobs), list(world.state.scopes)) == (held, [ROOT])


def test_what_fails_again_stays_and_can_be_tried_a_third_time() -> None:
    """The counts that were kept with the scope are right for each redrive, and each history is one longer."""
    world = Items(NESTED["map in map"], total=4, item=leaf_fails).until_end()
    assert len(world.letters) == 8
    world.item = lambda name, index, _number: failed() if (name, index) == ("leaf", 3) else OK
    world.redrive()
    assert sorted(world.letters) == [f"map[{outer}]/inner[3]" for outer in range(4)]
    assert {len(letter.item.history) for letter in world.letters.values()} == {2}
    kept = [kept.body["fans"] for kept in world.kept.values()]
    assert {(fan["successful"], fan["failed"]) for found in kept for fan in found.values()} == {(3, 1)}
    world.item = all_pass
    world.redrive("map[1]/inner[3]")
    assert sorted(world.letters) == [f"map[{outer}]/inner[3]" for outer in (0, 2, 3)]


def test_the_totals_of_inner_maps_outlive_their_scopes() -> None:
    """The scopes of outer items are dropped when they end; how many inner items there were stays known exactly."""
    world = Items(NESTED["map in map"], total=4, item=leaf_fails).until_end()

    def totals() -> dict[str, tuple[int, int, int]]:
        known = world.state.closed_map_totals
        return {name: (fan.total, fan.successful, fan.failed) for name, fan in known.items()}

    assert totals() == {"map/inner": (16, 8, 8)}
    world.item = all_pass
    world.redrive("map[1]/inner[3]")
    assert totals() == {"map/inner": (16, 9, 7)}


def test_a_redrive_counts_what_it_tried_and_what_failed_again() -> None:
    """Map by map, as each of them is finished; with the last one the redrive itself is over."""
    counts: dict[tuple[int, int], None] = {}

    class Watched(Items):
        """A world that looks at the redrive after every event."""

        def feed(self, event: Event) -> list[Order]:
            """One event, as always."""
            orders = super().feed(event)
            if self.state.redrive is not None:
                counts[self.state.redrive.done, self.state.redrive.bad] = None
            return orders

    world = Watched(NESTED["map in map"], total=4, item=leaf_fails).until_end()
    world.item = lambda name, index, _number: failed() if (name, index) == ("leaf", 3) else OK
    world.redrive()
    assert list(counts) == [(0, 0), (2, 1), (4, 2), (6, 3)]


def test_names_say_which_item_of_which_map() -> None:
    """The name of a letter leads through every item; the path of its map leaves them out."""
    world = Items(NESTED["child in item of a map in a child"], total=2, item=leaf_fails).until_end()
    assert sorted(world.letters) == ["sub/map[0]/low/inner[1]", "sub/map[1]/low/inner[1]"]
    assert {letter.map for letter in world.letters.values()} == {"sub/map/low/inner"}


def test_a_snapshot_in_the_middle_is_as_good_as_the_state() -> None:
    """After every event of a redrive: what was restored survives a crash."""
    world = Items(NESTED["map in map in map"], total=2, item=leaf_fails, parallel=2).until_end()
    world.item = all_pass
    feed = world.feed

    def crash_after(event: object) -> list[object]:
        """The engine dies after each event, and another goes on with what was written."""
        orders = feed(event)  # type: ignore[arg-type]
        world.state = decode(encode(world.state), world.state.workflow)
        return orders

    world.feed = crash_after  # type: ignore[method-assign, assignment]
    world.redrive(parallel=2)
    assert (world.letters, world.ended) == ({}, "completed")


def test_a_resume_in_the_middle_asks_again_for_what_is_owed() -> None:
    """Groups and items that were asked for are asked for once more, and nothing runs twice."""
    world = Items(NESTED["map in map"], total=4, item=leaf_fails, parallel=2).until_end()
    letters, before = sorted(world.letters), len(world.runs)
    world.item = all_pass
    perform = world.perform

    def resumed() -> None:
        """All orders are lost whenever the next is to read something."""
        if isinstance(world.orders[0], ReadGroups | ReadItems):
            world.orders.clear()
            world.feed(RunResumed(world.clock, world.capacity))
        perform()

    world.perform = resumed  # type: ignore[method-assign]
    world.redrive(parallel=2)
    assert sorted(world.runs[before:]) == [f"{name}/leaf" for name in letters]
    assert world.letters == {}


def test_cancel_ends_a_redrive_and_no_letter_is_lost() -> None:
    """What has not begun stays as it was; what is not read yet is never read."""
    world = Items(NESTED["map in map"], total=4, item=leaf_fails).until_end()
    before = dict(world.letters)
    world.item = all_pass
    perform, count = world.perform, iter(range(100))

    def canceled() -> None:
        """After some steps somebody has had enough."""
        if next(count) == 4:
            world.feed(CancelRequested(world.clock, "me"))
        else:
            perform()

    world.perform = canceled  # type: ignore[method-assign]
    world.redrive()
    gone = before.keys() - world.letters.keys()
    assert 0 < len(gone) < len(before)
    assert world.state.phase == "ended"


def test_an_outer_item_that_runs_again_takes_its_inner_letters_along() -> None:
    """Whatever succeeds inside it is no letter any more, though the job that it fails in has another number now."""
    inner = fan(step("leaf"), name="inner", on_item_failure="stop")
    world = Items(flow(fan(inner)), total=2, item=lambda name, *_: failed() if name == "leaf" else OK).until_end()
    inside = [f"map[{outer}]{rest}" for outer in range(2) for rest in ("", "/inner[0]", "/inner[1]")]
    assert sorted(world.letters) == inside
    world.item = all_pass
    world.redrive("map[0]", "map[1]")
    assert world.letters == {}


def test_an_outer_item_that_is_retried_takes_its_inner_letters_along() -> None:
    """A second execution by the policy is one more execution of everything inside."""
    inner = fan(step("leaf"), name="inner", on_item_failure="stop")
    tried: list[int] = []

    def second_time(name: str, _index: int, _number: int) -> Outcome:
        """The first two leaves fail."""
        if name == "leaf":
            tried.append(1)
        return failed() if name == "leaf" and len(tried) <= 1 else OK

    world = Items(flow(fan(inner, attempts_max=2, on_item_failure="retry")), total=2, item=second_time).until_end()
    assert (world.letters, world.ended) == ({}, "completed")


def test_letters_of_an_earlier_epoch_run_again() -> None:
    """A rerun that does not come to the map leaves its letters: they can still be tried, whatever has gone since."""
    workflow = flow(step("before"), replace(NESTED["map in map"].steps[0], needs=(Need(("before",)),)))
    world = Items(workflow, total=2, item=leaf_fails).until_end()
    assert sorted(world.letters) == ["map[0]/inner[1]", "map[1]/inner[1]"]
    world.item, world.ended = (lambda name, *_: failed() if name == "before" else OK), None
    world.feed(EpochStarted(world.clock))
    world.feed(RunResumed(world.clock, world.capacity))
    assert world.until_end().ended == "failed"
    assert len(world.letters) == 2
    before = len(world.runs)
    world.item = all_pass
    world.redrive()
    assert (world.runs[before:], world.letters) == (["map[0]/inner[1]/leaf", "map[1]/inner[1]/leaf"], {})


def test_letters_of_the_runs_own_map_survive_a_rerun_too() -> None:
    """Its numbers are those of the earlier epoch until it lists its items again."""
    workflow = flow(step("before"), fan(step("leaf"), needs=("before",)))
    world = Items(workflow, total=2, item=leaf_fails).until_end()
    job = next(iter(world.state.fans))
    world.item, world.ended = (lambda name, *_: failed() if name == "before" else OK), None
    world.feed(EpochStarted(world.clock))
    world.feed(RunResumed(world.clock, world.capacity))
    assert world.until_end().ended == "failed"
    assert world.state.fan_of(world.state.jobs[job]) is None
    world.item = all_pass
    world.redrive()
    assert world.letters == {}


def test_a_map_in_a_handler_sees_the_failure_that_it_answers() -> None:
    """While its letters run the step that failed has its error again, and not afterwards."""
    mend = Rule(then="recovered", text="mend", repair=Repair((fan(step("leaf"), name="mend"),)))
    broken = Step(name="work", action=SH, rules=(mend,))
    seen: list[str] = []

    def work_fails(name: str, index: int, _number: int) -> Outcome:
        """The step fails, and so do some items of its repair."""
        if name == "leaf":
            owner = next(job for job in world.state.jobs.values() if world.state.step_of(job).name == "work")
            seen.append(owner.error.failure.message if owner.error else "")
        return failed(3) if name == "work" or (name == "leaf" and index and len(seen) <= 2) else OK

    world = Items(flow(fan(broken)), total=2, item=work_fails)
    world.until_end()
    letters = sorted(world.letters)
    assert letters[0].startswith("map[0]/work.on_failure/mend[")
    seen[:] = ["", "", ""]
    world.redrive()
    assert set(seen[3:]) == {"exit code 3"}
    assert world.letters == {}


def test_counts_stay_exact_however_often_an_item_is_tried_in_a_redrive() -> None:
    """Items that never started fail once and pass then: they leave the held ones, and no number goes below zero."""
    world = Items(flow(fan(failures_max=1, attempts_max=2, max_parallel=1)), total=4)
    world.item = lambda name, _index, _number: failed() if name == "work" else OK
    world.until_end()
    assert (world.fan.failed, world.fan.held, world.fan.error_types) == (1, 3, {"exit:1": 1})
    world.item = lambda name, _index, number: failed() if name == "work" and number == 1 else OK
    world.redrive()
    assert (world.fan.successful, world.fan.failed, world.fan.held, world.letters) == (4, 0, 0, {})
    assert (world.fan.error_types, world.fan.patterns) == ({}, {})


def test_what_fails_again_in_a_redrive_is_one_failure_still() -> None:
    """The kinds and patterns of failures say how the failed items stand, not how often they were tried."""
    world = Items(flow(fan()), total=6, item=lambda name, _index, _number: failed() if name == "work" else OK)
    world.until_end()
    world.item = lambda name, index, _number: failed(3) if name == "work" and index < 4 else OK
    world.redrive()
    assert (world.fan.failed, world.fan.successful, world.fan.error_types) == (4, 2, {"exit:3": 4})
    (pattern,) = world.fan.patterns.values()
    assert (pattern.count, pattern.items) == (4, [f"map[{index}]" for index in range(4)])


def test_a_canceled_redrive_says_so() -> None:
    """An item that was cut short is neither a success nor a failure, and can be tried again."""
    world = Items(flow(fan()), total=1, item=lambda name, _index, _number: failed() if name == "work" else OK)
    world.until_end()
    world.item, world.stuck = all_pass, lambda name, _index: name == "work"
    chosen = [letter.item for letter in world.letters.values()]
    world.source, world.ended = chosen, None
    world.groups = [LetterGroup("map", 1, 1, 0)]
    world.feed(Redriven(world.clock, "map", 1, "again", 1))
    while world.orders:
        world.perform()
    world.feed(CancelRequested(world.clock, "me"))
    world.until_end()
    (letter,) = world.letters.values()
    last = letter.item.history[-1]
    assert (letter.reason, last.kind, last.step, last.job > 0) == ("canceled", "canceled", "work", True)
    assert (world.fan.failed, world.fan.held) == (0, 1)
    world.stuck = lambda _name, _index: False
    world.redrive()
    assert (world.fan.successful, world.fan.held, world.letters) == (1, 0, {})


def test_a_letter_of_an_older_list_is_in_no_number_of_the_new_one() -> None:
    """The list became shorter with the next epoch: what is left of the old one can be tried and changes no count."""
    world = Items(flow(fan()), total=3, item=lambda name, _index, _number: failed() if name == "work" else OK)
    world.until_end()
    world.total, world.item, world.ended = 1, all_pass, None
    world.feed(EpochStarted(world.clock))
    world.feed(RunResumed(world.clock, world.capacity))
    world.until_end()
    assert sorted(world.letters) == ["map[1]", "map[2]"]
    world.redrive()
    assert (world.fan.total, world.fan.successful, world.fan.failed, world.letters) == (1, 1, 0, {})


@pytest.mark.parametrize(
    ("stored", "properties"),
    [
        ({"status": 5, "attempt": 2, "announced": True, "repaired": True}, (2, True, False, True)),
        ({"status": 5, "attempt": 1, "announced": True}, (1, False, False, True)),
        ({"status": 6, "attempt": 1, "announced": True, "tolerated": True}, (1, False, True, True)),
        ({"status": 6, "attempt": 1, "announced": True, "excused": True}, (1, False, False, True)),
        ({"status": 12, "attempt": 1, "announced": True, "excused": True}, (1, False, False, True)),
        ({"status": 12}, (0, False, False, False)),
        ({"status": 11, "attempt": 2, "announced": True, "reserved": True, "moving": True}, (1, False, False, False)),
        ({"status": 4, "attempt": 1, "announced": True, "hosting": True}, (1, False, False, False)),
    ],
)
def test_scopes_stored_by_version_0_1_are_restored(stored: dict[str, object], properties: tuple[object, ...]) -> None:
    """The flags of a job that version 0.1 stored mean the same in today's fields."""
    state = new_state(flow(step("a")))
    scope = {"id": 2, "name": "a[0]", "first": 3, "waiting": [0], "kind": "item", "owner": 1}
    assert restore_scope(state, {"scope": scope, "jobs": [{"id": 3, "scope": 2, "step": 0, **stored}], "fans": {}}) == 2
    job = state.jobs[3]
    assert (job.attempts_started, job.recovered, job.tolerated, job.counts_as_success) == properties
    assert (job.hosting, job.active, job.runs_attempt) == (False, False, False)
