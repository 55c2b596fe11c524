"""What Prodigy files keep from their own system where native files are stricter, and what `check` says of it."""

from __future__ import annotations

import pytest

from resile.dialects.compile import compile_text
from tests.dialects.prodigy.folder import Folder


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder with ./step and an agent."""
    return Folder(tmp_path_factory.mktemp("prodigy"))


def notices(text: str, code: str) -> list[tuple[int, str]]:
    """The line and text of each notice with this code."""
    return [(found.line, found.message) for found in compile_text(text).diagnostics if found.code == code]


@pytest.mark.parametrize(
    ("handler", "order", "status", "code"),
    [
        ("{shell: ./step h 9}", ["a", "h", "b"], "tolerated", 0),
        ("{shell: ./step h 9, max_attempts: 3}", ["a", "h", "a", "h", "a", "b"], "tolerated", 0),
        ("{shell: ./step h 9, max_retries: 3}", ["a", "h", "a", "h", "a", "b"], "tolerated", 0),
        ("{shell: ./step h 9, max_attempts: 3, fail_workflow: true}", ["a", "h", "a", "h", "a"], "failed", 1),
        ("{commands: [{shell: ./step h 9}], handler_failure_fatal: true, max_attempts: 3}", ["a", "h"], "failed", 1),
    ],
)
def test_a_step_with_a_handler_tolerates_its_failure(
    folder: Folder, handler: str, order: list[str], status: str, code: int
) -> None:
    """A step that stays failed after its handler lets the next one run, and a failed handler costs no re-run."""
    text = f"- {{name: a, shell: ./step a 9, on_failure: {handler}}}\n- {{name: b, shell: ./step b}}\n"
    assert folder.run(text, code=code) == order
    assert folder.status["a"] == status


def test_a_rerun_after_a_failed_handler_recovers_the_step(folder: Folder) -> None:
    """The command's own exit code is the judge, not that of its handler."""
    assert folder.run("- {name: a, shell: ./step a 1, on_failure: {shell: ./step h 9, max_attempts: 2}}\n") == [
        "a", "h", "a"
    ]  # fmt: skip
    assert folder.status["a"] == "recovered"


def test_a_command_of_a_handler_whose_own_handler_failed_stops_the_handler(folder: Folder) -> None:
    """The commands after it do not run."""
    nested = "[{shell: ./step h 9, on_failure: {shell: ./step hh 9}}, {shell: ./step h2}]"
    assert folder.run(f"- {{name: a, shell: ./step a 9, on_failure: {{commands: {nested}}}}}\n") == ["a", "h", "hh"]
    assert folder.status["a"] == "tolerated"


def test_check_says_where_a_failure_passes_in_silence() -> None:
    """A handler without `fail_workflow` has a notice, one that says what it wants has none."""
    said = "as in Prodigy, a step that stays failed after its handler does not fail the workflow"
    assert notices("- shell: x\n  on_failure: {shell: h}\n", "tolerated") == [(2, said)]
    assert notices("- shell: x\n  on_failure: [h]\n", "tolerated") == [(2, said)]
    for keys in ("{shell: h, fail_workflow: true}", "{shell: h, fail_workflow: false}", "true"):
        assert notices(f"- shell: x\n  on_failure: {keys}\n", "tolerated") == []
    assert notices("- shell: x\n  on_failure: {shell: h}\n", "since-0.2") == []
