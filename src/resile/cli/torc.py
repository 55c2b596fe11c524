"""`torc` on the PATH of a Torc file's jobs: the few commands of Torc that commands in such files call.

    torc [-f json] user-data get ID | update ID [--data JSON] [--name NAME] [--ephemeral BOOL] | list [WORKFLOW]
    torc [-f json] jobs get ID

User data lives in a file for each record, below the output directory of the run; it begins with what the workflow file
says, which the jobs pass on in TORC_USER_DATA. Jobs come from the store.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

USAGE = "torc knows: user-data get ID, user-data update ID --data JSON, user-data list, jobs get ID; -f json"
_OPTIONS = {"-f": "format", "--format": "format", "-d": "data", "--data": "data", "-n": "name", "--name": "name",
            "--ephemeral": "ephemeral"}  # fmt: skip


class Refused(Exception):
    """A call that can't be answered; the message is one line."""


def main() -> int:
    """Run one command of Torc; return its exit code."""
    try:
        words, options = _parse(sys.argv[1:])
        record = _answer(words, options)
    except Refused as problem:
        print(f"torc: {problem}", file=sys.stderr)
        return 1
    print(json.dumps(record, indent=2, ensure_ascii=False) if options.get("format") == "json" else _text_of(record))
    return 0


def _parse(given: list[str]) -> tuple[list[str], dict[str, str]]:
    """The words of a call, and its options."""
    words: list[str] = []
    options: dict[str, str] = {}
    rest = iter(given)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            words.append(word)
        elif name not in _OPTIONS:
            raise Refused(f"there is no option {name}; {USAGE}")
        else:
            found = value if equals else next(rest, None)
            if found is None:
                raise Refused(f"{name} needs a value")
            options[_OPTIONS[name]] = found
    return words, options


def _answer(words: list[str], options: dict[str, str]) -> Any:
    """The record or records that a call asks for."""
    match words:
        case ["user-data", "get", number]:
            return _read(number)
        case ["user-data", "update", number]:
            return _update(number, options)
        case ["user-data", "list"] | ["user-data", "list", _]:
            return {"user_data": [_read(str(record["id"])) for record in _find_declared().values()]}
        case ["jobs", "get", number]:
            return _job(number)
    raise Refused(f"there is no command {' '.join(words[:2])!r} here; {USAGE}")


def _workflow() -> int:
    return int(os.environ.get("TORC_WORKFLOW_ID") or 0)


def _find_declared() -> dict[str, dict[str, Any]]:
    """The user data of the workflow file, by id."""
    found: dict[str, dict[str, Any]] = json.loads(os.environ.get("TORC_USER_DATA") or "{}")
    return {number: {"id": int(number), "workflow_id": _workflow(), **record} for number, record in found.items()}


def _file_of(number: str) -> Path:
    return Path(os.environ["TORC_OUTPUT_DIR"]) / "torc" / f"user_data_wf{_workflow()}_{number}.json"


def _read(number: str) -> dict[str, Any]:
    """One record, as it is now."""
    declared = _find_declared()
    if number not in declared:
        known = ", ".join(f"{key} ({record['name']})" for key, record in declared.items()) or "none"
        raise Refused(f"there is no user data with the ID {number}; there are: {known}")
    try:
        return {**declared[number], **json.loads(_file_of(number).read_text())}
    except FileNotFoundError:
        return declared[number]


def _update(number: str, options: dict[str, str]) -> dict[str, Any]:
    """Change a record; a reader sees the old one or the new one, never a part."""
    record = _read(number)
    if "data" in options:
        try:
            record["data"] = json.loads(options["data"])
        except ValueError as problem:
            raise Refused(f"--data is no JSON: {problem}") from problem
    if "name" in options:
        record["name"] = options["name"]
    if "ephemeral" in options:
        record["is_ephemeral"] = options["ephemeral"] == "true"
    path = _file_of(number)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(json.dumps(record, ensure_ascii=False))
    part.rename(path)
    return record


def _job(number: str) -> dict[str, Any]:
    """One job of the run, from the store."""
    from resile.commands.client import Client
    from resile.errors import ResileError

    try:
        with Client.at(None) as client:
            jobs = client.status(_workflow()).jobs
    except ResileError as problem:
        raise Refused(str(problem)) from problem
    for job in jobs:
        if str(job.id) == number:
            return {
                "id": job.id,
                "workflow_id": _workflow(),
                "name": job.step,
                "status": job.status,
                "attempt_id": max(job.attempts, 1),
                "return_code": job.exit_code,
            }
    raise Refused(f"there is no job with the ID {number}")


def _text_of(record: dict[str, Any]) -> str:
    """A record for people, as Torc prints it."""
    if "user_data" in record:
        return "\n".join(f"{one['id']}  {one['name']}  {json.dumps(one.get('data'))}" for one in record["user_data"])
    return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in record.items())


if __name__ == "__main__":
    sys.exit(main())
