"""What a template may cost, judged by its parts: whether it can be rendered here or needs a process with limits.

plain    names, comparisons, arithmetic, filters that only look at a value: nothing grows beyond the values
linear   filters and methods that go through a value once: cheap while the values are small
any      loops, assignments, other calls and filters: these can make much of little
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from resile.languages.references import ValueRefused

if TYPE_CHECKING:
    from jinja2.nodes import Call, Filter, Node

Cost = Literal["plain", "linear", "any"]

SMALL_PARTS_MAX = 2_000
SMALL_CHARACTERS_MAX = 64 * 1024
_SHORT_CHARACTERS_MAX = 4
_WIDE_FORMAT = re.compile(r"%[^a-zA-Z%]*(?:[0-9]{5}|\*)")
_PLAIN_FILTERS = frozenset(
    ("default", "d", "tojson", "to_json", "from_json", "fromjson", "length", "count", "int", "float", "string", "lower",
     "upper", "trim", "first", "last", "abs", "bool")
)  # fmt: skip
_LINEAR_FILTERS = frozenset(
    ("list", "select", "reject", "selectattr", "rejectattr", "sum", "max", "min", "sort", "unique", "reverse", "items",
     "dictsort", "title", "capitalize", "b64encode", "b64decode")
)  # fmt: skip
_LINEAR_METHODS = frozenset(
    ("get", "items", "keys", "values", "split", "strip", "lstrip", "rstrip", "lower", "upper", "startswith", "endswith",
     "isoformat", "count", "index")
)  # fmt: skip
_INSERTING = frozenset(("join", "replace"))


def cost_of(tree: Node) -> Cost:
    """What a template may cost."""
    from jinja2 import nodes

    plain: tuple[type[Node], ...] = (
        nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.CondExpr, nodes.Name, nodes.Const,
        nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not,
        nodes.Test, nodes.Concat, nodes.BinExpr, nodes.UnaryExpr, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair,
        nodes.Keyword,
    )  # fmt: skip
    found: set[Cost] = {"plain"}
    for node in tree.find_all(nodes.Node):
        if isinstance(node, nodes.Filter):
            found.add(_cost_of_filter(node))
        elif isinstance(node, nodes.Call):
            found.add(_cost_of_call(node))
        elif not isinstance(node, plain):
            return "any"
    return "any" if "any" in found else "linear" if "linear" in found else "plain"


def _cost_of_filter(node: Filter) -> Cost:
    """What a filter may cost; one that inserts its arguments is cheap only if they are short and constant."""
    from jinja2 import nodes

    if node.name in _PLAIN_FILTERS:
        return "any" if node.kwargs and node.name in ("tojson", "to_json") else "plain"
    if node.name in _LINEAR_FILTERS:
        return "linear"
    words = [part.value for part in node.args if isinstance(part, nodes.Const)]
    if len(words) < len(node.args) or node.dyn_args is not None or node.dyn_kwargs is not None:
        return "any"
    if node.name in _INSERTING and not node.kwargs:
        return "linear" if all(len(str(word)) <= _SHORT_CHARACTERS_MAX for word in words) else "any"
    if node.name == "map":
        return "linear" if words in ([], *([name] for name in _PLAIN_FILTERS)) else "any"
    return "any"


def _cost_of_call(node: Call) -> Cost:
    """What a call of a function or a method may cost."""
    from jinja2 import nodes

    if isinstance(node.node, nodes.Name):
        return "plain" if node.node.name == "now" else "any"
    return "linear" if isinstance(node.node, nodes.Getattr) and node.node.attr in _LINEAR_METHODS else "any"


def is_wide_format(text: str) -> bool:
    """Does a format with per cent signs ask for a very wide field, or leave the width to a value?"""
    return _WIDE_FORMAT.search(text) is not None


def are_small(values: Iterable[Any]) -> bool:
    """Have the values few parts and little text? It looks at no more than that."""
    waiting = list(values)
    parts = characters = 0
    while waiting:
        value = waiting.pop()
        parts += 1
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, list | tuple | dict):
            if len(value) > SMALL_PARTS_MAX:
                return False
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, Mapping):
            # Its values are computed on use, and need not all exist.
            try:
                waiting += dict(value).values()
            except (KeyError, ValueRefused):
                return False
        if parts > SMALL_PARTS_MAX or characters > SMALL_CHARACTERS_MAX:
            return False
    return True
