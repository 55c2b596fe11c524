"""Writes a graph as text, for Graphviz (dot) or for Mermaid; svg.py draws it.

Users choose the names of steps, so each format escapes the characters that are its own marks.
"""

from __future__ import annotations

from collections.abc import Iterator

from resile.commands.documents.answers import Graph, GraphEdge, GraphStep
from resile.model.status import STATUS_WORDS

FILLS = {
    "completed": "#c8e6c9",
    "recovered": "#b2dfdb",
    "tolerated": "#ffe0b2",
    "failed": "#ffcdd2",
    "running": "#bbdefb",
    "recovering": "#bbdefb",
    "pending_failed": "#fff59d",
    "canceled": "#e0e0e0",
    "terminated": "#e0e0e0",
    "skipped": "#f5f5f5",
}
PLAIN = "#ffffff"
_DOT_STYLES = {
    "needs": "",
    "any": "style=dashed",
    "next": "color=blue",
    "success": "color=darkgreen",
    "failure": "color=red, style=dashed",
}
_MERMAID_ARROWS = {"needs": "-->", "any": "-.->", "next": "==>", "success": "-->", "failure": "-.->"}
_WORDS = {"next": "then", "success": "on success", "failure": "on failure"}


def status_text(step: GraphStep) -> str:
    """The status of a step, with the counts of its items; empty if it has no status."""
    if not step.counts:
        return STATUS_WORDS.get(step.status, step.status)
    return ", ".join(f"{number} {STATUS_WORDS.get(status, status)}" for status, number in step.counts.items())


def inner_steps(graph: Graph) -> dict[int | None, list[GraphStep]]:
    """The steps by the step that they are inside of."""
    found: dict[int | None, list[GraphStep]] = {}
    for step in graph.steps:
        found.setdefault(step.inside, []).append(step)
    return found


def text_lines(graph: Graph) -> Iterator[tuple[str, str]]:
    """A line for each step with its status; below it the edges that leave it and the steps inside it."""
    inner = inner_steps(graph)
    names = {step.id: step.step for step in graph.steps}
    out: dict[int, list[GraphEdge]] = {}
    needs: dict[int, list[GraphEdge]] = {}
    for edge in graph.edges:
        waits = edge.kind in ("needs", "any")
        (needs if waits else out).setdefault(edge.target if waits else edge.source, []).append(edge)
    work = [(step, "") for step in reversed(inner.get(None, []))]
    while work:
        step, indent = work.pop()
        named = [names[edge.source] for edge in needs.get(step.id, [])]
        status = status_text(step)
        line = f"{indent}{step.step}"
        line += f"  [{status}]" if status else ""
        line += f"  needs {', '.join(named)}" if named else ""
        yield line, step.status
        for edge in out.get(step.id, []):
            yield f"{indent}    {_WORDS[edge.kind]} {_where_to(edge, names[edge.target])}".rstrip(), ""
        work += [(below, indent + "  ") for below in reversed(inner.get(step.id, []))]


def _where_to(edge: GraphEdge, target: str) -> str:
    """The target of an edge with its label; the label alone if it names the target, or leads back to its own step."""
    if edge.source == edge.target or target in edge.label.split():
        return edge.label
    return f"{target} ({edge.label})" if edge.label else target


def dot(graph: Graph) -> str:
    """The graph for Graphviz; the steps inside a step are a cluster."""
    inner = inner_steps(graph)
    lines = [f"digraph {_quote(graph.workflow)} {{", "  node [shape=box, style=filled, fillcolor=white];"]
    work: list[GraphStep | str] = list(reversed(inner.get(None, [])))
    while work:
        step = work.pop()
        if isinstance(step, str):
            lines.append(step)
            continue
        fill = FILLS.get(step.status, PLAIN)
        label = _quote(step.step, status_text(step))
        lines.append(f"  n{step.id} [label={label}, fillcolor={_quote(fill)}];")
        if step.id in inner:
            lines += [f"  subgraph cluster_{step.id} {{", f"  label={_quote(step.step)};"]
            work += ["  }", *reversed(inner[step.id])]
    for edge in graph.edges:
        parts = [f"label={_quote(edge.label)}" if edge.label else "", _DOT_STYLES[edge.kind]]
        style = ", ".join(part for part in parts if part)
        lines.append(f"  n{edge.source} -> n{edge.target}" + (f" [{style}];" if style else ";"))
    return "\n".join([*lines, "}"]) + "\n"


def _quote(text: str, second: str = "") -> str:
    """A text as a string of dot, perhaps with a second line."""
    lines = [line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in (text, second) if line]
    return '"' + "\\n".join(lines) + '"'


def mermaid(graph: Graph) -> str:
    """The graph for Mermaid; the steps inside a step are a subgraph."""
    inner = inner_steps(graph)
    lines = ["flowchart TD"]
    work: list[GraphStep | str] = list(reversed(inner.get(None, [])))
    while work:
        step = work.pop()
        if isinstance(step, str):
            lines.append(step)
            continue
        status = status_text(step)
        label = _entities(step.step) + (f"<br/>{_entities(status)}" if status else "")
        lines.append(f'  n{step.id}["{label}"]')
        if step.status in FILLS:
            lines.append(f"  class n{step.id} {step.status}")
        if step.id in inner:
            lines.append(f'  subgraph s{step.id}["{_entities(step.step)}"]')
            work += ["  end", *reversed(inner[step.id])]
    for edge in graph.edges:
        label = f'|"{_entities(edge.label)}"|' if edge.label else ""
        lines.append(f"  n{edge.source} {_MERMAID_ARROWS[edge.kind]}{label} n{edge.target}")
    used = {step.status for step in graph.steps}
    lines += [f"  classDef {status} fill:{fill}" for status, fill in FILLS.items() if status in used]
    return "\n".join(lines) + "\n"


def _entities(text: str) -> str:
    """A text with each character that Mermaid or HTML could take for a mark as an entity."""
    return "".join(
        found if found.isalnum() or found in " _-.,:/=" or ord(found) > 0x2FF else f"#{ord(found)};" for found in text
    )
