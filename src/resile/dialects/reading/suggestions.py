"""Hints for unknown words: the known word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

from resile.errors import shorten

SUGGESTION_CANDIDATES_MAX = 2_000


def nearest(word: str, options: Iterable[str]) -> str:
    """The option that was probably meant, or an empty text."""
    import difflib

    lower = word.lower()
    candidates: dict[str, str] = {}
    for option in options:
        # Thin out long lists first: comparing a word with 100,000 names would take seconds.
        if abs(len(option) - len(word)) <= 3 and len(candidates) < SUGGESTION_CANDIDATES_MAX:
            candidates.setdefault(option.lower(), option)
    if lower in candidates:
        return candidates[lower]
    matches = difflib.get_close_matches(lower, candidates, n=1, cutoff=0.6)
    return candidates[matches[0]] if matches else ""


def did_you_mean(word: str, options: Iterable[str], noun: str = "") -> str:
    """A hint for an unknown word: the nearest option, else a few of the options."""
    known = list(options)
    near = nearest(word, known)
    if near:
        return f"did you mean `{near}`?"
    if not known or not noun:
        return ""
    few = ", ".join(f"`{shorten(option)}`" for option in known[:10])
    return f"{noun}: {few}" + (f" and {len(known) - 10} more" if len(known) > 10 else "")
