"""Rewrites the texts of Visor's users to strict Liquid: forms that liquidjs accepts, or what its users mean by them.

    {{ a ? b : c }}                    if, else              {{ a || b }}                  a ? a : b
    {% for x in list | slice: 0, 3 %}  filtered first        {% readfile "notes.md" %}     a value like any other
    default: empty, default: []        empty values          memory.listNamespaces()       without its parentheses
    memory.get("k", "space")           "k" | memory_get: "space"; likewise `has`, in outputs and in `assign`
    === !== && || !  in a condition    == != and or not      a?.b                          a.b
    split: "\\n"                       a line break          "say \\"hi\\""                 quotes in quotes

`!` binds closest, then `&&`, then `||`, as in JavaScript; Liquid's own `and` and `or` group from the right. In a
condition before `?` or `||`, the empty text and zero are false, as in JavaScript.

Nothing else is changed, and nothing in `raw`. Unless escapes are resolved, lines keep their numbers, for messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable

EMPTY_LIST = "empty_list"
"""The name of an empty list, which Liquid has no syntax for."""
READ_FILE = "readfile"
Literal = Callable[[str], str]
"""Converts a quoted text."""

PART_CHARACTERS_MAX = 4_000
"""A longer tag or output is left unchanged."""

_CLOSERS = {"{{": "}}", "{%": "%}"}
_RAW = re.compile(r"-?\s*raw\s*-?")
_END_RAW = re.compile(r"\{%-?\s*endraw\s*-?%\}")
_QUOTED = re.compile(r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}
_CONDITION = re.compile(r"(-?\s*(?:if|elsif|unless)\b)(.*?)(-?\s*)\Z", re.DOTALL)
_LOOP = re.compile(r"(-?)(\s*for\s+)([\w-]+)(\s+in\s+)([^|]+?)(\s*\|.*?)(-?)\Z", re.DOTALL)
_READ = re.compile(r"(-?)\s*readfile\s+(.+?)\s*(-?)\Z", re.DOTALL)
_ASSIGNED_READ = re.compile(r"(-?\s*assign\s+[\w-]+\s*=\s*)readfile\s+(.+?)(\s*-?)\Z", re.DOTALL)
_OPTIONS = re.compile(r"\s(reversed\b|limit\s*:|offset\s*:).*\Z", re.DOTALL)
_PATH = re.compile(r"[\w.?\[\]'-]+")
_OPERAND = re.compile(r"\s*[\w.?\[\]'-]+")
_CALL = re.compile(r"(?<=[\w\]])\(\s*\)")
_MEMORY = re.compile(rf"(\A|=)(\s*)memory\.(get|has)\(\s*{_QUOTED.pattern}\s*(?:,\s*{_QUOTED.pattern}\s*)?\)")
_OPERATOR = re.compile(r"[()]|&&|\|\||!(?!=)|(?<![\w.-])(?:and|or)(?![\w-])")
_COMPARED_GROUP = re.compile(r"\)\s*(?:[=!<>]|contains\b)|(?:[=<>]|\bcontains)\s*\(")
_BAR = re.compile(r"(?<!\|)\|(?!\|)")
_FILTER_COLON = re.compile(r"\|\s*\w+\Z")


def as_liquid(text: str, *, is_resolved: bool = True) -> str:
    """The text with each of these forms in Liquid's syntax; escapes in quotes are resolved, or left."""
    literal = _resolve_escapes if is_resolved else str
    parts: list[str] = []
    at, has_raw = 0, True
    while (start := text.find("{", at)) >= 0:
        opener = text[start : start + 2]
        if opener not in _CLOSERS:
            parts.append(text[at : start + 1])
            at = start + 1
            continue
        end = text.find(_CLOSERS[opener], start + 2)
        if end < 0:
            break
        inside = text[start + 2 : end]
        is_raw = has_raw and opener == "{%" and _RAW.fullmatch(inside) is not None
        raw = _END_RAW.search(text, end) if is_raw else None
        # If this one has no end, later ones have none either.
        has_raw = has_raw and not (is_raw and raw is None)
        parts.append(text[at:start])
        at = raw.end() if raw is not None else end + 2
        change = _rewrite_output if opener == "{{" else _rewrite_tag
        is_left = raw is not None or len(inside) > PART_CHARACTERS_MAX
        parts.append(text[start:at] if is_left else change(inside, literal))
    return "".join([*parts, text[at:]])


def _rewrite_output(inside: str, literal: Literal) -> str:
    """Rewrite an output; a choice between two values becomes a condition."""
    left, right = inside[:1] == "-", inside[-1:] == "-" and len(inside) > 1
    inner = _filter_memory(inside[left : len(inside) - right])
    choice = _choice_of(inner) or _first_of_two(inner)
    if choice is None:
        return "{{" + "-" * left + _rewrite_words(inner, literal) + "-" * right + "}}"
    condition, yes, no = choice
    asked = "{%" + "-" * left + f" if {_rewrite_condition(_compare_bare_values(condition), literal)} " + "%}"
    parts = (asked, _rewrite_output(f" {yes} ", literal), "{% else %}", _rewrite_output(f" {no} ", literal))
    return "".join(parts) + "{% endif " + "-" * right + "%}"


def _rewrite_tag(inside: str, literal: Literal) -> str:
    """Rewrite a tag."""
    condition = _CONDITION.match(inside)
    if condition is not None:
        return "{%" + condition[1] + _rewrite_condition(condition[2], literal) + condition[3] + "%}"
    read = _READ.fullmatch(inside)
    if read is not None:
        return "{{" + read[1] + f" {_rewrite_words(read[2], literal)} | {READ_FILE} " + read[3] + "}}"
    assigned = _ASSIGNED_READ.fullmatch(inside)
    if assigned is not None:
        return "{%" + f"{assigned[1]}{_rewrite_words(assigned[2], literal)} | {READ_FILE}{assigned[3]}" + "%}"
    loop = _LOOP.fullmatch(inside)
    if loop is not None:
        left, word, name, within, items, filters, right = loop.groups()
        options = _OPTIONS.search(filters)
        more = options[0] if options is not None else ""
        filters = filters[: len(filters) - len(more)]
        first = "{%" + left + f" assign {name}_items = {_rewrite_words(items + filters, literal)} " + "%}"
        return first + "{%" + f"{word}{name}{within}{name}_items {more.strip()} " + right + "%}"
    return "{%" + _rewrite_words(_filter_memory(inside), literal) + "%}"


def _filter_memory(inner: str) -> str:
    """A question to the memory, as a filter of the key; one inside of a condition is left."""

    def filter_of(found: re.Match[str]) -> str:
        before, blank, verb, key, space = found.groups()
        return f"{before}{blank}{key} | memory_{verb}" + (f": {space}" if space else "")

    return _MEMORY.sub(filter_of, inner, count=1) if "memory." in inner else inner


def _rewrite_words(inner: str, literal: Literal) -> str:
    """An expression without the words that Liquid does not have."""

    def text_outside_quotes(part: str) -> str:
        part = part.replace("?.", ".")
        part = _CALL.sub("", part)
        part = re.sub(r"([:,]\s*)\[\s*\]", rf"\1{EMPTY_LIST}", part)
        return re.sub(r"([:,]\s*)empty\b", r"\1''", part)

    return _outside_quotes(inner, text_outside_quotes, literal)


def _resolve_escapes(quoted: str) -> str:
    """A quoted text with its escapes resolved, as far as Liquid can express it."""
    if "\\" not in quoted:
        return quoted
    value = _ESCAPE.sub(lambda found: _ESCAPES.get(found[1]) or _character(found[1]), quoted[1:-1])
    mark = quoted[0] if quoted[0] not in value else "'" if quoted[0] == '"' else '"'
    return quoted if mark in value or "}}" in value or "%}" in value else f"{mark}{value}{mark}"


def _character(escape: str) -> str:
    """The character of an escape; half of a surrogate pair stays escaped."""
    if len(escape) == 1:
        return escape
    code = int(escape[1:], 16)
    return f"\\{escape}" if 0xD800 <= code <= 0xDFFF else chr(code)


def _rewrite_condition(condition: str, literal: Literal) -> str:
    """A condition in Liquid's syntax."""

    def text_outside_quotes(part: str) -> str:
        part = part.replace("!==", "!=").replace("===", "==").replace("&&", " and ").replace("||", " or ")
        return re.sub(r"!(?!=)\s*", " not ", part)

    return _outside_quotes(_rewrite_words(_add_parentheses(condition), literal), text_outside_quotes)


def _add_parentheses(condition: str) -> str:
    """A condition with each `!` and its operand in parentheses, and each run of `&&` where there is `||` as well."""
    masked = _mask(condition)
    is_mixed = "&&" in masked and "||" in masked
    marks: list[tuple[int, str]] = []
    # For each level of parentheses: where its last run begins, and whether it has `&&`; and the `!` before it.
    runs = [(0, False)]
    before: list[list[int]] = []
    nots: list[int] = []

    def enclose(starts: list[int], end: int) -> None:
        """Add parentheses from each of these offsets to `end`."""
        for start in starts:
            marks.extend(((start, "("), (end, ")")))

    def close(end: int) -> None:
        start, has_both = runs.pop()
        enclose([start] if has_both and is_mixed else [], end)

    for found in _OPERATOR.finditer(masked):
        match found[0]:
            case "!":
                nots.append(found.start())
                if operand := _OPERAND.match(masked, found.end()):
                    enclose(nots, operand.end())
                    nots = []
            case "&&":
                runs[-1] = (runs[-1][0], True)
            case "(":
                runs.append((found.end(), False))
                before.append(nots)
                nots = []
            case ")" if not before:
                # One parenthesis too many: Liquid reports the error.
                return condition
            case ")":
                close(found.start())
                enclose(before.pop(), found.end())
            case _:
                close(found.start())
                runs.append((found.end(), False))
    close(len(condition))
    for at, mark in sorted(marks, reverse=True):
        condition = condition[:at] + mark + condition[at:]
    return condition


def _compare_bare_values(condition: str) -> str:
    """A condition in which a bare value that is an empty text or zero counts as false."""
    masked = _mask(condition)
    if _COMPARED_GROUP.search(masked):
        return condition
    parts: list[str] = []
    at, is_denied = 0, False
    for found in (*_OPERATOR.finditer(masked), None):
        end = len(masked) if found is None else found.start()
        value = _OPERAND.match(masked, at, end)
        if value is not None and (is_denied or not masked[value.end() : end].strip()):
            path, at = condition[at : value.end()].strip(), value.end()
            parts.append(f"({path} and {path} != '' and {path} != 0)")
        parts.append(condition[at:end])
        if found is not None:
            parts.append(f" {found[0]} ")
            at, is_denied = found.end(), found[0] == "!"
    return "".join(parts)


def _first_of_two(inner: str) -> tuple[str, str, str] | None:
    """`a || b` as the three parts of a choice, each with the filters after it; None if it is no such expression."""
    masked = _mask(inner) if "||" in inner else ""
    at = masked.find("||")
    if at < 0 or not _PATH.fullmatch(masked[:at].strip()):
        return None
    bar = _BAR.search(masked, at + 2)
    filters = inner[bar.start() :] if bar is not None else ""
    return inner[:at].strip(), f"{inner[:at].strip()} {filters}".strip(), inner[at + 2 :].strip()


def _choice_of(inner: str) -> tuple[str, str, str] | None:
    """The three parts of `a ? b : c`, or None if it is no such expression."""
    masked = _mask(inner)
    mark = re.search(r"\?(?![.?])", masked)
    if mark is None or not inner[: mark.start()].strip():
        return None
    for colon in re.finditer(":", masked[mark.end() :]):
        at = mark.end() + colon.start()
        if not _FILTER_COLON.search(masked[:at]):
            return inner[: mark.start()].strip(), inner[mark.end() : at].strip(), inner[at + 1 :].strip()
    return None


def _mask(inner: str) -> str:
    """The text with quoted parts and the parentheses of calls replaced by other characters."""
    return _CALL.sub(_hide, _QUOTED.sub(_hide, inner))


def _hide(found: re.Match[str]) -> str:
    return "'" * len(found[0])


def _outside_quotes(text: str, change: Callable[[str], str], literal: Literal = str) -> str:
    """The text with `change` applied outside quotes and `literal` inside."""
    return "".join(literal(part) if number % 2 else change(part) for number, part in enumerate(_QUOTED.split(text)))
