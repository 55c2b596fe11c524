"""The small parts of KDL: blanks, comments, the end of a node, and strings in their four forms.

bare        "quoted \\n"        #"raw \\n"#        three quotes around lines; the last line sets the indentation
"""

from __future__ import annotations

import re

from resile.dialects.formats.nodes import Mark
from resile.dialects.formats.scanner import Scanner
from resile.errors import shorten
from resile.model.limits import FILE_DEPTH_MAX

KEYWORDS: dict[str, bool | float | None] = {
    "#true": True,
    "#false": False,
    "#null": None,
    "#inf": float("inf"),
    "#-inf": float("-inf"),
    "#nan": float("nan"),
}
_NEWLINES = "\n\r\x85\x0b\x0c\u2028\u2029"
_BLANKS = "\t \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff"
_BLANK = re.compile(f"[{_BLANKS}]+")
_NEWLINE = re.compile(f"\r\n|[{_NEWLINES}]")
_LINE_COMMENT = re.compile(f"//[^{_NEWLINES}]*")
_COMMENT_PART = re.compile(r"/\*|\*/")
_BARE = re.compile(rf'[^{_BLANKS}{_NEWLINES}\\/(){{}};\[\]"#=\x00-\x1f\x7f]+')
_RAW = re.compile(r'(#+)("""|")')
_PLAIN = re.compile(rf'[^"\\{_NEWLINES}]+')
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "b": "\b", "f": "\f", "s": " "}
_UNICODE = re.compile(r"\{([0-9a-fA-F]{1,6})\}")
_SPACES = re.compile(f"(?:[{_BLANKS}{_NEWLINES}])+")
_RESERVED = ("true", "false", "null", "inf", "-inf", "nan")


class Strings(Scanner):
    """Scans blanks, comments and strings; `place` is the position of the whole text if it is part of another one."""

    language = "KDL"
    place: Mark | None = None

    def mark(self, offset: int) -> Mark:
        """The line and column of an offset."""
        return self.place or super().mark(offset)

    def skip_blanks(self) -> bool:
        """Skip blanks, comments within the line and line continuations; was there anything?"""
        begin = self.at
        while True:
            if self.take(_BLANK):
                continue
            if self.text.startswith("/*", self.at):
                self._block_comment()
            elif self.peek() == "\\":
                self._continuation()
            else:
                return self.at > begin

    def _continuation(self) -> None:
        """Skip a backslash at the end of a line, which continues the node."""
        opened = self.at
        self.at += 1
        self.take(_BLANK)
        self.take(_LINE_COMMENT)
        if self.peek() and not self.take(_NEWLINE):
            self.refuse("a backslash outside of a text must be the last thing on its line", opened)

    def _block_comment(self) -> None:
        """Skip a comment, which may contain others."""
        opened, depth = self.at, 0
        while True:
            found = _COMMENT_PART.search(self.text, self.at)
            if found is None:
                self.refuse("this comment does not end", opened)
            self.at = found.end()
            depth += 1 if found[0] == "/*" else -1
            if not depth:
                return
            if depth > FILE_DEPTH_MAX:
                self.refuse(f"comments are nested deeper than {FILE_DEPTH_MAX} levels", opened, code="limit")

    def skip_lines(self) -> None:
        """Skip everything that may be between nodes."""
        while self.skip_blanks() or self.take(_NEWLINE) or self.take(_LINE_COMMENT):
            pass

    def ends_node(self) -> bool:
        """Is the node over? Skips its end, but not the `}` that closes the block around it."""
        if self.peek() in ("", "}"):
            return True
        if self.peek() == ";":
            self.at += 1
            return True
        return bool(self.take(_NEWLINE) or self.take(_LINE_COMMENT))

    def at_raw_string(self) -> bool:
        """Is there a raw string here?"""
        return _RAW.match(self.text, self.at) is not None

    def word_end(self, begin: int) -> int:
        """The end of the bare word that begins here."""
        found = _BARE.match(self.text, begin)
        return begin if found is None else found.end()

    def string(self, what: str) -> str:
        """Parse a string in any form."""
        raw = _RAW.match(self.text, self.at)
        if raw is not None:
            return self._raw(raw)
        if self.text.startswith('"""', self.at):
            return self._lines(self.at + 3, '"""', is_raw=False)
        if self.peek() == '"':
            hint = 'a line break is written `\\n`, or the text stands in `"""`'
            return self.read_quoted(_PLAIN, self._escape, hint)
        word = self.text[self.at : self.word_end(self.at)]
        if not word:
            self.refuse(f"{what} is expected here, not {self.text_here()}")
        if word in _RESERVED:
            self.refuse(f"`{word}` is KDL 1", hint=f'write `#{word}`, or `"{word}"` for the text')
        self.at += len(word)
        return word

    def _raw(self, found: re.Match[str]) -> str:
        """Parse a raw string: everything up to its quotes and as many `#`."""
        closing = found[2] + found[1]
        if found[2] == '"""':
            return self._lines(found.end(), closing, is_raw=True)
        end = self.text.find(closing, found.end())
        text = self.text[found.end() : end]
        if end < 0 or _NEWLINE.search(text):
            self.refuse("this text does not end on its line", hint='a text of several lines stands in `"""`')
        self.at = end + len(closing)
        return text

    def _escape(self) -> str:
        """Parse the escape after a backslash, which drops blanks and line breaks."""
        character = self.peek()
        if self.take(_SPACES):
            return ""
        self.at += 1
        if character == "u":
            begin, code = self.at, self.take(_UNICODE)
            number = int(code[1], 16) if code is not None else -1
            if code is None or number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
                self.refuse("`\\u` needs the number of a character: `\\u{1F600}`", begin)
            return chr(number)
        if character not in _ESCAPES or not character:
            self.refuse(f"`\\{shorten(character)}` is no escape", self.at - 1, hint="a backslash is written `\\\\`")
        return _ESCAPES[character]

    def _lines(self, begin: int, closing: str, *, is_raw: bool) -> str:
        """Parse a multi-line text, without the indentation of its last line."""
        opened, newline = self.at, _NEWLINE.match(self.text, begin)
        end = self._lines_end(begin, closing, is_raw)
        if newline is None or end < 0:
            hint = "the text begins on the line below the three quotes"
            self.refuse("this text does not end" if end < 0 else "a line break is expected here", opened, hint=hint)
        lines = _NEWLINE.split(self.text[newline.end() : end]) if newline.end() <= end else [""]
        indent = lines.pop()
        if indent.strip(" \t\u00a0\u3000"):
            self.refuse("the closing quotes stand on a line of their own", end)
        for number, line in enumerate(lines):
            if not line.strip():
                lines[number] = ""
            elif line.startswith(indent):
                lines[number] = line[len(indent) :]
            else:
                self.refuse("a line of this text is indented less than its closing quotes", opened)
        text = "\n".join(lines)
        if not is_raw:
            text = self._unescape(text, opened)
        self.at = end + len(closing)
        return text

    def _lines_end(self, begin: int, closing: str, is_raw: bool) -> int:
        """The offset of the closing quotes; escaped quotes do not close."""
        end = self.text.find(closing, begin)
        while not is_raw and end >= 0 and self._is_escaped(begin, end):
            end = self.text.find(closing, end + 1)
        return end

    def _is_escaped(self, begin: int, place: int) -> bool:
        """Is there an odd number of backslashes before this offset?"""
        slashes = place
        while slashes > begin and self.text[slashes - 1] == "\\":
            slashes -= 1
        return bool((place - slashes) % 2)

    def _unescape(self, text: str, opened: int) -> str:
        """Replace the escapes in a multi-line text."""
        if "\\" not in text:
            return text
        inner = Strings(text, self.report)
        inner.place = self.mark(opened)
        parts: list[str] = []
        while (slash := text.find("\\", inner.at)) >= 0:
            parts.append(text[inner.at : slash])
            inner.at = slash + 1
            parts.append(inner._escape())
        return "".join(parts) + text[inner.at :]
