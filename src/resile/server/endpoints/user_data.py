"""The user data of Torc files, for the `torc` on the PATH of their jobs."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from resile.commands.service.user_data import RECORDS_MAX, UserDatum, read_changed, read_record, write_record
from resile.engine.replay import row_of
from resile.server.declarations import Answer, Items, Page, Request, Route
from resile.server.problems import Problem
from resile.server.requests.reading import page_of


class DatumBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A record as it shall be; `data` is any JSON of at most 1 MB."""

    name: Annotated[str, Meta(max_length=1000)]
    data: Any
    is_ephemeral: bool = False


def list_records(request: Request) -> Items[UserDatum]:
    """The records of a run that its steps have changed, by id."""
    run = request.number("run")
    return page_of(read_changed(row_of(request.store, run).output, run), request.query)


def get_record(request: Request) -> UserDatum:
    """One record that a step has changed."""
    run, number = request.number("run"), request.number("id")
    found = read_record(row_of(request.store, run).output, run, number)
    if found is None:
        hint = "one that the workflow file gives is in that file"
        raise Problem("no_such_user_data", f"no step of run {run} has changed user data {number}", hint=hint)
    return found


def put_record(request: Request) -> UserDatum:
    """Change a record."""
    run, number, body = request.number("run"), request.number("id"), request.body
    if not 0 < number <= RECORDS_MAX:
        raise Problem("no_such_user_data", f"the ids of user data are 1 to {RECORDS_MAX}")
    record = UserDatum(number, run, body.name, body.is_ephemeral, body.data)
    write_record(row_of(request.store, run).output, record)
    return record


_RECORD = "/runs/{run}/user-data/{id}"
_PROBLEMS = ("no_such_run", "no_such_user_data")
ROUTES = (
    Route(
        method="GET",
        path="/runs/{run}/user-data",
        handler=list_records,
        about="List the user data of a Torc file that steps have changed",
        query=Page,
        answers={200: Answer("The records", Items[UserDatum])},
        problems=("no_such_run",),
        is_for_steps=True,
    ),
    Route(
        method="GET",
        path=_RECORD,
        handler=get_record,
        about="A record of user data that a step has changed",
        answers={200: Answer("The record", UserDatum)},
        problems=_PROBLEMS,
        is_for_steps=True,
    ),
    Route(
        method="PUT",
        path=_RECORD,
        handler=put_record,
        about="Change a record of user data",
        role="operator",
        body=DatumBody,
        answers={200: Answer("The record", UserDatum)},
        problems=_PROBLEMS,
        is_for_steps=True,
    ),
)
