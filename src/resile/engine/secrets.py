"""Secrets: where their values come from, and how they are redacted from text that leaves a step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from resile.engine.env_files import environment_of, without_callers_own
from resile.errors import ResileError
from resile.model.failure import Failure, Outcome
from resile.model.nested import workflows_within
from resile.model.workflow import Workflow

if TYPE_CHECKING:
    from resile.executors.redaction import Patterns

# Shorter lines, and encodings of shorter secrets, would turn ordinary text into stars.
LINE_CHARACTERS_MIN = 4
# A secret with more lines than this is redacted in its encodings only as a whole.
ENCODED_LINES_MAX = 100
SECRET_BYTES_MAX = 64 * 1024
# The names of variables that hold secrets, in capitals and with underscores. Their values count from so many characters
# on: no file declares them, and a guess must not turn ordinary text into stars.
SECRET_ENDINGS = ("_TOKEN", "_KEY", "_SECRET")
SECRET_WORDS = ("TOKEN", "SECRET", "APIKEY")
GUESSED_CHARACTERS_MIN = 6
COMMON_VALUES = frozenset((
    "changeme", "default", "development", "disabled", "enabled", "example", "localhost", "optional", "passwd",
    "password", "postgres", "private", "production", "public", "required", "secret", "staging", "undefined",
    "username",
))  # fmt: skip
# Variables that hold no secret although their names look like those of secrets.
NOT_SECRET = "RESILE_NOT_SECRET"
MASK = "***"
# The usual characters of tokens beside letters and digits: no program escapes them.
WRITTEN_AS_THEY_ARE = str.maketrans("-_.", "000")
URL_SAFE = ("", "/", "!*'()", ";,/?:@&=+$!*'()#")
HTML_QUOTES = (
    ('"', "'"),
    ("&quot;", "'"),
    ("&quot;", "&#x27;"),
    ("&quot;", "&#39;"),
    ("&quot;", "&apos;"),
    ("&#34;", "&#39;"),
)
# What `printf %q` writes with a backslash.
BACKSLASHED = {ord(character): "\\" + character for character in " !\"$&'()*,;<>?[\\]^`{|}"}
BASE64_IN_URLS = bytes.maketrans(b"+/", b"-_")


def load_secrets(workflow: Workflow, env: Mapping[str, str]) -> dict[str, str]:
    """The value of each secret that a workflow or one inside it declares; all steps of the run get them.

    A missing secret is an error before anything runs, and so are two secrets of one name with different values.
    """
    values: dict[str, str] = {}
    for one in workflows_within(workflow):
        for name, value in _own_secrets(one, env).items():
            if values.setdefault(name, value) != value:
                raise ResileError(
                    "secret-conflict",
                    f"secret {name!r} has another value here than in the workflow that calls this one or beside it",
                    where=one.file,
                    hint="all steps of a run have the same secrets: give one of the two another name",
                )
    return values


def _own_secrets(workflow: Workflow, env: Mapping[str, str]) -> dict[str, str]:
    """The value of each secret that one workflow declares; files lie beside it."""
    values: dict[str, str] = {}
    for name, secret in workflow.secrets.items():
        if secret.is_optional and not secret.file and (secret.env or name) not in env:
            continue
        if secret.file:
            values[name] = _from_file(name, os.path.join(workflow.folder, secret.file))
        elif (secret.env or name) in env:
            values[name] = env[secret.env or name]
        else:
            raise ResileError(
                "secret-missing",
                f"secret {name!r} is not in the environment (variable {secret.env or name})",
                where=workflow.file,
                hint=f"export {secret.env or name}=… before the run" + _in_file(name),
            )
    return values


def _in_file(name: str) -> str:
    """The hint that a secret can be in a file of credentials, if its name has an entry and a field."""
    entry, _, field = name.partition(".")
    return f", or add --credentials FILE with `{entry}: {{{field}: …}}`" if field else ""


def _from_file(name: str, path: str) -> str:
    """A secret from a file, without its last newline."""
    try:
        with open(path, "rb") as file:
            data = file.read(SECRET_BYTES_MAX + 2)
    except OSError as error:
        raise ResileError("secret-missing", f"secret {name!r}: {path}: {error.strerror}") from error
    if len(data) > SECRET_BYTES_MAX:
        raise ResileError("secret-too-large", f"secret {name!r}: {path} has more than {SECRET_BYTES_MAX} bytes")
    return data.decode("utf-8", "surrogateescape").removesuffix("\n")


def looks_secret(name: str) -> bool:
    """Does a name, of a variable or an input, look like that of a secret?"""
    name = name.upper().replace("-", "_")
    return name.endswith(SECRET_ENDINGS) or "PASSWORD" in name or name in SECRET_WORDS


def values_to_hide(secrets: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """The declared secrets, and the variables whose names look like those of secrets.

    Short and common values and paths of files are left out: steps print them for other reasons.
    """
    shown = env.get(NOT_SECRET, "").split(",")
    return {
        name: value for name, value in env.items() if looks_secret(name) and _is_rare(value) and name not in shown
    } | dict(secrets)


def _is_rare(value: str) -> bool:
    """Is a value long enough for a secret, no common word, and not the path of a file?"""
    if len(value.strip()) < GUESSED_CHARACTERS_MIN or value.lower() in COMMON_VALUES:
        return False
    return "/" not in value or not os.path.exists(value)


class Hidden:
    """The secrets of a run as texts to redact, in every form in which programs write them; `listed` for Patterns."""

    def __init__(self, values: Mapping[str, str] = {}) -> None:
        plain: set[bytes] = set()
        encoded: set[bytes] = set()
        for value in values.values():
            lines = [line for line in value.splitlines() if len(line) >= LINE_CHARACTERS_MIN]
            for text in (value, *lines) if value.strip() else lines:
                plain |= {os.fsencode(form) for form in (text, *_escaped_forms_of(text))}
                if len(text) >= LINE_CHARACTERS_MIN and (text is value or len(lines) <= ENCODED_LINES_MAX):
                    encoded |= _encoded_forms_of(os.fsencode(text))
        self.listed = (*sorted(plain), b"", *sorted(encoded)) if plain else ()

    def __bool__(self) -> bool:
        return bool(self.listed)

    @cached_property
    def _patterns(self) -> Patterns:
        from resile.executors.redaction import Patterns

        return Patterns(self.listed)

    def redact(self, text: str) -> str:
        """The text with every secret replaced by `***`."""
        if not self.listed:
            return text
        # Bytes that were no text are half characters here; other half characters are data of JSON.
        for errors in ("surrogateescape", "surrogatepass"):
            try:
                return self._patterns.redact(text.encode("utf-8", errors)).decode("utf-8", errors)
            except UnicodeError:
                continue
        return MASK

    def redact_bytes(self, data: bytes) -> bytes:
        """The data with every secret replaced by `***`."""
        return self._patterns.redact(data) if self.listed else data


NOTHING_HIDDEN = Hidden()


class FixedEnvironment(dict[str, str]):
    """The environment of a process that drives many runs; it never changes, so it caches values that all runs use."""

    @cached_property
    def plain(self) -> FixedEnvironment:
        """The environment of the steps of a workflow that adds nothing."""
        return FixedEnvironment(without_callers_own(self))

    @cached_property
    def hidden(self) -> Hidden:
        """The texts to redact of a workflow without secrets."""
        return Hidden(values_to_hide({}, self))

    @cached_property
    def encoded(self) -> dict[bytes, bytes]:
        """The names and values as the system has them."""
        return {os.fsencode(name): os.fsencode(value) for name, value in self.items()}


def encode_environment(env: Mapping[str, str], own: Mapping[str, str]) -> dict[bytes, bytes]:
    """An environment with what a run adds, as the system has it."""
    encoded = env.encoded if isinstance(env, FixedEnvironment) else FixedEnvironment(env).encoded
    return {**encoded, **FixedEnvironment(own).encoded}


def has_own_surroundings(workflow: Workflow) -> bool:
    """Does a workflow, or one inside it, add secrets or files of variables to the environment of its steps?"""
    return any(one.secrets or one.env_files for one in workflows_within(workflow))


def surroundings_of(workflow: Workflow, env: Mapping[str, str]) -> tuple[Mapping[str, str], dict[str, str], Hidden]:
    """The environment of a run's steps, its secrets, and the texts to redact."""
    if isinstance(env, FixedEnvironment) and not has_own_surroundings(workflow):
        return env.plain, {}, env.plain.hidden
    own = environment_of(workflow, env)
    secrets = load_secrets(workflow, own)
    return own, secrets, Hidden(values_to_hide(secrets, own))


def _escaped_forms_of(text: str) -> set[str]:
    """A text as JSON, Python, a shell's trace, URLs and HTML write it, also JSON in JSON."""
    if text.isascii() and text.translate(WRITTEN_AS_THEY_ARE).isalnum():
        return set()
    raw = os.fsencode(text)
    # With a double quote in the text, repr() also escapes the single quotes.
    python = {repr(f'"{text}')[2:-1], ascii(f'"{text}')[2:-1], repr(b'"' + raw)[3:-1]}
    json_once = _json_forms_of(text)
    forms = {*python, *(form.replace("\\'", "'") for form in python), *json_once, *_shell_forms_of(text)}
    if len(text) >= LINE_CHARACTERS_MIN:
        forms |= {twice for once in json_once for twice in _json_forms_of(once)}
        forms |= _html_forms_of(text)
    return forms | _url_forms_of(raw)


def _shell_forms_of(text: str) -> set[str]:
    """A text as shells and programs quote it for shells: in a trace, by `shlex.quote`, and by `printf %q`."""
    backslashed = text.translate(BACKSLASHED)
    if text[:1] in ("#", "~"):
        backslashed = "\\" + backslashed
    return {text.replace("'", "'\\''"), text.replace("'", "'\"'\"'"), backslashed}


def _json_forms_of(text: str) -> set[str]:
    """A text as encoders of JSON write it: with and without escapes for characters beyond ASCII, `/`, `<`, `>`, `&`."""
    import json

    forms = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    forms |= {form.replace("/", "\\/") for form in forms}
    for character in "<>&":
        forms |= {form.replace(character, f"\\u{ord(character):04x}") for form in forms}
    return forms


def _url_forms_of(raw: bytes) -> set[str]:
    """A text as programs quote it for URLs: they differ in what is safe, in a blank, and in the case of the digits."""
    from urllib.parse import quote

    upper = {quote(raw, safe) for safe in URL_SAFE}
    upper |= {form.replace("%20", "+") for form in upper}
    lower = {
        "%".join((first, *(part[:2].lower() + part[2:] for part in rest)))
        for first, *rest in (form.split("%") for form in upper)
    }
    return upper | lower


def _html_forms_of(text: str) -> set[str]:
    """A text as programs escape it for HTML: quotes are left, or written in several ways."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {text.replace('"', double).replace("'", single) for double, single in HTML_QUOTES}


def _encoded_forms_of(raw: bytes) -> set[bytes]:
    """A text in hexadecimal, and in base64 at each of the three places that it can have in a longer one.

    The secret may be a part of a longer text that was encoded. Then only those characters count that the secret decides
    alone. The two beside them count, too, if the secret ends the longer text and begins it or follows a colon, as in
    `user:secret`.
    """
    from binascii import b2a_base64

    forms = {raw.hex().encode(), raw.hex().upper().encode()}
    for before in range(3):
        bits = 8 * (before + len(raw))
        first, last = -(-8 * before // 6), bits // 6
        whole = b2a_base64((b"::" + b":")[:before] + raw, newline=False)
        ends = whole[8 * before // 6 : -(-bits // 6)]
        for form in (whole[first:last], ends):
            forms |= {form, form.translate(BASE64_IN_URLS)}
    return forms


def redact_value(value: Any, secrets: Hidden) -> Any:
    """A captured value with every secret in its texts replaced."""
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, list):
        return [redact_value(item, secrets) for item in value]
    if isinstance(value, dict):
        return {redact(key, secrets): redact_value(item, secrets) for key, item in value.items()}
    return value


def redact_outcome(outcome: Outcome, secrets: Hidden) -> Outcome:
    """An outcome with every secret in its values and in its failure replaced."""
    if not secrets:
        return outcome
    failure = outcome.failure
    return replace(
        outcome,
        values=redact_value(outcome.values, secrets),
        memory=redact_value(outcome.memory, secrets),
        failure=None if failure is None else redact_failure(failure, secrets),
    )


def redact_failure(failure: Failure, secrets: Hidden) -> Failure:
    """A failure with every secret in its texts replaced."""
    return replace(
        failure,
        message=redact(failure.message, secrets),
        stdout=redact(failure.stdout, secrets),
        stderr=redact(failure.stderr, secrets),
        signature=redact(failure.signature, secrets),
    )


def refuse_secret_inputs(inputs: Mapping[str, Any], values: Mapping[str, str], what: str = "input") -> None:
    """Refuse an input, or a label, that holds a secret: they are stored with the run."""
    hidden = Hidden(values)
    for name, value in inputs.items():
        if redact_value(value, hidden) != value:
            secret = next(one for one in values if redact_value(value, Hidden({one: values[one]})) != value)
            none = f"; {NOT_SECRET}={secret} says that it is none" if looks_secret(secret) else ""
            raise ResileError(
                "secret-input",
                f"{what} {name!r} holds the value of the secret {secret}, and {what}s are stored",
                hint=f"steps have each secret in their environment: use it from there{none}",
            )


def redact(text: str, secrets: Hidden) -> str:
    """The text with every secret replaced."""
    return secrets.redact(text)
