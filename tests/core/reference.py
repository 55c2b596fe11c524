"""A reference interpreter: what a run of independent outcomes must come to, written as naively as possible."""

from __future__ import annotations

from resile.model.workflow import Workflow


def expected(
    workflow: Workflow, fate: dict[str, str], retries: dict[str, int]
) -> tuple[dict[str, str], str, list[str]]:
    """Final status of each step, the verdict, and the executions as a sorted list of step names.

    `fate` is ok, fail, flaky (fails once, then passes), tolerated (fails, and may) or false (its `when` is).
    """
    status: dict[str, str] = {}
    good: set[str] = set()
    ran: list[str] = []
    while len(status) < len(workflow.steps):
        for step in workflow.steps:
            if step.name in status:
                continue
            verdicts = []
            for need in step.needs:
                if any(name not in status for name in need.any_of):
                    verdicts.append("wait")
                elif any(name in good for name in need.any_of):
                    verdicts.append("ok")
                elif all(status[name] == "skipped" for name in need.any_of):
                    verdicts.append("ok" if need.skip_satisfies else "skipped")
                else:
                    verdicts.append("ok" if need.failure_satisfies else "canceled")
            if "canceled" in verdicts:
                status[step.name] = "canceled"
            elif "wait" in verdicts:
                continue
            elif "skipped" in verdicts or fate[step.name] == "false":
                status[step.name] = "skipped"
            else:
                tries = {"ok": 1, "flaky": 2 if retries[step.name] else 1}.get(fate[step.name], 1 + retries[step.name])
                ran += [step.name] * tries
                passed = fate[step.name] == "ok" or (fate[step.name] == "flaky" and retries[step.name] > 0)
                status[step.name] = "completed" if passed else "failed"
                if passed or fate[step.name] == "tolerated":
                    good.add(step.name)
    failed = [name for name, word in status.items() if word == "failed" and name not in good]
    return status, "failed" if failed else "completed", sorted(ran)
