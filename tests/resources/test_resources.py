"""`resources`: what steps asked for, used and should ask for; plots; memory that is learned from earlier runs."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from resile.cli.commands.recovery.resources import advice_for
from resile.commands.documents.recovery import Granted
from resile.commands.documents.resources import AttemptSeries, RunResources, StepResources, Suggested
from resile.commands.resources.plot import draw
from resile.commands.resources.usage import percentile, suggested_bytes
from resile.errors import ResileError
from tests.cli.program import Program

MIB = 1 << 20
FLOW = """\
resile: 1
name: uses
resource_monitor: {interval: 0.1s}
steps:
  each:
    map:
      input: [1, 2]
      steps:
        - name: work
          shell: 'true'
          resources: {memory: 500m}
  long: {shell: 'sleep 0.5', needs: [each]}
  learns: {shell: 'true', resources: {memory: auto}, needs: [each]}
"""


def step(*, asked: int, p95: int, hours: float = 1.0, series: int = 0) -> StepResources:
    """A step that asked for so many MiB and used so many."""
    none = Granted(memory_bytes=None, runtime_seconds=None)
    return StepResources(
        step="a<b",
        attempts=1,
        requested=Granted(memory_bytes=asked * MIB or None, runtime_seconds=None),
        granted=none,
        peak_bytes=p95 * MIB,
        p95_bytes=p95 * MIB,
        cpu_seconds=0.0,
        wall_seconds=hours * 3600,
        io_bytes=0,
        suggested=Suggested(memory_bytes=suggested_bytes(p95 * MIB)),
        series=[
            AttemptSeries(job=1, attempt=1, samples=[(float(tick), tick * MIB, 50.0) for tick in range(series)])
            for _ in range(2)
        ],
    )


def test_the_document_of_a_run(program: Program) -> None:
    """Items are one step; the suggestion is a fifth above the 95th percentile; a series has its samples."""
    program.call("run", program.write(FLOW), code=0)
    document = program.json("resources", "1")
    assert document["run"] == 1
    steps = {one["step"]: one for one in document["steps"]}
    work, long = steps["each/work"], steps["long"]
    assert (work["attempts"], work["requested"]["memory_bytes"]) == (2, 500 * MIB)
    assert work["p95_bytes"] == work["peak_bytes"] > MIB
    assert work["suggested"]["memory_bytes"] == -(-work["p95_bytes"] * 6 // 5 // MIB) * MIB
    (series,) = long["series"]
    assert series["samples"][0][0] == 0.0
    assert all(len(sample) == 3 for sample in series["samples"])
    assert steps["learns"]["requested"]["memory_bytes"] is None
    shown = program.call("resources", "1", "--plot", "out.svg", code=0)
    assert "each/work asks for 500 MiB and needs" in shown.stdout
    assert ElementTree.parse(program.folder / "out.svg").getroot().tag.endswith("svg")
    second = program.call("run", "flow.yaml", code=0)
    assert "learns asks for" in second.stderr
    learned = {one["step"]: one for one in program.json("resources", "2")["steps"]}["learns"]
    assert learned["requested"]["memory_bytes"] == steps["learns"]["suggested"]["memory_bytes"]
    events = program.call("events", "list", "2", "--type", "playbook_started", "--json", code=0).stdout
    assert "learned_memory_bytes" in events
    program.call("resources", "1", "none", code=2)
    program.call("resources", "1", "--plot", "out.gif", code=2)


def test_a_step_of_several_processes_learns_what_they_need_together(program: Program) -> None:
    """Its first run measures all of them, so that the next one, which is held to that, does not fail."""
    one = f"""{sys.executable} -S -c 'import time; held = bytearray(30 << 20); time.sleep(1)'"""
    step = {"shell": f"{one} & {one} & wait", "resources": {"memory": "auto"}}
    program.write(json.dumps({"resile": 1, "name": "many", "steps": {"two": step}}))
    program.call("run", "flow.yaml", code=0)
    (first,) = program.json("resources", "1")["steps"]
    assert first["peak_bytes"] > 60 * MIB
    program.call("run", "flow.yaml", code=0)
    (second,) = program.json("resources", "2")["steps"]
    assert second["requested"]["memory_bytes"] == first["suggested"]["memory_bytes"]


def test_the_peak_is_that_of_all_processes_where_samples_were_taken(program: Program) -> None:
    """Of two processes that need as much at the same time, the larger one alone says only half."""
    one = f"""{sys.executable} -S -c 'import time; held = bytearray(30 << 20); time.sleep(1)'"""
    steps = {"two": {"shell": f"{one} & {one} & wait"}}
    program.write(json.dumps({"resile": 1, "name": "many", "resource_monitor": {"interval": "0.1s"}, "steps": steps}))
    program.call("run", "flow.yaml", code=0)
    (two,) = program.json("resources", "1")["steps"]
    assert two["peak_bytes"] == max(rss_bytes for _, rss_bytes, _ in two["series"][0]["samples"]) > 60 * MIB
    assert two["suggested"]["memory_bytes"] >= two["peak_bytes"]


def test_the_percentile_is_a_value_that_was_measured() -> None:
    """The smallest that 95 of 100 do not exceed; of one value, that."""
    assert percentile(list(range(1, 101)), 95) == 95
    assert percentile([7], 95) == 7
    assert percentile([1, 2], 95) == 2
    assert suggested_bytes(100 * MIB) == 120 * MIB
    assert suggested_bytes(100 * MIB + 1) == 121 * MIB


@pytest.mark.parametrize(
    ("asked", "p95", "words"),
    [
        (8192, 1024, "That frees 6.8 GiB for"),
        (100, 200, "ask for 240 MiB, or it may be ended"),
        (120, 100, ""),
        (0, 100, ""),
    ],
)
def test_the_advice_says_what_a_change_saves(asked: int, p95: int, words: str) -> None:
    """In hours and money; nothing where the request fits or where there is none."""
    advice = advice_for(step(asked=asked, p95=p95, hours=100.0))
    assert words in advice
    assert bool(advice) == bool(words)
    if asked == 8192:
        assert "679.98 GiB-hours" in advice
        assert "about $3.40" in advice


def test_a_plot_has_a_line_for_each_attempt_and_one_for_the_request(program: Program) -> None:
    """Memory and CPU of both attempts, the dashed request, and names that can't break the picture."""
    path = program.folder / "plot.svg"
    draw(RunResources(run=1, workflow="w", steps=[step(asked=10, p95=4, series=5)]), str(path))
    root = ElementTree.parse(path).getroot()
    lines = [one for one in root if one.tag.endswith("path")]
    assert len(lines) == 5
    assert sum("stroke-dasharray" in one.attrib for one in lines) == 1
    assert any("a<b" in (one.text or "") for one in root if one.tag.endswith("text"))


def test_a_plot_needs_samples_and_a_png_needs_its_package(program: Program) -> None:
    """Both are said with what to do."""
    with pytest.raises(ResileError, match="no series") as refused:
        draw(RunResources(run=1, workflow="w", steps=[step(asked=10, p95=4)]), str(program.folder / "plot.svg"))
    assert "resource_monitor" in refused.value.hint
    found = RunResources(run=1, workflow="w", steps=[step(asked=10, p95=4, series=3)])
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        with pytest.raises(ResileError, match="matplotlib"):
            draw(found, str(program.folder / "plot.png"))
    else:
        draw(found, str(program.folder / "plot.png"))
        assert (program.folder / "plot.png").read_bytes().startswith(b"\x89PNG")
