"""Which file systems belong to a network, and on which one a directory is."""

from pathlib import Path

import pytest

from dlrover_cli.jobs.file_systems import file_system_of, is_network_file_system, is_on_network

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /home rw,relatime shared:5 - autofs systemd-1 rw,fd=29
31 30 0:53 / /home rw,relatime shared:6 master:2 - nfs4 server:/home rw,vers=4.2
32 31 0:54 / /home/ann/scratch rw,relatime - xfs /dev/vdb rw
33 22 0:55 / /mnt/two\\040words rw - fuse.sshfs ann@server: rw
34 22 0:56 / /mnt/back\\134slash rw - lustre 10.0.0.1@tcp:/fs rw
35 22 0:57 / /data rw - tmpfs tmpfs rw
torn 36 22
"""


@pytest.mark.parametrize(
    "path, file_system",
    [
        ("/etc", "ext4"),
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/home/bob/.local/state", "nfs4"),
        ("/homestead", "ext4"),
        ("/home/ann/scratch/state", "xfs"),
        ("/home/ann/scratchpad", "nfs4"),
        ("/mnt/two words/x", "fuse.sshfs"),
        ("/mnt/back\\slash", "lustre"),
        ("/data/x", "tmpfs"),
    ],
)
def test_the_deepest_and_last_mount_is_the_one_that_counts(path: str, file_system: str) -> None:
    assert file_system_of(path, MOUNTINFO) == file_system


def test_a_text_without_mounts_tells_nothing() -> None:
    assert file_system_of("/home", "") is None


NETWORK = (
    "nfs nfs4 cifs smb3 smbfs fuse.sshfs fuse.glusterfs fuse.s3fs fuse lustre gpfs beegfs ceph "
    "fuse.ceph-fuse afs 9p glusterfs virtiofs ocfs2"
)
LOCAL = "ext4 xfs btrfs zfs tmpfs overlay fuseblk"


@pytest.mark.parametrize("file_system", NETWORK.split())
def test_file_systems_of_a_network_and_unknown_ones_in_user_space(file_system: str) -> None:
    assert is_network_file_system(file_system)


@pytest.mark.parametrize("file_system", LOCAL.split())
def test_local_file_systems(file_system: str) -> None:
    assert not is_network_file_system(file_system)


def test_the_real_temporary_directory_is_told(tmp_path: Path) -> None:
    told = file_system_of(str(tmp_path.resolve()), Path("/proc/self/mountinfo").read_text())
    assert told is not None
    assert is_on_network(tmp_path) == is_network_file_system(told)


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    told = file_system_of(
        str((tmp_path / "link").resolve()), Path("/proc/self/mountinfo").read_text()
    )
    assert told == "proc"
    assert not is_on_network(tmp_path / "link")
