"""Profiles: the settings that the attempts of one run share, in a launcher that serves many runs.

    profile 0        the settings of the connection itself: a launcher of one run has no other
    profile N        defined by its own frame; the upper bits of an attempt's job number name it (wire.py)

If the profile of an attempt was never defined, or was dropped, the launcher withdraws the attempt.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

from resile.executors.fence import FenceAt
from resile.executors.local.launcher.spawner import Environment
from resile.executors.redaction import Patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resile.executors.fence import FenceReader
    from resile.executors.local.wire import ProfileFields


class Profile:
    """The fence, the folder of segments, the secrets, the environment and the directory of some attempts.

    An empty directory means the launcher's own working directory.
    """

    __slots__ = ("directory", "environment", "fence", "folder", "secrets")

    def __init__(
        self,
        fence: FenceReader | FenceAt,
        folder: bytes,
        secrets: Patterns,
        environment: Environment,
        directory: bytes = b"",
    ) -> None:
        self.fence = fence
        self.folder = folder
        self.secrets = secrets
        self.environment = environment
        self.directory = directory


def profile_of(given: ProfileFields) -> Profile:
    """The profile that a frame defines."""
    return Profile(FenceAt(given.fence), given.folder, Patterns(given.secrets), Environment(given.env), given.directory)
