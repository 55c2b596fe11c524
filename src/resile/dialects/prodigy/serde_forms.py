"""Rewrites values from the forms of Prodigy's own parser to those of its documentation.

    !custom NAME            custom:NAME           as `on_item_failure`
    {secs: 1, nanos: 0}     1s                    in error policies, retries and breakers

The YAML parser has already turned `!word VALUE` into `word: VALUE` (formats/yaml.py).
"""

from __future__ import annotations

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence

_POLICIES = frozenset(("error_policy", "retry_config", "retry", "retry_defaults", "circuit_breaker"))


def plain_form_of(node: Node, in_policy: bool = False) -> Node:
    """Rewrite the values of a tree to the forms that Prodigy's documentation uses."""
    if isinstance(node, Sequence):
        return Sequence([plain_form_of(item, in_policy) for item in node.items], node.line, node.column)
    if not isinstance(node, Mapping):
        return node
    if in_policy and (duration := _duration_of(node)) is not None:
        return duration
    entries: dict[str, tuple[Scalar, Node]] = {}
    for name, (key, value) in node.entries.items():
        custom = value.entries.get("custom") if isinstance(value, Mapping) and name == "on_item_failure" else None
        if custom is not None and isinstance(custom[1], Scalar):
            text = f"custom:{custom[1].text}"
            value = Scalar(text, text, value.line, value.column)
        entries[name] = (key, plain_form_of(value, in_policy or name in _POLICIES))
    return Mapping(entries, node.line, node.column)


def _duration_of(node: Mapping) -> Scalar | None:
    """The duration of `{secs, nanos}`, or None for another mapping."""
    if not node.entries or not node.entries.keys() <= {"secs", "nanos"}:
        return None
    parts = {name: value.value if isinstance(value, Scalar) else None for name, (_, value) in node.entries.items()}
    seconds, nanoseconds = parts.get("secs", 0), parts.get("nanos", 0)
    if type(seconds) is not int or type(nanoseconds) is not int or min(seconds, nanoseconds) < 0:
        return None
    text = f"{seconds * 1000 + nanoseconds // 1_000_000}ms"
    return Scalar(text, text, node.line, node.column)
