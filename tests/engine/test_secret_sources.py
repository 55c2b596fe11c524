"""Where the secrets of a workflow come from, and what is said of those that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from resile.engine.secrets import SECRET_BYTES_MAX, load_secrets, looks_secret
from resile.errors import ResileError
from resile.model.workflow import Child, Secret, Step, Workflow
from tests.core.world import flow


def workflow(folder: Path, *steps: Step, **secrets: Secret) -> Workflow:
    """A workflow with these secrets."""
    return replace(flow(*steps), folder=str(folder), file="w.yaml", secrets=secrets)


def problem_of(made: Workflow, **env: str) -> tuple[str, str, str, str]:
    """What is said of secrets that cannot be had."""
    with pytest.raises(ResileError) as refused:
        load_secrets(made, env)
    return refused.value.code, refused.value.message, refused.value.where, refused.value.hint


def test_a_secret_is_a_variable_or_a_file(tmp_path: Path) -> None:
    """The variable has the name of the secret unless another is given; a file loses one newline."""
    (tmp_path / "key").write_text("line\n\n")
    made = workflow(tmp_path, A=Secret(), B=Secret(env="OTHER"), C=Secret(file="key"))
    assert load_secrets(made, {"A": "1", "OTHER": "2", "B": "no"}) == {"A": "1", "B": "2", "C": "line\n"}


def test_a_file_has_a_size(tmp_path: Path) -> None:
    """The largest is taken as it is; one more byte is refused."""
    made = workflow(tmp_path, C=Secret(file="key"))
    (tmp_path / "key").write_text("x" * SECRET_BYTES_MAX)
    assert load_secrets(made, {}) == {"C": "x" * SECRET_BYTES_MAX}
    (tmp_path / "key").write_text("x" * (SECRET_BYTES_MAX + 1))
    message = f"secret 'C': {tmp_path / 'key'} has more than {SECRET_BYTES_MAX} bytes"
    assert problem_of(made) == ("secret-too-large", message, "", "")


def test_a_secret_that_is_missing_is_named_with_its_variable(tmp_path: Path) -> None:
    """So is a file; a secret of an entry may come from a file of credentials."""
    made = workflow(tmp_path, A=Secret(env="X"))
    message, hint = "secret 'A' is not in the environment (variable X)", "export X=… before the run"
    assert problem_of(made) == ("secret-missing", message, "w.yaml", hint)
    made = replace(made, secrets={"hub.token": Secret(env="X")})
    assert problem_of(made)[3] == f"{hint}, or add --credentials FILE with `hub: {{token: …}}`"
    made = workflow(tmp_path, C=Secret(file="key"))
    message = f"secret 'C': {tmp_path / 'key'}: No such file or directory"
    assert problem_of(made) == ("secret-missing", message, "", "")


def test_a_run_does_without_an_optional_secret(tmp_path: Path) -> None:
    """It has it where it is set; a file that is named must be there."""
    made = workflow(tmp_path, A=Secret(env="X", is_optional=True), B=Secret(is_optional=True))
    assert (load_secrets(made, {}), load_secrets(made, {"X": "1", "B": "2"})) == ({}, {"A": "1", "B": "2"})
    assert problem_of(workflow(tmp_path, C=Secret(file="key", is_optional=True)))[0] == "secret-missing"


def test_two_workflows_of_a_run_may_share_a_secret_but_not_a_name(tmp_path: Path) -> None:
    """A step has one environment, so a name has one value."""
    inner = workflow(tmp_path, A=Secret(env="X"), B=Secret(env="Y"))
    outer = workflow(tmp_path, Step(name="sub", action=Child("c.yaml", inner)), A=Secret(env="X"))
    assert load_secrets(outer, {"X": "1", "Y": "2"}) == {"A": "1", "B": "2"}
    other = replace(outer, secrets={"A": Secret(env="Y")})
    code, message, where, _ = problem_of(other, X="1", Y="2")
    expected = "secret 'A' has another value here than in the workflow that calls this one or beside it"
    assert (code, message, where) == ("secret-conflict", expected, "w.yaml")


@pytest.mark.parametrize("name", ["MY_TOKEN", "db-password", "PasswordOfDb", "api_key"])
def test_a_name_may_look_like_that_of_a_secret(name: str) -> None:
    """By its ending, or by the word in it."""
    assert looks_secret(name)
    assert not looks_secret(f"{name}_count".replace("assword", "ass"))
