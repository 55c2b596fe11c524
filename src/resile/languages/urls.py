"""Values in the URL of a request: percent-encoded, so that none can change its server or leave its folder."""

from __future__ import annotations

import re
from typing import Any

from resile.languages.references import ValueRefused, text_of

_LEFT_IN_URLS = "%/:?#[]@!$&'()*+,;=~"


def is_whole_url(text: str) -> bool:
    """Is this an http URL without a password, with all values inserted?"""
    return re.fullmatch(r"(?s)https?://[^/?#@\\\s]+(?:[/?#].*)?", text) is not None


def names_server(text: str) -> bool:
    """Does this beginning of a URL have a scheme, a server without a password, and the end of the server's name?"""
    return re.match(r"https?://[^/?#@\\\s]+(?=[/?#])", text) is not None


def encode_value(value: Any, kept: str = "") -> str:
    """Encode a value for a position inside a URL; the characters in `kept` stay."""
    from urllib.parse import quote

    return quote(text_of(value), kept, "utf-8", "surrogateescape")


def encode_url(url: str) -> str:
    """A rendered URL, with characters that a request line can't contain percent-encoded."""
    from urllib.parse import quote

    return quote(url, _LEFT_IN_URLS, "utf-8", "surrogateescape")


def leaves_folder(written: str, url: str) -> bool:
    """Has a value added `.` or `..` to the path of a URL?"""
    return _dots(url) > _dots(written)


def check_rendered(written: str, url: str, *, is_value: bool) -> None:
    """Raise ValueRefused if the result is no http URL, or a value leaves the folder of a URL that is not one value."""
    if not is_whole_url(url) or (not is_value and leaves_folder(written, url)):
        raise ValueRefused(f"`{written}` does not come to an http url in the folder that it names")


def _dots(url: str) -> int:
    parts = url.partition("?")[0].partition("#")[0].split("/")
    return sum(part in (".", "..") for part in parts)
