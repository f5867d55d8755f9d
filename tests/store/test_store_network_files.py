"""A SQLite file on a network file system is noticed by the mount table, and people are told."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import tuner
from tuner.store import network_files
from tuner.store.network_files import network_type, network_warnings
from tuner.store.store import Store

TABLE = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
25 22 0:23 / /home rw,relatime shared:3 - nfs4 server:/export/home rw,vers=4.2
26 25 254:2 / /home/me/scratch rw,relatime - xfs /dev/vdb rw
27 22 0:40 / /mnt/with\\040space rw - cifs //server/share rw
28 22 0:41 / /mnt/ssh rw - fuse.sshfs me@server:/ rw
29 22 0:42 / /mnt/lustre rw - lustre 10.0.0.1@tcp:/scratch rw
30 22 0:43 / /mnt/vm rw - 9p host rw
31 22 0:44 / /mnt/own rw - fuse.bindfs /dev/x rw
32 22 0:45 / /mnt/over rw - nfs server:/a rw
33 22 0:46 / /mnt/over rw - tmpfs tmpfs rw
34 22 0:47 / /mnt/smb rw master:1 propagate_from:2 - smb3 //server/b rw
a line that means nothing
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/tuner.db", None),
        ("/home/me/tuner.db", "nfs4"),
        ("/homestead/tuner.db", None),
        ("/home/me/scratch/tuner.db", None),
        ("/mnt/with space/a/tuner.db", "cifs"),
        ("/mnt/ssh/tuner.db", "fuse.sshfs"),
        ("/mnt/lustre/tuner.db", "lustre"),
        ("/mnt/vm/tuner.db", "9p"),
        ("/mnt/own/tuner.db", None),
        ("/mnt/over/tuner.db", None),
        ("/mnt/smb/tuner.db", "smb3"),
    ],
)
def test_the_mount_that_holds_the_file_decides(path: str, kind: str | None) -> None:
    assert network_type(Path(path), TABLE) == kind
    assert [kind in text for text in network_warnings(Path(path), TABLE) if kind] == ([True] if kind else [])


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    table = f"22 1 254:1 / / rw - ext4 /dev/vda1 rw\n23 22 0:1 / {tmp_path}/there rw - nfs server:/ rw\n"
    assert network_type(tmp_path / "link" / "tuner.db", table) == "nfs"
    assert network_warnings(None, table) == ()


def test_there_it_keeps_the_rollback_journal_and_says_so(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 254:1 / / rw - ext4 /dev/vda1 rw\n23 22 0:1 / {tmp_path} rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(network_files, "MOUNTS", mounts)
    with Store.open(str(path)) as store:
        (said,) = store.warnings
    assert said.startswith(f"{path} lies on a network file system (nfs4)") and "PostgreSQL" in said
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    other.close()
    assert tuner.check_database(db=str(path)).notes == (said,)
    assert tuner.database_stats(db=str(path)).notes == (said,)


def test_on_a_local_disk_nothing_is_said(path: Path) -> None:
    with Store.open(str(path)) as store:
        assert store.warnings == ()


def test_where_there_is_no_mount_table_nothing_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_files, "MOUNTS", path)
    assert network_type(path) is None
