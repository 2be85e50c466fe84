"""A file system of a program, which takes no locks: one mount is safe, a second one is refused."""

import os
import shutil
import subprocess
import sys
import time

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_days
from icevirt.errors import StorageError
from icevirt.storage import file_systems
from icevirt.storage.local import LocalStorage

TOOLS = ("bindfs", "fusermount3")

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(
        not os.access("/dev/fuse", os.R_OK | os.W_OK) or not all(map(shutil.which, TOOLS)),
        reason="needs /dev/fuse, fuse3 and bindfs",
    ),
]

WRITER = """
import sys
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import Written

storage = LocalStorage(sys.argv[1])
for _ in range(100):
    while True:
        body, version = storage.get_versioned("count")
        if isinstance(storage.put_if("count", body + b"1", was=version), Written):
            break
"""


@pytest.fixture
def mounts(disk_path):
    """Two mounts of one folder, as two machines have."""
    behind = disk_path / "behind"
    behind.mkdir()
    made, serving = [], []
    for name in ("first", "second"):
        place = disk_path / name
        place.mkdir()
        serving.append(subprocess.Popen(["bindfs", "-f", behind, place]))
        made.append(place)
    while not all(map(os.path.ismount, made)):
        assert all(each.poll() is None for each in serving)
        time.sleep(0.01)
    yield made
    for place, server in zip(made, serving, strict=True):
        subprocess.run(["fusermount3", "-uz", place], check=True)
        server.terminate()
        server.wait()


def test_a_repository_has_writers_of_one_mount_at_a_time(mounts):
    first, second = (each / "repo" for each in mounts)
    days = write_days(mounts[0] / "in", 2)
    icevirt.build(days, first, concat_dim="time", executor="in-process")
    assert_same_dataset(opened(str(first)), expected_dataset(days, "time"))

    LocalStorage(first).put_if("count", b"", was=None)
    command = [sys.executable, "-c", WRITER, str(first)]
    writers = [subprocess.Popen(command) for _ in range(2)]
    assert [each.wait() for each in writers] == [0, 0]
    assert len(LocalStorage(first).get("count")) == 200

    def through_the_second():
        icevirt.build(days[:1], second, concat_dim="time", group="again", executor="in-process")

    with pytest.raises(StorageError, match="through another mount, which has other locks"):
        through_the_second()
    long_ago = time.time() - 2 * file_systems.LEASE
    os.utime(first / "machine#0", (long_ago, long_ago))
    through_the_second()
    repo = icevirt.Repository.open(first)
    with pytest.raises(StorageError, match="remove the file"):
        repo.create_branch("late", repo.lookup_branch("main"))
