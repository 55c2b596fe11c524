"""`resile init`: a first workflow, with a comment at each part. It fails twice and gets back up, and runs as it is."""

from __future__ import annotations

import os

from resile.commands.documents.answers import WrittenFile
from resile.errors import ResileError

FILE = "flow.yaml"
TEXT = """\
# A workflow that fails twice and gets back up.
#
#   run it                      resile run FILE
#   see what failed, and why    resile explain RUN
#   find mistakes, run nothing  resile check FILE
resile: 1
name: hello

# Values that the caller can give:  resile run FILE --input who=you
inputs:
  who: world

# Steps start as soon as the steps that they need have succeeded; steps that don't need each other run at once.
steps:
  prepare:
    shell: rm -rf hello-work && mkdir hello-work

  # This one fails at first, as a service does that is not up yet. `retry` tries it again: at most 3 more times, and
  # waits a little longer each time.
  fetch:
    needs: [prepare]
    shell: test -e hello-work/up || { touch hello-work/up; echo "connection refused" >&2; exit 7; }
    retry: {max: 3, backoff: {type: exponential, initial: 100ms}}
    timeout: 1m

  # This one fails because a file is missing. `on_failure` mends what is wrong, then the command runs once more
  # (`max_attempts: 2`): only if it passes, the step counts as recovered. If not, the run fails (`fail_workflow: true`).
  build:
    needs: [fetch]
    shell: cat hello-work/settings
    on_failure:
      shell: echo "greeting=hello" > hello-work/settings
      max_attempts: 2
      fail_workflow: true

  # The output of a step is a value for others, under the name that `capture` gives it.
  greet:
    needs: [build]
    shell: echo "hello" ${inputs.who}
    capture: greeting

  # The step called `end` runs last, whatever happened before it.
  end:
    shell: rm -rf hello-work; echo ${execution.status}
"""


def init(path: str, *, force: bool = False) -> WrittenFile:
    """Write a first workflow; an existing file stays as it is, unless `force` is set."""
    if os.path.lexists(path) and not force:
        raise ResileError("file-exists", f"{path} is there already", where=path, hint="name another, or give --force")
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(TEXT.replace("FILE", path))
    except OSError as error:
        raise ResileError("file-unwritable", f"{path} can't be written: {error.strerror}", where=path) from error
    return WrittenFile(file=path)
