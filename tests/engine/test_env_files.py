"""Files of environment variables: what their lines come to, and what is no such file."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from resile.engine.env_files import CREDENTIALS, add_credentials, load_env_files
from resile.errors import ResileError
from resile.model.workflow import Child, Noop, Secret, Step, Workflow


def workflow(folder: Path, *files: str) -> Workflow:
    """A workflow that names these files."""
    end = Step(name="end", action=Noop())
    return Workflow(name="w", dialect="native", file="w.yaml", folder=str(folder), steps=(), end=end, env_files=files)


def test_lines_give_values(tmp_path: Path) -> None:
    """Quotes and comments are taken away, and a later file stands over an earlier one."""
    (tmp_path / "a").write_text("# one\n\nA=1\nexport B = 'x y' \nC=\"#\"\nD=a # said\nE=\nF=a#b\n")
    (tmp_path / "b").write_text("A=2\n")
    expected = {"A": "2", "B": "x y", "C": "#", "D": "a", "E": "", "F": "a#b"}
    assert load_env_files(workflow(tmp_path, "a", "b")) == expected


def test_what_is_no_line_is_an_error(tmp_path: Path) -> None:
    """The error says in which line."""
    (tmp_path / "a").write_text("A=1\nnot a line\n")
    with pytest.raises(ResileError) as problem:
        load_env_files(workflow(tmp_path, "a"))
    assert (problem.value.code, problem.value.where) == ("env-file", "a:2:1")


def test_a_file_must_be_there(tmp_path: Path) -> None:
    """A missing file is an error before anything runs."""
    with pytest.raises(ResileError) as problem:
        load_env_files(workflow(tmp_path, "none"))
    assert problem.value.message == "env file 'none': No such file or directory"


def test_variables_of_a_workflow_inside_another_give_way_to_the_outer_ones(tmp_path: Path) -> None:
    """The files of both are read; a name that both have is the outermost's."""
    (tmp_path / "a").write_text("A=outer\n")
    (tmp_path / "b").write_text("A=inner\nB=inner\n")
    child = Step(name="sub", action=Child("c.yaml", workflow(tmp_path, "b")))
    assert load_env_files(replace(workflow(tmp_path, "a"), steps=(child,))) == {"A": "outer", "B": "inner"}


def test_a_file_of_credentials_gives_the_secrets_that_a_workflow_names(tmp_path: Path) -> None:
    """Each by entry and field; what is set already stays, and the name of the file goes no further."""
    file = tmp_path / "credentials.yaml"
    file.write_text("hub: {token: t1, user: u1, spare: s1}\n")
    secrets = {"hub.token": Secret(env="TOKEN"), "hub.user": Secret(env="USER"), "hub.none": Secret(env="NONE")}
    secrets |= {"other.token": Secret(env="OTHER"), "hub.spare": Secret(file="s")}
    made = replace(workflow(tmp_path), secrets=secrets)
    env = {"A": "1", "USER": "mine"}
    assert add_credentials(made, {**env, CREDENTIALS: str(file)}) == {**env, "TOKEN": "t1"}
    assert add_credentials(made, {**env, CREDENTIALS: ""}) == add_credentials(made, env) == env
