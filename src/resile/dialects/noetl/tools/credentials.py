"""`auth`: the credentials of requests and of databases.

    auth: NAME      auth: {type: bearer | basic | api_key, name: NAME}      auth: {type: bearer, token: "{{ ... }}"}
    auth: {NAME: {type, ...}, ...}      auth: {source: credential, type, key: NAME}

A credential is read from the environment, or a file of credentials, like an entry of the keychain: `$NAME_TOKEN` for a
bearer, `$NAME_USERNAME` and `$NAME_PASSWORD`, `$NAME_KEY`; `$NAME_DSN` for a database, `$NAME_KEY_ID` and
`$NAME_SECRET_KEY` for an object store. It is a secret. For a request it becomes a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar
from resile.dialects.native.nodes import is_null
from resile.dialects.noetl.tools.keys import AUTH, AUTH_DATABASE, AUTH_ENTRY
from resile.dialects.noetl.values import NoetlReading, filled_template, find_in_workload, read_known_text, refuse_keys
from resile.dialects.reading.key_tables import INVALID, read_keys
from resile.dialects.reading.values import wrong
from resile.errors import shorten
from resile.languages.jinja.templates import is_template, names_in, text_expression

PARTS = {"bearer": ("token",), "basic": ("username", "password"), "api_key": ("key",)}
"""The parts of a credential, by the type of authentication."""
_SECRET_PATH = re.compile(r"\bsecrets/([^/]+)")
_FIELDS = {"postgres": ("dsn",), "gcs": ("key_id", "secret_key"), "s3": ("key_id", "secret_key")}


def headers_of(reading: NoetlReading, fields: dict[str, Any]) -> dict[str, str]:
    """Read the headers of a request, with the one of `auth`."""
    headers = {name: "" if value is None else str(value) for name, value in fields.get("headers", {}).items()}
    node: Node | None = fields.get("auth")
    if node is None or is_null(node):
        return headers
    for name, value in _read_auth(reading, node):
        if any(other.lower() == name.lower() for other in headers):
            message = f"`auth` and `headers` both say `{shorten(name)}`"
            if name not in fields.get("headers", {}):
                message = f"`auth` says `{shorten(name)}` twice"
            reading.report.error("conflict", message, node, hint="keep one of them")
        headers[name] = value
    return headers


def _read_auth(reading: NoetlReading, node: Node) -> Iterator[tuple[str, str]]:
    """Read the headers of an `auth`, with their values."""
    if isinstance(node, Scalar):
        found = _header_of_text(reading, node)
    elif not (entries := _entries_of(reading, node)):
        found = _header_of_mapping(reading, node, read_keys(reading, node, AUTH))
    else:
        for name, entry in entries.items():
            header, value = _header_of_entry(reading, name, entry)
            if header:
                yield header, value
        return
    if found[0]:
        yield found


def _entries_of(reading: NoetlReading, node: Node) -> dict[str, Mapping]:
    """Find the credentials of a mapping from names to them, or of one with `source`; empty if it is neither."""
    if not isinstance(node, Mapping) or not node.entries:
        return {}
    if "source" in node.entries:
        key = next((node.entries[word][1] for word in ("key", "credential", "name") if word in node.entries), None)
        if isinstance(key, Scalar) and (name := read_known_text(reading, key.text, key)):
            return {name: node}
        return {}
    found = {name: value for name, (_, value) in node.entries.items() if isinstance(value, Mapping)}
    return found if len(found) == len(node.entries) else {}


def _header_of_entry(reading: NoetlReading, name: str, node: Mapping) -> tuple[str, str]:
    """Build the header of a named credential; `key`, its place in NoETL's own store, has no meaning here."""
    fields = read_keys(reading, node, AUTH_ENTRY)
    if "type" not in fields and {"type", "tool"} & node.entries.keys():
        return "", ""
    if fields.get("type") == "header":
        header = fields.get("name")
        if not isinstance(header, Scalar) or "value" not in fields:
            reading.report.error("value", "`auth` of type `header` needs `name` and `value`", node)
            return "", ""
        return header.text, fields["value"]
    place = Scalar(name, name, node.line, node.column)
    own = {word: value for word, value in fields.items() if word not in ("key", "value")}
    return _header_of_mapping(reading, node, {**own, "name": place})


def _header_of_text(reading: NoetlReading, node: Scalar) -> tuple[str, str]:
    """Build the header of a named credential, or of a token from the keychain."""
    value = filled_template(reading, node)
    if value is INVALID:
        return "", ""
    if "keychain" in names_in(value):
        return "Authorization", f"Bearer {value}"
    credential = read_known_text(reading, value, node)
    if not credential:
        return "", ""
    return "Authorization", f"Bearer {_template_of_secret(reading, credential, 'token', node)}"


def _header_of_mapping(reading: NoetlReading, node: Node, fields: dict[str, Any]) -> tuple[str, str]:
    """Build the header that a mapping describes; empty texts after a report."""
    if not isinstance(node, Mapping) or ("type" in node.entries and "type" not in fields):
        return "", ""
    kind = fields.get("type", "bearer")
    wanted = PARTS[kind]
    known = {*wanted, "type", "name", *(["header"] if kind == "api_key" else [])}
    refuse_keys(reading, node, fields.keys() - known, f"means nothing for `type: {kind}`")
    credential = ""
    if "name" in fields:
        place: Node = fields["name"]
        if not isinstance(place, Scalar):
            wrong(reading, place, "the name of a credential")
            return "", ""
        credential = read_known_text(reading, place.text, place)
    missing = [part for part in wanted if part not in fields]
    if "name" in fields and not missing:
        message = f"a credential gives nothing beside {' and '.join(f'`{part}`' for part in wanted)}"
        reading.report.error("conflict", message, fields["name"], hint="keep one of them")
    if missing and not credential:
        if "name" not in fields:
            message = f"`auth` of type `{kind}` needs {' and '.join(f'`{part}`' for part in missing)}, or `name`"
            reading.report.error("value", message, node)
        return "", ""
    parts = [fields.get(part) or _template_of_secret(reading, credential, part, node) for part in wanted]
    if kind == "api_key":
        return fields.get("header", "X-API-Key"), parts[0]
    if kind == "bearer":
        return "Authorization", f"Bearer {parts[0]}"
    username, password = (text_expression(part) for part in parts)
    if not username or not password:
        reading.report.error("template", "`username` and `password` are texts with `{{ … }}` and nothing else", node)
    return "Authorization", f"Basic {{{{ ({username} ~ ':' ~ {password}) | b64encode }}}}"


def _template_of_secret(reading: NoetlReading, credential: str, part: str, node: Node) -> str:
    """Build the template of one part of a credential, and add that part as a secret of the environment."""
    known = reading.keychain.get(credential, {})
    field = part if part in known or len(known) != 1 else next(iter(known))
    reading.add_secret(credential, field, node)
    return f"{{{{ keychain[{credential!r}][{field!r}] }}}}"


def read_secret(reading: NoetlReading, node: Node) -> str:
    """Read the name of the secret that a step fetches, and add it; empty after a report."""
    if not isinstance(node, Scalar) or node.value is None:
        wrong(reading, node, "the name of a secret")
        return ""
    path = read_known_text(reading, node.text, node)
    found = _SECRET_PATH.search(path)
    name = (found[1] if found is not None else path).replace(".", "_")
    if name:
        reading.add_secret(name, "secret_value", node)
    return name


def read_database_auth(reading: NoetlReading, node: Node | None, engine: str) -> dict[str, Any]:
    """Read the credentials of a database tool, as keys of a native `query`."""
    if node is None or is_null(node):
        return {}
    if isinstance(node, Scalar):
        value = filled_template(reading, node)
        if value is INVALID:
            return {}
        _add_database(reading, value, node)
        return {"auth": value}
    if not isinstance(node, Mapping):
        wrong(reading, node, "the name of a credential, or a mapping of them")
        return {}
    entries = _entries_of(reading, node) or {"": node}
    found = [one for name, entry in entries.items() if (one := _read_entry(reading, name, entry)) is not None]
    if engine == "duckdb":
        for one in found:
            for field in _FIELDS[one["kind"]]:
                reading.add_secret(one["credential"], field, node)
        return {"secrets": found}
    databases = [one for one in found if one["kind"] == "postgres"]
    if len(databases) > 1 or (found and not databases):
        reading.report.error("value", f"`auth` names {len(databases)} databases, and a {engine} tool needs one", node)
    if not databases:
        return {}
    _add_database(reading, databases[0]["credential"], node)
    return {"auth": databases[0]["credential"]}


def _add_database(reading: NoetlReading, name: str, node: Node) -> None:
    """Add the address and the password of a database as optional secrets: its usual variables can replace them."""
    known = name if not is_template(name) else find_in_workload(reading, name, is_fixed=False)
    if known and not is_template(known):
        for field in ("dsn", "password"):
            reading.add_secret(known, field, node, is_optional=True)


def _read_entry(reading: NoetlReading, name: str, node: Mapping) -> dict[str, str] | None:
    """Read one credential of a database tool, as a secret of DuckDB; None after a report."""
    fields = read_keys(reading, node, AUTH_DATABASE)
    key: Node | None = fields.get("key")
    if key is not None and not isinstance(key, Scalar):
        wrong(reading, key, "the name of a credential")
        return None
    credential = read_known_text(reading, key.text, key) if key is not None else name
    kind = {"hmac": "gcs"}.get(fields.get("type", "postgres"), fields.get("type", "postgres"))
    if not credential:
        if key is None:
            reading.report.error("value", "a credential of `auth` needs `key`, its name", node)
        return None
    scope = {"scope": fields["scope"]} if "scope" in fields else {}
    return {"name": fields.get("secret_name", name or credential), "kind": kind, "credential": credential, **scope}
