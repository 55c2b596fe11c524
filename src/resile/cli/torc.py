"""`torc` on the PATH of a Torc file's jobs: the few commands of Torc that commands in such files call.

    torc [-f json] user-data get ID | update ID [--data JSON] [--name NAME] [--ephemeral BOOL] | list [WORKFLOW]
    torc [-f json] jobs get ID

User data begins with what the workflow file says, which the jobs pass on in TORC_USER_DATA. What they change is in a
file for each record, below the output folder of the run; jobs are in the database. If a server drives the run,
`torc` asks it for both, with the token of the run's steps.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from resile.errors import ResileError
from resile.model.nested import job_key, split_job_key

if TYPE_CHECKING:
    from resile.commands.remote.connection import Connection

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
    except (Refused, ResileError) as problem:
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


def _server() -> Connection | None:
    """The server that drives the run, if one does."""
    url = os.environ.get("RESILE_API_URL")
    if not url:
        return None
    from resile.commands.remote.connection import Connection

    return Connection(url, os.environ.get("RESILE_API_TOKEN", ""))


def _read(number: str) -> dict[str, Any]:
    """One record, as it is now."""
    from resile.commands.service.user_data import UserDatum, read_record

    declared = _find_declared()
    if number not in declared:
        known = ", ".join(f"{key} ({record['name']})" for key, record in declared.items()) or "none"
        raise Refused(f"there is no user data with the ID {number}; there are: {known}")
    server = _server()
    if server is None:
        found = read_record(os.environ["TORC_OUTPUT_DIR"], _workflow(), int(number))
    else:
        try:
            found = server.get(f"/runs/{_workflow()}/user-data/{number}", UserDatum)
        except ResileError as problem:
            if problem.code != "no-such-user-data":
                raise
            found = None
    return declared[number] if found is None else to_builtins(found)


def _update(number: str, options: dict[str, str]) -> dict[str, Any]:
    """Change a record."""
    from resile.commands.service.user_data import UserDatum, write_record

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
    server = _server()
    if server is None:
        write_record(os.environ["TORC_OUTPUT_DIR"], UserDatum(**record))
    else:
        body = {name: record[name] for name in ("name", "is_ephemeral", "data")}
        server.put(f"/runs/{_workflow()}/user-data/{number}", body, UserDatum)
    return record


def _job(number: str) -> dict[str, Any]:
    """One job of the run, by its number in the run or among the jobs of all runs."""
    run, found = _workflow(), None
    job = int(number) if number.isascii() and number.isdigit() and len(number) <= 18 else 0
    if split_job_key(job)[0] == run:
        job = split_job_key(job)[1]
    server = _server()
    if server is None:
        from resile.commands.client import Client

        with Client.at(os.environ.get("RESILE_DATABASE")) as client:
            found = next((one for one in client.status(run).jobs if one.id == job), None)
    else:
        from resile.commands.documents.jobs import JobDocument

        try:
            found = server.get(f"/runs/{run}/jobs/{job}", JobDocument)
        except ResileError as problem:
            if problem.code != "no-such-job":
                raise
    if found is None:
        raise Refused(f"there is no job with the ID {number}")
    from resile.dialects.torc.job_words import attempt_in_torc, status_in_torc

    return {
        "id": found.id if server is None else job_key(run, found.id),
        "workflow_id": run,
        "name": found.step,
        "status": status_in_torc(found.status),
        "attempt_id": attempt_in_torc(found.status, found.attempts),
        "return_code": found.exit_code,
    }


def _text_of(record: dict[str, Any]) -> str:
    """A record for people, as Torc prints it."""
    if "user_data" in record:
        return "\n".join(f"{one['id']}  {one['name']}  {json.dumps(one.get('data'))}" for one in record["user_data"])
    return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in record.items())


if __name__ == "__main__":
    sys.exit(main())
