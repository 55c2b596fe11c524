"""The address of a PostgreSQL store: `postgresql://[user[:password]@]host[:port]/database[?schema=NAME&…]`.

It may have all parameters that psycopg knows (`sslmode`, `host=/folder/of/the/socket`, …), and `schema`, which is ours.
Missing parts come from the variables and files of PostgreSQL itself, such as PGPASSWORD and ~/.pgpass. No message shows
a password.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from resile.store.errors import StoreError

SCHEMA = "resile"
_SECRETS = ("password", "passfile", "sslpassword", "sslkey", "sslcert", "sslrootcert")


class Address(Struct, frozen=True):
    """Where a store is: what psycopg connects to, the schema, and a text without secrets for messages."""

    conninfo: str
    schema: str
    shown: str


def parse(url: str) -> Address:
    """Read an address; raises StoreError, without its password, if it is none."""
    try:
        parts = urlsplit(url)
        # Several hosts are allowed, each with its port, so the part before the last @ is taken off by hand.
        user, at, hosts = parts.netloc.rpartition("@")
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise wrong_address("it can't be read") from None
    schemas = [value for name, value in given if name == "schema"]
    if len(schemas) > 1 or "" in schemas or any("\0" in name or len(name.encode()) > 63 for name in schemas):
        raise wrong_address("`schema` must be one name of at most 63 bytes")
    rest = [(name, value) for name, value in given if name != "schema"]
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest, quote_via=quote), ""))
    public = urlencode([pair for pair in given if pair[0] not in _SECRETS], quote_via=quote, safe="/")
    shown = urlunsplit(("postgresql", user.partition(":")[0] + at + hosts, parts.path, public, ""))
    return Address(conninfo, schemas[0] if schemas else SCHEMA, shown)


def wrong_address(why: str) -> StoreError:
    """The error for a malformed address; `why` quotes no part of the address, because it may contain a password."""
    hint = "write it as postgresql://USER@HOST:PORT/DATABASE?schema=NAME"
    return StoreError("store-address", f"the address of the PostgreSQL store is wrong: {why}", hint=hint)
