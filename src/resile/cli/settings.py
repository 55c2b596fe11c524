"""The configuration: `resile.toml` of the project, the user's `config.toml`, and environment variables.

    flag > $RESILE_… > resile.toml in this folder or the nearest one above > ~/.config/resile/config.toml > default

Every command reads it before it does anything, so an unknown key or a wrong value ends all of them. Without a file this
costs a look at each folder above; a file is parsed only where one exists. Paths in a file are relative to its folder.
"""

from __future__ import annotations

import os

from resile.model.limits import PARALLEL_MAX

# A constant, because loading `typing` for it would cost more than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from resile.errors import ResileError

PROJECT_FILE = "resile.toml"
VARIABLES = {
    "db": "RESILE_DB",
    "output": "RESILE_OUTPUT_DIR",
    "server": "RESILE_SERVER",
    "max_parallel": "RESILE_MAX_PARALLEL",
    "agent": "RESILE_AGENT",
}
# The parts of the configuration that this version lacks, with what there is instead.
_MISSING = {
    "notify": ("this version of Resile sends no alerts", "a step called `end` can send a message"),
    "retention": ("this version of Resile deletes no runs by itself", "`resile prune --older-than 30d` does"),
}
KEYS = ("db", "output", "server", "max_parallel", "agent", "executor")
EXECUTOR = "local"
_ADDRESSES = ("memory:", ":memory:")
_SQLITE = "sqlite:///"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")


class Settings:
    """The values that files and variables give, each with its source: the path of a file, or `$NAME`."""

    __slots__ = ("sources", "values")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def add(self, key: str, value: Any, source: str) -> None:
        """Set a value, over that of an earlier source. A database takes the place of a server."""
        if key == "db":
            self.values.pop("server", None)
        self.values[key] = value
        self.sources[key] = source


def load_settings() -> Settings:
    """Read the configuration; raises a ResileError for what it does not know."""
    settings = Settings()
    for path, is_own in ((_user_file(), True), (_project_file(), False)):
        if path:
            _add_file(settings, path, is_own)
    for key, name in VARIABLES.items():
        given = os.environ.get(name)
        if given:
            check = {"max_parallel": _parallel_of, "agent": _check_agent}.get(key)
            settings.add(key, given if check is None else check(f"${name}", given), f"${name}")
    if "agent" in settings.values:
        # Front ends read it there, wherever a workflow is compiled.
        os.environ[VARIABLES["agent"]] = settings.values["agent"]
    return settings


def _user_file() -> str:
    """The user's file; empty where there is none. As the XDG standard says, a relative folder is ignored."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    folder = given if os.path.isabs(given) else os.path.expanduser("~/.config")
    path = os.path.join(folder, "resile", "config.toml")
    return path if os.path.isfile(path) else ""


def _project_file() -> str:
    """The file of this folder, or of the nearest one above that has one; empty where there is none."""
    try:
        folder = os.getcwd()
    except OSError:
        return ""
    while True:
        path = os.path.join(folder, PROJECT_FILE)
        if os.path.isfile(path):
            return path
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above


def _add_file(settings: Settings, path: str, is_own: bool) -> None:
    """Add the values of one file; the user's own file may name a server, to which the user's token goes."""
    import tomllib

    try:
        _refuse_foreign(path)
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _refusal(path, f"it is no TOML: {error}", "such as max_parallel = 4") from error
    except OSError as error:
        raise _refusal(path, f"it can't be read: {error.strerror}", "may you read it?") from error
    if "db" in found and "server" in found:
        raise _refusal(path, "`db` and `server` exclude each other", "a server has a database of its own")
    for key, value in found.items():
        if key == "server" and not is_own:
            message = "`server`: the file of a project names no server, because your token would go to it"
            raise _refusal(
                path, message, "take it out; ~/.config/resile/config.toml, RESILE_SERVER or --server names one"
            )
        if key in _MISSING:
            message, hint = _MISSING[key]
            raise _refusal(path, f"`{key}`: {message}", f"take it out; {hint}")
        if key not in KEYS:
            raise _refusal(path, f"there is no key `{key}`", _near(key))
        settings.add(key, _check(path, key, value), path)


def _refuse_foreign(path: str) -> None:
    """Refuse a file that another user may have put into a folder that all can write, such as /tmp."""
    if os.stat(path).st_uid not in (0, os.geteuid()) and os.stat(os.path.dirname(path)).st_mode & 0o022:
        hint = "it could name a program to run; move your work to a folder of your own"
        raise _refusal(path, "it belongs to another user, in a folder that others can write", hint)


def _check(path: str, key: str, value: Any) -> Any:
    """The value of a key, in the form that commands use."""
    if key == "max_parallel":
        if type(value) is not int or not 1 <= value <= PARALLEL_MAX:
            raise _refusal(path, f"`{key}` is a whole number from 1 to {PARALLEL_MAX}, not {value!r}", "")
        return value
    if key == "agent":
        return _check_agent(path, value)
    if not isinstance(value, str) or not value.strip():
        raise _refusal(path, f"`{key}` is a text, not {value!r}", "")
    if key == "server":
        if not value.startswith(("http://", "https://")):
            raise _refusal(path, f"`{key}` is an address, not {value!r}", f"{key} = 'http://127.0.0.1:8700'")
        return value
    if key == "executor":
        if value != EXECUTOR:
            message = (
                f"`{key}`: a run says where else its steps run (`--executor FILE`), the configuration can't: {value!r}"
            )
            raise _refusal(path, message, f"{key} = '{EXECUTOR}', or leave it out")
        return value
    return _absolute(value, os.path.dirname(path))


def _check_agent(source: str, value: Any) -> str:
    """The command of an agent, as a text that a workflow file could have."""
    words = value if isinstance(value, list) else [value]
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise _refusal(source, f"`agent` is a command, not {value!r}", "agent = 'claude -p', or a list of its words")
    if isinstance(value, list):
        return " ".join(word if _PLAIN.issuperset(word) else _quote(word) for word in words)
    if not _PLAIN.issuperset(value.replace(" ", "")):
        raise _refusal(source, f"`agent` is a command of plain words, not {value!r}", "agent = ['claude', '-p']")
    return str(value)


def _quote(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _absolute(value: str, folder: str) -> str:
    """A path or an address of a database, relative to the folder of its file."""
    if value in _ADDRESSES or ("://" in value and not value.startswith(_SQLITE)):
        return value
    return os.path.join(folder, os.path.expanduser(value.removeprefix(_SQLITE)))


def _parallel_of(source: str, text: str) -> int:
    """The number in a variable."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= PARALLEL_MAX):
        raise _refusal(source, f"it is a whole number from 1 to {PARALLEL_MAX}, not {text[:40]!r}", "")
    return int(text)


def _near(key: str) -> str:
    """The key that was probably meant, or all of them."""
    from difflib import get_close_matches

    found = get_close_matches(key, [*KEYS, *_MISSING], 1, 0.5)
    return f"did you mean `{found[0]}`?" if found else f"keys: {', '.join(KEYS)}"


def _refusal(source: str, message: str, hint: str) -> ResileError:
    """The error of a configuration."""
    from resile.errors import ResileError

    return ResileError("config", f"{source}: {message}", where=source, hint=hint)
