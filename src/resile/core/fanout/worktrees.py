"""Isolation: each item runs in a git worktree of its own, merged back in the order of the items.

    worktree --> the item's steps, in that folder --> merge (in order) of the item's commits

Everything that runs for the item has that folder as its working directory: handlers, child workflows, inner maps.

Items begin at the same time and git briefly locks shared files, so making a worktree is tried several times. A merge
counts even if removing the worktree afterwards fails.

Without `merge` the last step removes the worktree alone, and the branch keeps the item's commits.

A merge that conflicts is aborted and fails the item at that step, like any other failure; its worktree stays for
inspection until the item runs again.
"""

from __future__ import annotations

from msgspec.structs import replace

from resile.model.workflow import FanOut, Need, Shell, Step

_ENV = {"RESILE_WORKTREE": "${worktree}", "RESILE_WORKTREE_BRANCH": "${worktree_branch}"}
_BEGIN = """\
git rev-parse --verify --quiet HEAD >/dev/null || {
  echo "isolation: worktree needs a git repository with a commit" >&2
  exit 1
}
for last in no no no no yes; do
  git worktree remove --force "$RESILE_WORKTREE" 2>/dev/null
  git branch --quiet -D "$RESILE_WORKTREE_BRANCH" 2>/dev/null
  git worktree add --quiet -b "$RESILE_WORKTREE_BRANCH" "$RESILE_WORKTREE" HEAD && exit 0
  test $last = yes || sleep 0.2
done
exit 1
"""
_MERGE = """\
git rev-parse --verify --quiet "refs/heads/$RESILE_WORKTREE_BRANCH" >/dev/null || exit 0
git merge --quiet --no-edit "$RESILE_WORKTREE_BRANCH" >&2 || {
  git merge --abort
  echo "what the item committed conflicts with what is merged already" >&2
  exit 1
}
git worktree remove --force "$RESILE_WORKTREE"
git branch --quiet -D "$RESILE_WORKTREE_BRANCH"
exit 0
"""


_KEEP = """\
git worktree remove --force "$RESILE_WORKTREE"
exit 0
"""


def steps_with_worktree(action: FanOut) -> tuple[Step, ...]:
    """The steps of an item; with isolation, between a step that makes its worktree and one that merges it."""
    if action.isolation != "worktree":
        return action.steps
    names = {step.name for step in action.steps}
    begin, merge = _free("worktree", names), _free("merge", names)
    inner = [
        step if step.needs or step.called_only else replace(step, needs=(Need((begin,)),)) for step in action.steps
    ]
    last = tuple(Need((step.name,), True) for step in inner if not step.called_only)
    return (
        Step(name=begin, action=Shell(_BEGIN), env=_ENV),
        *inner,
        Step(name=merge, action=Shell(_MERGE if action.merge else _KEEP), env=_ENV, needs=last, in_order=True),
    )


def _free(name: str, taken: set[str]) -> str:
    """This name, with underscores appended until no step of the item has it."""
    return name if name not in taken else _free(f"{name}_", taken)
