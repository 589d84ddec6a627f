"""Whether a directory is on a network file system, whose hosts cannot share memory."""

import os
import re
from pathlib import Path

_NETWORK = frozenset(
    " ".join(
        (
            "9p acfs afs afpfs beegfs ceph cifs coda cvfs davfs fhgfs gfs gfs2 glusterfs gpfs",
            "ibrix lustre mfs ncpfs nfs nfs3 nfs4 ocfs2 orangefs panfs prl_fs pvfs2 smb smb2 smb3",
            "smbfs snfs stornext vboxsf virtiofs vmhgfs wekafs yas3fs",
        )
    ).split(" ")
)
# Any other one in user space may be anything, a network included.
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuseblk"})


def is_on_network(directory: Path) -> bool:
    """Whether other hosts may see this directory too. Where it cannot be told: yes."""
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return True
    file_system = file_system_of(os.path.realpath(directory), mountinfo)
    return file_system is None or is_network_file_system(file_system)


def file_system_of(path: str, mountinfo: str) -> str | None:
    """The type of the file system that an absolute path is on, by a text like /proc/self/mountinfo.

    Of several mounts on one place, the last one is on top.
    """
    deepest, found = "", None
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not source:
            continue
        point = _unescaped(fields[4])
        if _is_below(path, point) and len(point) >= len(deepest):
            deepest, found = point, source.split(" ")[0]
    return found


def is_network_file_system(file_system: str) -> bool:
    """Whether a type, as the kernel names it, is one of a network, or may be."""
    if file_system in _LOCAL_FUSE:
        return False
    return file_system in _NETWORK or file_system.partition(".")[0] == "fuse"


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescaped(text: str) -> str:
    """The kernel writes blanks, tabs, line ends and backslashes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
