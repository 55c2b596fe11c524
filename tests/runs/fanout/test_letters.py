"""Dead letters of real runs, sentence by sentence."""

from __future__ import annotations

import os
import subprocess

from tests.runs.fanout.runs import counts, letters, mapped
from tests.runs.ladder.flows import Flows

FAILING = "echo trying ${item} >> tried; test -e fixed || { echo no luck with ${item} >&2; exit 9; }"


def test_failed_items_are_kept_with_data_reason_time_and_history(flows: Flows) -> None:
    """Original data, failure reason and message, time of failure, attempt history."""
    policy = "{on_item_failure: retry, retry_config: {max_attempts: 2, backoff: 1ms}}"
    flows.run(mapped(policy, FAILING.replace("${item}", "${item.n}"), "[{n: 1, tags: [x, y]}]"))
    (letter,) = flows.program.json("dlq", "list", "1")["dead_letters"]
    assert letter["item_data"] == {"n": 1, "tags": ["x", "y"]}
    assert (letter["reason"], letter["failure_count"]) == ("failed", 2)
    assert [entry["error_message"] for entry in letter["failure_history"]] == ["exit code 9: no luck with 1"] * 2
    assert [entry["attempt_number"] for entry in letter["failure_history"]] == [1, 2]
    assert letter["first_attempt"] <= letter["last_attempt"]
    assert letter["failure_history"][0]["step_failed"] == "work"


def test_retry_of_all_failed_items_with_a_dry_run_before(flows: Flows) -> None:
    """A dry run names them and runs nothing; the retry runs all, those that succeed leave."""
    flows.run(mapped("{}", FAILING, "[a, b, c]"))
    (flows.folder / "tried").unlink()
    assert flows.program.json("dlq", "retry", "1", "--dry-run")["items"] == [f"process[{n}]" for n in range(3)]
    assert not (flows.folder / "tried").exists()
    (flows.folder / "fixed").touch()
    assert flows.program.json("dlq", "retry", "1", "--max-parallel", "2")["succeeded"] == 3
    assert sorted((flows.folder / "tried").read_text().splitlines()) == [f"trying {item}" for item in "abc"]
    assert letters(flows) == []


def test_failed_retries_stay_with_a_longer_history(flows: Flows) -> None:
    """Nothing is fixed: exit 1, every item is still there, twice failed."""
    flows.run(mapped("{}", FAILING, "[a, b]"))
    assert flows.program.json("dlq", "retry", "1", code=1)["left"] == 2
    assert letters(flows) == [("process[0]", "failed", 2), ("process[1]", "failed", 2)]


def test_correlation_ids_are_preserved(flows: Flows) -> None:
    """Before and after a retry the item has the same name and the same correlation id, and sees its own name."""
    flows.run(mapped("{}", "echo ${item_id} >> ids; exit 1", "[a]"))
    before = flows.program.json("dlq", "list", "1")["dead_letters"][0]["correlation_id"]
    flows.program.call("dlq", "retry", "1", code=1)
    after = flows.program.json("dlq", "list", "1")["dead_letters"][0]["correlation_id"]
    assert before == after
    assert (flows.folder / "ids").read_text() == "process[0]\nprocess[0]\n"


def test_a_map_of_mode_mapreduce_keeps_letters_too(flows: Flows) -> None:
    """The configuration of the page; its map is called `map`."""
    flows.run(
        "mode: mapreduce\nerror_policy: {continue_on_failure: true}\nmap: {input: [1, 2], steps: [{shell: exit 1}]}\n"
    )
    assert [name for name, _, _ in letters(flows)] == ["map[0]", "map[1]"]


def test_letters_are_shared_by_all_worktrees(flows: Flows) -> None:
    """A run of one worktree can be retried from another one, where its steps then run as before."""
    git = ["git", "-c", "user.email=a@example.org", "-c", "user.name=a"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"], ["worktree", "add", "-q", "other"]):
        subprocess.run([*git, *words], cwd=flows.folder, check=True, env=os.environ, capture_output=True)
    flows.run(mapped("{}", FAILING, "[a]"))
    (flows.folder / "fixed").touch()
    flows.program.folder = flows.folder / "other"
    assert letters(flows) == [("process[0]", "failed", 1)]
    assert flows.program.json("dlq", "retry", "1")["succeeded"] == 1


def test_the_number_of_letters_is_that_of_those_there_now(flows: Flows) -> None:
    """After a purge and a retry the counts of the map stay what they are, and its letters are what is left."""
    assert flows.run(mapped("{}", FAILING, "[a, b, c]")).document["dead_letters"] == 3
    signature = flows.program.json("dlq", "show", "1", "0")["error_signature"]

    def told() -> list[tuple[int, int]]:
        """Failed items and dead letters, as `status` and `metrics` have them."""
        documents = [flows.program.json(verb, "1")["maps"]["process"] for verb in ("status", "metrics")]
        return [(numbers["failed"], numbers["dead_letters"]) for numbers in documents]

    assert told() == [(3, 3), (3, 3)]
    (flows.folder / "fixed").touch()
    flows.program.json("dlq", "retry", "1", "--filter", "item === 'b'")
    assert told() == [(2, 2), (2, 2)]
    assert flows.program.json("dlq", "purge", "1", "--yes", "--signature", signature)["purged"] == 1
    assert told() == [(2, 1), (2, 1)]
    assert flows.program.json("dlq", "purge", "1", "--yes")["purged"] == 1
    assert told() == [(2, 0), (2, 0)]
    assert flows.program.json("status", "1")["dead_letters"] == 0
    assert "2 failed, 0 skipped, 0 held; 0 dead letters" in flows.program.call("status", "1", code=0).stdout
    flows.program.call("rerun", "1", "--failed-only", code=0)
    assert told() == [(2, 0), (2, 0)]


def test_a_step_after_the_map_sees_how_many_letters_there_are(flows: Flows) -> None:
    """As many as the store has, also in a rerun of what failed after some were removed."""
    after = "'echo ${steps.process.dead_letters} >> seen; test -e fixed'"
    flows.run(mapped("{}", FAILING, "[a, b, c]").replace("./step after", after), 1)
    flows.program.call("dlq", "purge", "1", "--yes", code=0)
    (flows.folder / "fixed").touch()
    flows.program.call("rerun", "1", "--failed-only", code=0)
    assert (flows.folder / "seen").read_text() == "3\n0\n"


def test_exhausted_stopped_threshold_and_open_circuit_all_end_in_the_letters(flows: Flows) -> None:
    """Whatever ends a map, successful and skipped items and letters are all there is."""
    policies = (
        "{on_item_failure: retry, retry_config: {max_attempts: 2, backoff: 1ms}}",
        "{on_item_failure: stop}",
        "{continue_on_failure: false}",
        "{max_failures: 2}",
        "{failure_threshold: 0.1, failure_threshold_min_items: 2}",
    )
    for number, policy in enumerate(policies, 1):
        ran = flows.run(mapped(policy, "test ${item} = a", "[a, b, c, d, e]"), int(number > 1))
        total, successful, failed, skipped, held = counts(ran)
        assert successful + failed + skipped + held == total
        assert len(letters(flows, number)) == failed + held
