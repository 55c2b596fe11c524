"""Draws a graph as one SVG document: steps in rows below what they need, the steps inside a step in its box.

measure (from the inside out) --> place (rows of boxes) --> draw (boxes, then edges)
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from unicodedata import east_asian_width

from resile.commands.documents.answers import Graph, GraphEdge, GraphStep
from resile.commands.graph.formats import FILLS, PLAIN, inner_steps, status_text

_CHARACTER, _LINE, _GAP, _ROW_GAP, _PAD = 8, 18, 24, 44, 12
_STROKES = {"needs": "#555", "any": "#555", "next": "#1565c0", "success": "#2e7d32", "failure": "#c62828"}
_DASHED = ("any", "failure")


class _Box:
    """The place and size of a step."""

    __slots__ = ("height", "inner", "step", "width", "x", "y")

    def __init__(self, step: GraphStep | None) -> None:
        self.step = step
        self.x = self.y = self.width = self.height = 0
        self.inner: list[list[_Box]] = []


def svg(graph: Graph) -> str:
    """The document."""
    inner = inner_steps(graph)
    boxes = {step.id: _Box(step) for step in graph.steps}
    whole = _Box(None)
    _arrange(whole, inner.get(None, []), boxes, graph.edges)
    # Steps are numbered from the outside in, so this measures inner ones first.
    for step in reversed(graph.steps):
        if step.id in inner:
            _arrange(boxes[step.id], inner[step.id], boxes, graph.edges)
        _measure(boxes[step.id])
    _measure(whole)
    _place(whole)
    for step in graph.steps:
        _place(boxes[step.id])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole.width}" height="{whole.height}" '
        f'viewBox="0 0 {whole.width} {whole.height}" font-family="monospace" font-size="13">',
        f"<title>{_text(graph.workflow)}</title>",
        *(_marker(kind, color) for kind, color in _STROKES.items()),
        *(_draw_box(boxes[step.id]) for step in graph.steps),
        *(_draw_edge(boxes[edge.source], boxes[edge.target], edge) for edge in graph.edges),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _arrange(box: _Box, steps: list[GraphStep], boxes: dict[int, _Box], edges: list[GraphEdge]) -> None:
    """Put the steps of one scope into rows: each below the steps that lead to it."""
    own = {step.id for step in steps}
    before: dict[int, set[int]] = {step.id: set() for step in steps}
    after: dict[int, list[int]] = {step.id: [] for step in steps}
    for edge in edges:
        if edge.target in own and edge.source in own and edge.source != edge.target and edge.kind != "failure":
            before[edge.target].add(edge.source)
    for step in steps:
        for source in before[step.id]:
            after[source].append(step.id)
    level = dict.fromkeys(own, 0)
    left = {number: len(sources) for number, sources in before.items()}
    waiting = list(before)
    ready = [number for number in waiting if not left[number]]
    done: set[int] = set()
    at = 0
    while len(done) < len(own):
        if not ready:
            # A cycle of arcs: go on with the first of its steps in the file.
            while waiting[at] in done:
                at += 1
            ready = [waiting[at]]
        number = ready.pop()
        if number in done:
            continue
        done.add(number)
        for target in after[number]:
            left[target] -= 1
            if target not in done:
                level[target] = max(level[target], level[number] + 1)
                if not left[target]:
                    ready.append(target)
    rows: list[list[_Box]] = [[] for _ in range(max(level.values(), default=0) + 1)]
    for step in steps:
        rows[level[step.id]].append(boxes[step.id])
    box.inner = rows


def _measure(box: _Box) -> None:
    """The size of a box: its label, and the rows inside."""
    label = max((_columns(line) for line in _lines_of(box)), default=0) * _CHARACTER
    rows = [(sum(one.width + _GAP for one in row) - _GAP, max(one.height for one in row)) for row in box.inner if row]
    box.width = max([label, *(width for width, _ in rows)]) + 2 * _PAD
    box.height = len(_lines_of(box)) * _LINE + 2 * _PAD + sum(height + _ROW_GAP for _, height in rows)


def _place(box: _Box) -> None:
    """Give the boxes inside a box their places; each row is centered."""
    y = box.y + _PAD + len(_lines_of(box)) * _LINE + (_ROW_GAP // 2 if box.inner else 0)
    for row in box.inner:
        x = box.x + (box.width - sum(one.width + _GAP for one in row) + _GAP) // 2
        for one in row:
            one.x, one.y = x, y
            x += one.width + _GAP
        y += max((one.height for one in row), default=0) + _ROW_GAP


def _lines_of(box: _Box) -> list[str]:
    """The lines of a box: the name of its step, and its status."""
    return [] if box.step is None else [line for line in (box.step.step, status_text(box.step)) if line]


def _draw_box(box: _Box) -> str:
    """A box with its lines."""
    assert box.step is not None
    fill = FILLS.get(box.step.status, PLAIN)
    middle = box.x + box.width // 2
    return "".join(
        [
            f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="5" '
            f'fill="{fill}" stroke="#333"/>',
            *(
                f'<text x="{middle}" y="{box.y + _PAD + number * _LINE + 12}" text-anchor="middle">{_text(line)}</text>'
                for number, line in enumerate(_lines_of(box))
            ),
        ]
    )


def _draw_edge(source: _Box, target: _Box, edge: GraphEdge) -> str:
    """An edge: down from step to step, or at the side where it goes back or into its own step."""
    color = _STROKES[edge.kind]
    dash = ' stroke-dasharray="5 4"' if edge.kind in _DASHED else ""
    title = f"<title>{_text(edge.label)}</title>" if edge.label else ""
    return (
        f'<path d="{" ".join(_points(source, target))}" fill="none" stroke="{color}"{dash} '
        f'marker-end="url(#{edge.kind})">{title}</path>'
    )


def _points(source: _Box, target: _Box) -> Iterator[str]:
    """The path of an edge."""
    right = source.x + source.width
    middle = source.y + source.height // 2
    if source is target:
        yield f"M {right} {middle - 6} c 18 -8 18 20 0 12"
    elif target.y > source.y + source.height:
        start, end = source.x + source.width // 2, target.x + target.width // 2
        bottom = source.y + source.height
        half = (bottom + target.y) // 2
        yield f"M {start} {bottom} C {start} {half} {end} {half} {end} {target.y}"
    else:
        end = target.x + target.width
        far = max(right, end) + 16
        yield f"M {right} {middle} C {far} {middle} {far} {target.y + 10} {end} {target.y + 10}"


def _marker(kind: str, color: str) -> str:
    """The head of the arrows of one kind."""
    return (
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M 0 0 L 8 4 L 0 8 z" fill="{color}"/></marker>'
    )


def _text(text: str) -> str:
    """A text for XML, without the characters that XML can't hold."""
    return escape("".join(found if _is_fit(ord(found)) else "\ufffd" for found in text))


def _is_fit(code: int) -> bool:
    """Can XML hold this character?"""
    return code in (9, 10, 13) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code > 0xFFFF


def _columns(text: str) -> int:
    """How many columns a text takes in a monospaced font."""
    return sum(2 if east_asian_width(found) in "WF" else 1 for found in text)
