"""`graph`: the steps of a file or of a run, drawn."""

from __future__ import annotations

from collections.abc import Iterator

from resile.cli.display.output import Page, answer, escape, write_text
from resile.cli.parse import Call
from resile.commands.documents.answers import Graph
from resile.commands.graph.formats import dot, mermaid, text_lines
from resile.commands.load import CompileOptions


def graph(call: Call) -> int:
    """Print the graph in the wanted format."""
    document = _graph_of(call)
    wanted = call.text("format") or "text"
    if call.json or wanted == "text":
        return answer(call, document, _lines)
    if wanted == "svg":
        from resile.commands.graph.svg import svg

        write_text(svg(document))
    else:
        write_text({"dot": dot, "mermaid": mermaid}[wanted](document))
    return 0


def _graph_of(call: Call) -> Graph:
    """The graph of a run, if the word is a number, else of a file."""
    word = call.word("FILE|RUN")
    if word.isascii() and word.isdigit() and len(word) <= 18:
        return call.client.graph(int(word))
    from resile.commands.graph.build import graph_of_file

    return graph_of_file(word, CompileOptions(call.word("dialect"), call.word("profile")))


def _lines(document: Graph, page: Page) -> Iterator[str]:
    """The graph as text: its steps in the order of the file."""
    run = f", run {document.run}: {page.status(document.status)}" if document.run is not None else ""
    yield from page.wrap(page.paint("bold", escape(document.workflow)) + run, "  ")
    for line, status in text_lines(document):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        for part in page.wrap(indent + escape(line.lstrip()), indent + "    "):
            yield page.status(status, part) if status else part
