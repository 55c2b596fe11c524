"""Values in the url of a request: percent-encoded, so that none can change its server or leave its folder."""

from __future__ import annotations

import re
from typing import Any

from resile.languages.references import ValueRefused, text_of

# A whole address, once every value is in place.
WHOLE_URL = r"(?s)https?://[^/?#@\\\s]+(?:[/?#].*)?"
# What comes before the first value of a url: a scheme, a server without a password, and what ends the server's name.
SERVER = r"https?://[^/?#@\\\s]+(?=[/?#])"
_LEFT_IN_URLS = "%/:?#[]@!$&'()*+,;=~"


def is_whole_url(text: str) -> bool:
    """Is this an http url without a password?"""
    return re.fullmatch(WHOLE_URL, text) is not None


def names_server(text: str) -> bool:
    """Does this beginning of a url name its server?"""
    return re.match(SERVER, text) is not None


def encode_value(value: Any, kept: str = "") -> str:
    """A value for a place inside a url."""
    from urllib.parse import quote

    return quote(text_of(value), kept, "utf-8", "surrogateescape")


def encode_url(url: str) -> str:
    """A rendered url with what no request line can hold percent-encoded."""
    from urllib.parse import quote

    return quote(url, _LEFT_IN_URLS, "utf-8", "surrogateescape")


def leaves_folder(written: str, url: str) -> bool:
    """Has a value added `.` or `..` to the path of a url?"""
    return _dots(url) > _dots(written)


def check_rendered(written: str, url: str, *, is_value: bool) -> None:
    """Raise ValueRefused where a template came to no http url, or left its folder unless the url is one value."""
    if not is_whole_url(url) or (not is_value and leaves_folder(written, url)):
        raise ValueRefused(f"`{written}` does not come to an http url in the folder that it names")


def _dots(url: str) -> int:
    """How many parts of a path stand for a folder above or for itself."""
    parts = url.partition("?")[0].partition("#")[0].split("/")
    return sum(part in (".", "..") for part in parts)
