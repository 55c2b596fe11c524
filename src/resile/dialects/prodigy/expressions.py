"""The expressions of Prodigy, `when` and a map's `filter`, as JavaScript for the sandbox.

    or      and (('||' | OR) and)*            unary    (! | NOT) unary | primary
    and     not (('&&' | AND) not)*           primary  '(' or ')' | call | list | ${path} | path | text | number
    compare sum (op sum)?                     op       == = != > < >= <= in, contains, matches, =~

A `when` names variables (`${a.b}`, or the bare words inside one `${…}`), a filter names the fields of an item. A
missing value is null. A variable alone is true unless it is empty, `0`, `false` or `null`; a numeric text compares as a
number.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from resile.dialects.formats.nodes import Node, Scalar, describe
from resile.dialects.native.nodes import text_in, word
from resile.dialects.prodigy.variables import Translation, Where
from resile.languages.references import is_one_reference

_TOKEN = re.compile(
    r"\s*(?:(?P<reference>\$\{[^{}]*\})|(?P<text>'[^']*'|\"[^\"]*\")|(?P<number>-?\d+(?:\.\d+)?(?![\w.]))"
    r"|(?P<path>[A-Za-z_$@][\w-]*(?:\.[A-Za-z_][\w-]*|\[\d+\])*)|(?P<operator>\|\||&&|==|!=|>=|<=|=~|[=<>!()\[\],]))"
)
_WORDS = {"and": "&&", "or": "||", "not": "!", "in": "in", "contains": "contains", "matches": "=~"}
_LITERALS = ("true", "false", "null")
_COMPARISONS = ("==", "=", "!=", ">", "<", ">=", "<=", "in", "contains", "=~")
_ORDERS = (">", "<", ">=", "<=")
_LITERAL_STARTS = ("-", '"', *"0123456789")
_FUNCTIONS = {
    "is_null": "({0} ?? null) === null",
    "is_not_null": "({0} ?? null) !== null",
    "is_number": "typeof {0} === 'number'",
    "is_string": "typeof {0} === 'string'",
    "is_bool": "typeof {0} === 'boolean'",
    "is_array": "Array.isArray({0})",
    "is_object": "(typeof {0} === 'object' && {0} !== null && !Array.isArray({0}))",
    "length": "({0} ?? '').length",
    "contains": "({0} ?? '').includes({1})",
    "starts_with": "String({0} ?? '').startsWith({1})",
    "ends_with": "String({0} ?? '').endsWith({1})",
    "matches": "new RegExp({1}).test({0} ?? '')",
}
_NESTING_MAX = 40

Name = Callable[[str], str]
"""Translates a path to JavaScript."""


class NotAnExpression(Exception):
    """Raised for a text that is no expression, with the reason."""


def to_javascript(source: str, name: Name) -> str:
    """Translate an expression to JavaScript; raises NotAnExpression."""
    inside = re.fullmatch(r"\s*\$\{(.*)\}\s*", source, re.DOTALL)
    # `${a == 'b' && c}`: the whole expression in one pair of braces, its variables bare.
    if inside is not None and "${" not in inside[1] and not re.fullmatch(r"[\w.\[\]-]+", inside[1]):
        source = inside[1]
    parser = _Parser(_tokenize(source), name)
    result = parser.parse_or()
    if parser.at < len(parser.tokens):
        raise NotAnExpression(f"`{parser.tokens[parser.at][1]}` is not expected here")
    return parser.condition_of(result)


def _tokenize(source: str) -> list[tuple[str, str]]:
    """Split an expression into tokens with their kinds."""
    found: list[tuple[str, str]] = []
    at = 0
    while source[at:].strip():
        match = _TOKEN.match(source, at)
        if match is None:
            raise NotAnExpression(f"`{source[at:].strip()[:20]}` can't be read")
        kind, text = str(match.lastgroup), match[match.lastgroup or 0]
        is_call = source[match.end() :].lstrip()[:1] == "(" and (not found or found[-1][0] == "operator")
        if kind == "path" and text.lower() in _WORDS and (not is_call or text.lower() not in _FUNCTIONS):
            kind, text = "operator", _WORDS[text.lower()]
        found.append((kind, text))
        at = match.end()
    return found


class _Parser:
    """Parses tokens by recursive descent; a result is JavaScript, and whether it is a value instead of a condition."""

    def __init__(self, tokens: list[tuple[str, str]], name: Name) -> None:
        self.tokens = tokens
        self.name = name
        self.at = 0
        self.depth = 0

    def condition_of(self, result: tuple[str, bool]) -> str:
        """The JavaScript of a part as a condition: a value is tested for truth as Prodigy does."""
        code, is_value = result
        return f"!/^(|0|false|null)$/.test({code} ?? '')" if is_value else code

    def parse_or(self) -> tuple[str, bool]:
        """Parse parts joined by `||`."""
        return self._parse_chain(self._parse_and, "||")

    def _parse_and(self) -> tuple[str, bool]:
        return self._parse_chain(self._parse_not, "&&")

    def _parse_chain(self, parse_part: Callable[[], tuple[str, bool]], operator: str) -> tuple[str, bool]:
        """Parse parts with one operator in between."""
        parts = [parse_part()]
        while self._accept(operator):
            parts.append(parse_part())
        if len(parts) == 1:
            return parts[0]
        return "(" + f" {operator} ".join(self.condition_of(part) for part in parts) + ")", False

    def _parse_not(self) -> tuple[str, bool]:
        """Parse a part, or its negation."""
        if not self._accept("!"):
            return self._parse_comparison()
        self._enter_level()
        inner = self._parse_not()
        self.depth -= 1
        return f"!({self.condition_of(inner)})", False

    def _parse_comparison(self) -> tuple[str, bool]:
        """Parse one value, or a comparison of two."""
        left = self._parse_value()
        kind, operator = self._peek()
        if kind != "operator" or operator not in _COMPARISONS:
            return left
        self.at += 1
        right = self._parse_value()
        a, b = left[0], right[0]
        match operator:
            case "in":
                code = f"({b} ?? []).includes({a})"
            case "contains":
                code = f"({a} ?? '').includes({b})"
            case "=~":
                code = f"new RegExp({b}).test({a} ?? '')"
            case _:
                # The text `true` equals the word `true`.
                if "true" in (a, b) or "false" in (a, b):
                    a, b = f"String({a})", f"String({b})"
                if operator in _ORDERS:
                    # A missing value is neither greater nor less than another.
                    a, b = (f"({code} ?? NaN)" if is_value and code[:1] not in _LITERAL_STARTS else code
                            for code, is_value in (left, right))  # fmt: skip
                code = f"{a} {'==' if operator == '=' else operator} {b}"
        return f"({code})", False

    def _parse_value(self) -> tuple[str, bool]:
        """Parse a literal, a variable, a function call, or an expression in parentheses."""
        kind, text = self._peek()
        self.at += 1
        match kind, text:
            case "operator", "(":
                self._enter_level()
                inner = self.parse_or()
                self.depth -= 1
                self._expect(")")
                return f"({inner[0]})", inner[1]
            case "operator", "[":
                return "[" + ", ".join(self._parse_arguments("]")) + "]", False
            case "text", _ if re.fullmatch(r".\$\{[^{}]*\}.", text):
                # Quotes around a variable change nothing.
                return self._make_variable(text[3:-2])
            case "text", _ if "${" in text:
                raise NotAnExpression(f"{text} mixes text and variables")
            case "text", _:
                return quote_text(text[1:-1]), True
            case "number", _:
                return text, True
            case "reference", _:
                return self._make_variable(text[2:-1])
            case "path", _ if text in _LITERALS:
                return text, text == "null"
            case "path", _ if self._accept("("):
                return self._parse_call(text), text == "length"
            case "path", _:
                return self._make_variable(text)
        raise NotAnExpression(f"a value is missing before `{text}`" if text else "it ends too early")

    def _make_variable(self, path: str) -> tuple[str, bool]:
        """The JavaScript of a variable; `x.exists` tests whether it is set."""
        if path.endswith(".exists"):
            return f"(({self.name(path.removesuffix('.exists'))} ?? null) !== null)", False
        return self.name(path), True

    def _parse_call(self, function: str) -> str:
        """Parse a call of a function that Prodigy knows."""
        arguments = self._parse_arguments(")")
        template = _FUNCTIONS.get(function.lower())
        if template is None:
            raise NotAnExpression(f"there is no function `{function}`")
        wanted = 2 if "{1}" in template else 1
        if len(arguments) != wanted:
            raise NotAnExpression(f"`{function}` takes {wanted} of them, not {len(arguments)}")
        return "(" + template.format(*arguments) + ")"

    def _parse_arguments(self, closer: str) -> list[str]:
        """Parse values with commas in between, up to the closing token."""
        found: list[str] = []
        while not self._accept(closer):
            if found:
                self._expect(",")
            found.append(self._parse_value()[0])
        return found

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("", "")

    def _accept(self, operator: str) -> bool:
        """Read the next token if it is this one; was it?"""
        if self._peek() != ("operator", operator):
            return False
        self.at += 1
        return True

    def _expect(self, operator: str) -> None:
        if not self._accept(operator):
            raise NotAnExpression(f"`{operator}` is missing")

    def _enter_level(self) -> None:
        """Count one more level of nesting, and refuse too many: parsing is recursive."""
        self.depth += 1
        if self.depth > _NESTING_MAX:
            raise NotAnExpression(f"it is nested deeper than {_NESTING_MAX} levels")


def quote_text(text: str) -> str:
    """Write a text as a JavaScript literal."""
    import msgspec

    return msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()


def item_field_for(path: str) -> str:
    """The JavaScript for a field of the item in a filter, with or without a leading `item`; missing fields are null."""
    parts = re.findall(r"[\w$@-]+", path)
    if parts[0] in ("item", "@", "$"):
        parts = parts[1:]
    return "item" + "".join(f"?.[{part if part.isdigit() else quote_text(part)}]" for part in parts)


def translate_filter(t: Translation, node: Node) -> Scalar | None:
    """Translate a map's `filter`; None after a report."""
    return _translate(t, node, item_field_for, "filter", "severity == 'high' && score >= 10")


def translate_condition(t: Translation, node: Node, where: Where) -> Node | None:
    """Translate a condition to an expression of the native file; None after a report."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return node

    def name_value(path: str) -> str:
        """The reference to a variable, or its fixed value as a literal."""
        found = t.reference_for(path, node, where, False)
        if found is None:
            return f"${{{path}}}"
        return found if is_one_reference(found) else quote_text(found)

    return _translate(t, node, name_value, "expression", "${count} > 3 && ${target} == 'release'")


def _translate(t: Translation, node: Node, name: Name, what: str, example: str) -> Scalar | None:
    """Translate an expression; None after a report."""
    try:
        return word(to_javascript(text_in(node), name), node)
    except NotAnExpression as problem:
        t.report.error("expression", f"{describe(node)} is no {what}: {problem}", node, hint=f"such as: {example}")
        return None
