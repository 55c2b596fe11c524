"""One command of a shell text as it is read: where its words and values are."""

from __future__ import annotations


class Simple:
    """A command of words: where each word is, the values in them, and the command before it in its pipeline."""

    def __init__(self, before: Simple | None = None) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.redirects: list[str] = []
        self.values: list[tuple[int, int]] = []
        self.elements: list[tuple[int, int]] = []
        self.before = before
        self.has_document = False
        self.documents: list[tuple[int, int]] = []
        self.bodies: list[tuple[int, int]] = []
        # The commands inside the compound command that ends here.
        self.group: list[Simple] = []
        self.second = ""

    def begin_word(self, at: int, redirect: str) -> None:
        """Begin a word, which may be the target of a redirection."""
        self.starts.append(at)
        self.ends.append(at)
        self.redirects.append(redirect)

    def drop_number(self, text: str, at: int) -> str:
        """Drop the number of a descriptor, as in `2>`, that was read as a word up to `at`; return it."""
        if not self.ends or self.ends[-1] != at or not text[self.starts[-1] : at].isdigit():
            return ""
        self.ends.pop()
        self.redirects.pop()
        return text[self.starts.pop() : at]
