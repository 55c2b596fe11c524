"""Makes the one file that a node needs of Resile: the launcher and the agent, as an archive that Python runs."""

from __future__ import annotations

import os
import zipfile

_PACKAGES = ("", "executors", "executors/local", "executors/local/launcher", "executors/parsl", "executors/parsl/node")
_WHOLE = ("executors/local/launcher", "executors/parsl/node")
_SINGLE = (
    "executors/fence.py",
    "executors/descriptors.py",
    "executors/redaction.py",
    "executors/samples.py",
    "executors/local/oom.py",
    "executors/local/prestart.py",
    "executors/local/processes.py",
    "executors/local/spool.py",
    "executors/local/wire.py",
)
_MAIN = "from resile.executors.parsl.node.agent import main\nmain()\n"


def write_archive(path: str) -> None:
    """Write the archive, so that a reader sees all of it or none."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    names = list(_SINGLE)
    for folder in _WHOLE:
        names += [f"{folder}/{name}" for name in os.listdir(os.path.join(root, folder)) if name.endswith(".py")]
    beside = f"{path}.{os.getpid()}"
    with zipfile.ZipFile(beside, "w") as archive:
        archive.writestr("__main__.py", _MAIN)
        # Empty packages: the real __init__ files would import more.
        for package in _PACKAGES:
            archive.writestr("/".join(filter(None, ("resile", package, "__init__.py"))), "")
        for name in sorted(names):
            if not name.endswith("__init__.py"):
                archive.write(os.path.join(root, name), f"resile/{name}")
    os.chmod(beside, 0o600)
    os.rename(beside, path)
