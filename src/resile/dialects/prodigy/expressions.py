"""The expressions of Prodigy, `when` and a map's `filter`, as JavaScript for the sandbox.

    or      and (('||' | OR) and)*            unary    (! | NOT) unary | primary
    and     not (('&&' | AND) not)*           primary  '(' or ')' | call | list | ${path} | path | text | number
    compare sum (op sum)?                     op       == = != > < >= <= in, contains, matches, =~

A `when` names variables (`${a.b}`, or the bare words inside one `${…}`), a filter the fields of an item. What is
missing is null. A variable alone holds unless it is empty, `0`, `false` or `null`; a number in a text compares as a
number.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
"""How a path is written in JavaScript."""


class NotAnExpression(Exception):
    """Why a text is no expression."""


def javascript(source: str, name: Name) -> str:
    """The expression in JavaScript; raises NotAnExpression."""
    inside = re.fullmatch(r"\s*\$\{(.*)\}\s*", source, re.DOTALL)
    # `${a == 'b' && c}`: the whole expression in one pair of braces, its variables bare.
    if inside is not None and "${" not in inside[1] and not re.fullmatch(r"[\w.\[\]-]+", inside[1]):
        source = inside[1]
    parser = _Parser(_tokens(source), name)
    result = parser.either()
    if parser.at < len(parser.tokens):
        raise NotAnExpression(f"`{parser.tokens[parser.at][1]}` is not expected here")
    return parser.held(result)


def _tokens(source: str) -> list[tuple[str, str]]:
    """The words of an expression with their kinds."""
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
    """Reads tokens by recursive descent; a result is (JavaScript, is it a value that must be judged)."""

    def __init__(self, tokens: list[tuple[str, str]], name: Name) -> None:
        self.tokens = tokens
        self.name = name
        self.at = 0
        self.depth = 0

    def held(self, result: tuple[str, bool]) -> str:
        """A part as something that holds or does not."""
        code, is_value = result
        return f"!/^(|0|false|null)$/.test({code} ?? '')" if is_value else code

    def either(self) -> tuple[str, bool]:
        """Parts of which one must hold."""
        return self._joined(self._both, "||")

    def _both(self) -> tuple[str, bool]:
        """Parts that must all hold."""
        return self._joined(self._not, "&&")

    def _joined(self, part: Callable[[], tuple[str, bool]], operator: str) -> tuple[str, bool]:
        """Parts with one operator in between."""
        result = part()
        parts = [result]
        while self._takes(operator):
            parts.append(part())
        if len(parts) == 1:
            return result
        return "(" + f" {operator} ".join(self.held(found) for found in parts) + ")", False

    def _not(self) -> tuple[str, bool]:
        """A part, or its opposite."""
        if not self._takes("!"):
            return self._comparison()
        self._deeper()
        inner = self._not()
        self.depth -= 1
        return f"!({self.held(inner)})", False

    def _comparison(self) -> tuple[str, bool]:
        """One value, or two compared."""
        left = self._value()
        kind, operator = self._peek()
        if kind != "operator" or operator not in _COMPARISONS:
            return left
        self.at += 1
        right = self._value()
        a, b = left[0], right[0]
        match operator:
            case "in":
                code = f"({b} ?? []).includes({a})"
            case "contains":
                code = f"({a} ?? '').includes({b})"
            case "=~":
                code = f"new RegExp({b}).test({a} ?? '')"
            case _:
                # A text that says `true` is as good as the word itself.
                if "true" in (a, b) or "false" in (a, b):
                    a, b = f"String({a})", f"String({b})"
                if operator in _ORDERS:
                    # Nothing is neither more nor less than something.
                    a, b = (f"({code} ?? NaN)" if is_value and code[:1] not in _LITERAL_STARTS else code
                            for code, is_value in (left, right))  # fmt: skip
                code = f"{a} {'==' if operator == '=' else operator} {b}"
        return f"({code})", False

    def _value(self) -> tuple[str, bool]:
        """A literal, a variable, a function of some, or an expression in parentheses."""
        kind, text = self._peek()
        self.at += 1
        match kind, text:
            case "operator", "(":
                self._deeper()
                inner = self.either()
                self.depth -= 1
                self._expect(")")
                return f"({inner[0]})", inner[1]
            case "operator", "[":
                return "[" + ", ".join(self._arguments("]")) + "]", False
            case "text", _ if re.fullmatch(r".\$\{[^{}]*\}.", text):
                # Quotes around a variable change nothing: it is a value already.
                return self._variable(text[3:-2])
            case "text", _ if "${" in text:
                raise NotAnExpression(f"{text} mixes text and variables")
            case "text", _:
                return quoted(text[1:-1]), True
            case "number", _:
                return text, True
            case "reference", _:
                return self._variable(text[2:-1])
            case "path", _ if text in _LITERALS:
                return text, text == "null"
            case "path", _ if self._takes("("):
                return self._call(text), text == "length"
            case "path", _:
                return self._variable(text)
        raise NotAnExpression(f"a value is missing before `{text}`" if text else "it ends too early")

    def _variable(self, path: str) -> tuple[str, bool]:
        """A variable; `x.exists` asks whether there is one."""
        if path.endswith(".exists"):
            return f"(({self.name(path.removesuffix('.exists'))} ?? null) !== null)", False
        return self.name(path), True

    def _call(self, function: str) -> str:
        """A function that Prodigy knows."""
        arguments = self._arguments(")")
        template = _FUNCTIONS.get(function.lower())
        if template is None:
            raise NotAnExpression(f"there is no function `{function}`")
        wanted = 2 if "{1}" in template else 1
        if len(arguments) != wanted:
            raise NotAnExpression(f"`{function}` takes {wanted} of them, not {len(arguments)}")
        return "(" + template.format(*arguments) + ")"

    def _arguments(self, closer: str) -> list[str]:
        """Values with commas in between, up to the closer."""
        found: list[str] = []
        while not self._takes(closer):
            if found:
                self._expect(",")
            found.append(self._value()[0])
        return found

    def _peek(self) -> tuple[str, str]:
        """The next token."""
        return self.tokens[self.at] if self.at < len(self.tokens) else ("", "")

    def _takes(self, operator: str) -> bool:
        """Is the next token this one? Then it is read."""
        if self._peek() != ("operator", operator):
            return False
        self.at += 1
        return True

    def _expect(self, operator: str) -> None:
        """The next token must be this one."""
        if not self._takes(operator):
            raise NotAnExpression(f"`{operator}` is missing")

    def _deeper(self) -> None:
        """Count the nesting, which a file may not drive to the end of the stack."""
        self.depth += 1
        if self.depth > _NESTING_MAX:
            raise NotAnExpression(f"it is nested deeper than {_NESTING_MAX} levels")


def quoted(text: str) -> str:
    """A text as JavaScript writes it."""
    import msgspec

    return msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()


def item_field(path: str) -> str:
    """A field of the item in a filter: relative to it, or written from `item` on; missing ones are null."""
    parts = re.findall(r"[\w$@-]+", path)
    if parts[0] in ("item", "@", "$"):
        parts = parts[1:]
    return "item" + "".join(f"?.[{part if part.isdigit() else quoted(part)}]" for part in parts)
