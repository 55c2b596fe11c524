"""The user data of Torc files that steps have changed: a file for each record, below the output folder of the run.

The other records are as in the workflow file; the file's commands get them in their environment.
"""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec
from msgspec import Struct

from resile.errors import ResileError
from resile.model.folders import create_file, make_folder, put_in_place

FOLDER = "torc"
RECORDS_MAX = 100_000
RECORD_BYTES_MAX = 2**20
_NAME = "user_data_wf{run}_{id}.json"


class UserDatum(Struct, frozen=True):
    """One record, as Torc shows it."""

    id: int
    workflow_id: int
    name: str
    is_ephemeral: bool
    data: Any


def read_changed(output: str, run: int) -> list[UserDatum]:
    """The records that steps have changed, by id."""
    begin, end = _NAME.format(run=run, id="\0").split("\0")
    name = re.compile(f"{re.escape(begin)}([0-9]+){re.escape(end)}")
    try:
        found = [match for match in map(name.fullmatch, os.listdir(os.path.join(output, FOLDER))) if match]
    except FileNotFoundError:
        return []
    records = (read_record(output, run, int(match[1])) for match in sorted(found, key=lambda match: int(match[1])))
    return [record for record in records if record is not None]


def read_record(output: str, run: int, number: int) -> UserDatum | None:
    """One record, if a step has changed it."""
    try:
        with open(os.path.join(output, FOLDER, _NAME.format(run=run, id=number)), "rb") as file:
            return msgspec.json.decode(file.read(), type=UserDatum)
    except FileNotFoundError:
        return None


def write_record(output: str, record: UserDatum) -> None:
    """Change a record; a reader sees the old one or the new one, never a part."""
    data = msgspec.json.encode(record)
    if not 0 < record.id <= RECORDS_MAX or len(data) > RECORD_BYTES_MAX:
        message = f"a record of user data has at most {RECORD_BYTES_MAX} bytes, and an id of 1 to {RECORDS_MAX}"
        raise ResileError("user-data", message, hint="keep large data in files")
    path = os.path.join(output, FOLDER, _NAME.format(run=record.workflow_id, id=record.id))
    make_folder(os.path.dirname(path))
    part = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.part"
    with create_file(part) as file:
        file.write(data)
        put_in_place(file, part, path)
