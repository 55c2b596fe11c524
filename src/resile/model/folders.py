"""Private folders and files: created for their owner only, and refused where another user could plant something.

    make_folder(path)      the folder and the missing ones above it, 0700
    claim_folder(path)     the same, and the folder must be ours; for the output folder and the state folder
    create_file(path)      a file, 0600
    put_in_place(file, …)  a file that was written beside its place: there whole or not at all, also after a power cut

"Others" are all but the owner and the owner's own group. The folders above a claimed one are not judged: in a sticky
one, such as /tmp, no other user can replace the folder; in one that others can write without it, they can.
"""

from __future__ import annotations

import os
import stat
from typing import IO, Any, BinaryIO, cast

from resile.errors import ResileError

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_ACL = "system.posix_acl_access"
# An ACL is a header of four bytes and entries of eight: tag, permissions, id; these tags name a user and a group.
_ACL_HEADER_BYTES, _ACL_ENTRY_BYTES, _ACL_NAMED, _ACL_WRITE = 4, 8, (0x02, 0x08), 0x02


def make_folder(path: str, *, new: bool = False) -> None:
    """Create a folder for its owner only, with the missing folders above it.

    One that exists stays as it is; with `new` it raises FileExistsError.
    """
    try:
        os.mkdir(path, _FOLDER_MODE)
    except FileNotFoundError:
        above = os.path.dirname(path)
        if above in ("", path) or os.path.isdir(above):
            raise
        make_folder(above)
        make_folder(path, new=new)
    except FileExistsError:
        if new or not os.path.isdir(path):
            raise


def create_file(path: str, flags: int = os.O_WRONLY | os.O_TRUNC) -> BinaryIO:
    """Open a file for writing; a new one is readable by its owner only, whatever the umask says."""
    mode = "w+b" if flags & os.O_RDWR else "wb"
    return cast(BinaryIO, open(os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE), mode))


def put_in_place(file: IO[Any], part: str, path: str) -> None:
    """Flush a file that was written as `part` to the disk, rename it to `path`, and flush its folder."""
    file.flush()
    os.fsync(file.fileno())
    os.replace(part, path)
    sync_folder(os.path.dirname(path) or ".")


def sync_folder(path: str) -> None:
    """Flush a folder to the disk: the names of its files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def claim_folder(path: str, other: str = "") -> None:
    """Create a folder, or refuse one that is not ours alone; `other` says how to do without it.

    Root is no exception: in a folder of another user root would write where that user chooses.
    """
    if not os.path.isdir(path):
        make_folder(path)
    refuse_shared(path, other)


def refuse_shared(path: str, other: str = "") -> None:
    """Refuse a folder that belongs to another user, or that others can write.

    First the entry itself: a link of another user could lead anywhere. No other user can replace an entry of ours in a
    folder that is ours or sticky, so the answer stays true.
    """
    us, entry = os.geteuid(), os.lstat(path)
    is_link = stat.S_ISLNK(entry.st_mode)
    if is_link and entry.st_uid not in (0, us):
        message = f"{path} is a link that {_user(entry.st_uid)} made"
        raise ResileError("folder-foreign", message, where=path, hint=f"remove it: `rm {_quote(path)}`{other}")
    found = os.stat(path) if is_link else entry
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != us:
        message = f"the folder {path} (mode {mode:04o}) belongs to {_user(found.st_uid)}, and this is {_user(us)}"
        mend = f"make it yours: `chown -R {us} {_quote(path)}`{other}"
        raise ResileError("folder-foreign", message, where=path, hint=mend)
    if command := _lock_command(path, mode, found):
        message = f"others can write to the folder {path} (mode {mode:04o})"
        mend = f"lock them out: `{command} {_quote(path)}`{other}"
        raise ResileError("folder-shared", message, where=path, hint=mend)


def _lock_command(path: str, mode: int, found: os.stat_result) -> str:
    """The command that keeps others from writing to a folder of ours; empty if they can't."""
    if mode & stat.S_IWOTH:
        return "chmod go-w"
    if not mode & stat.S_IWGRP:
        return ""
    if found.st_gid != _own_group(found.st_uid):
        return "chmod g-w"
    return "setfacl -b" if _names_writers(path) else ""


def _own_group(user: int) -> int:
    """The group of a user; a user whom the machine does not know, as in a container, has that of this process."""
    import pwd

    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return os.getegid()


def _names_writers(path: str) -> bool:
    """Does an access list let other users or groups write? The group bits of the mode are its upper limit."""
    try:
        data = os.getxattr(path, _ACL)
    except OSError:
        return False
    entries = (data[at : at + 4] for at in range(_ACL_HEADER_BYTES, len(data), _ACL_ENTRY_BYTES))
    words = [(int.from_bytes(entry[:2], "little"), int.from_bytes(entry[2:], "little")) for entry in entries]
    return any(tag in _ACL_NAMED and allowed & _ACL_WRITE for tag, allowed in words)


def _user(number: int) -> str:
    """A user by name and number."""
    import pwd

    try:
        return f"user {pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"


def _quote(path: str) -> str:
    """A path as a word of a command."""
    import shlex

    return shlex.quote(path)
