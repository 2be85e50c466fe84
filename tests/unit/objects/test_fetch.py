"""Reading ranges of local files: what is read, what is refused, and how it fails."""

import os
import threading
from pathlib import Path

import pytest

from icevirt.errors import (
    IcevirtError,
    ObjectNotFoundError,
    StaleReferenceError,
    StorageError,
    UnauthorizedError,
)
from icevirt.objects import fetch
from icevirt.objects.answers import Checksum
from icevirt.objects.authorize import LocalGrant
from icevirt.objects.fetch import FILES, read, read_cached
from open_files import open_below

BODY = bytes(range(256)) * 16


@pytest.fixture
def archive(disk_path):
    (disk_path / "archive").mkdir()  # files in memory are never read without waiting
    return disk_path / "archive"


def grant(root, name):
    return LocalGrant(f"file://{root}/{name}", str(root / name), f"{root}/")


@pytest.fixture
def source(archive):
    (archive / "a.nc").write_bytes(BODY)
    return grant(archive, "a.nc")


def mtime(source):
    return Path(source.path).stat().st_mtime_ns


@pytest.mark.parametrize(("offset", "length"), [(0, 1), (7, 100), (0, len(BODY)), (len(BODY), 0)])
def test_exactly_the_range_is_read(source, offset, length):
    assert read(source, offset=offset, length=length) == BODY[offset : offset + length]


def test_a_short_file_is_an_error(source):
    with pytest.raises(StorageError, match="ends too early") as short:
        read(source, offset=len(BODY) - 1, length=2)
    assert short.value.facts["available"] == 1


def test_a_file_that_went_missing_is_an_error_that_nobody_takes_for_absence(source):
    read(source, offset=0, length=1)
    Path(source.path).unlink()
    with pytest.raises(ObjectNotFoundError) as gone:
        read(source, offset=0, length=1)
    assert not isinstance(gone.value, KeyError | FileNotFoundError)


def test_a_directory_that_became_a_file_is_an_error_that_nobody_takes_for_absence(source, archive):
    with pytest.raises(ObjectNotFoundError):
        read(grant(archive, "a.nc/b.nc"), offset=0, length=1)


def test_a_directory_is_no_source(archive):
    (archive / "b.nc").mkdir()
    with pytest.raises(StorageError):
        read(grant(archive, "b.nc"), offset=0, length=1)


def test_a_fifo_does_not_block(archive):
    os.mkfifo(archive / "pipe")
    with pytest.raises(StorageError):
        read(grant(archive, "pipe"), offset=0, length=1)


# -- checksums -------------------------------------------------------------------------------


def test_a_time_rounded_up_to_seconds_passes(source):
    second = -(-mtime(source) // 10**9)
    assert read(source, offset=0, length=1, checksum=Checksum(last_modified=second)) == b"\0"


def test_a_file_touched_a_nanosecond_later_is_stale(source):
    os.utime(source.path, ns=(0, 1_000_000_000 * 1000))
    checksum = Checksum(last_modified=1000)
    read(source, offset=0, length=1, checksum=checksum)
    os.utime(source.path, ns=(0, 1_000_000_000 * 1000 + 1))
    with pytest.raises(
        StaleReferenceError,
        match=r"recorded='1970-01-01T00:16:40\+00:00', found='1970-01-01T00:16:40.000001",
    ):
        read(source, offset=0, length=1, checksum=checksum)


def test_a_file_replaced_by_a_newer_one_is_stale(source, archive):
    checksum = Checksum(last_modified=-(-mtime(source) // 10**9))
    read(source, offset=0, length=1, checksum=checksum)
    (archive / "new").write_bytes(BODY[::-1])
    os.utime(archive / "new", (checksum.last_modified + 5,) * 2)
    (archive / "new").rename(source.path)
    with pytest.raises(StaleReferenceError):
        read(source, offset=0, length=1, checksum=checksum)


def test_a_file_rewritten_in_place_to_less_is_stale_rather_than_short(source):
    checksum = Checksum(last_modified=1000)
    os.utime(source.path, (1000, 1000))
    read(source, offset=0, length=9, checksum=checksum)
    Path(source.path).write_bytes(b"x")
    with pytest.raises(StaleReferenceError):
        read(source, offset=0, length=9, checksum=checksum)


@pytest.mark.parametrize("form", ["{}", '"{}"', 'W/"{}"'])
def test_an_etag_of_inode_mtime_and_size_is_compared(source, form):
    stat = Path(source.path).stat()
    tag = f"{stat.st_ino:x}-{stat.st_mtime_ns // 1000:x}-{stat.st_size:x}"
    assert read(source, offset=0, length=1, checksum=Checksum(etag=form.format(tag))) == b"\0"
    os.utime(source.path, (1, 1))
    with pytest.raises(StaleReferenceError):
        read(source, offset=0, length=1, checksum=Checksum(etag=form.format(tag)))


def test_an_etag_that_no_local_file_has_cannot_be_verified(source):
    with pytest.raises(StorageError, match="cannot be verified") as refused:
        read(source, offset=0, length=1, checksum=Checksum(etag="d41d8cd98f00b204e9800998ecf8427e"))
    assert not isinstance(refused.value, StaleReferenceError)


# -- symbolic links --------------------------------------------------------------------------


@pytest.fixture
def secret(disk_path):
    (disk_path / "secret").write_bytes(b"secret")
    return disk_path / "secret"


def test_a_link_inside_the_container_is_followed(source, archive):
    (archive / "latest.nc").symlink_to("a.nc")
    assert read(grant(archive, "latest.nc"), offset=1, length=2) == BODY[1:3]


def test_a_container_that_is_itself_a_link_is_followed(source, archive, disk_path):
    (disk_path / "alias").symlink_to(archive)
    assert read(grant(disk_path / "alias", "a.nc"), offset=1, length=2) == BODY[1:3]


def test_a_link_out_of_the_container_is_refused(archive, secret):
    (archive / "b.nc").symlink_to(secret)
    with pytest.raises(UnauthorizedError, match="leads out"):
        read(grant(archive, "b.nc"), offset=0, length=1)


def test_a_relative_link_out_of_the_container_is_refused(archive, secret):
    (archive / "b.nc").symlink_to("../secret")
    with pytest.raises(UnauthorizedError):
        read(grant(archive, "b.nc"), offset=0, length=1)


def test_a_linked_directory_out_of_the_container_is_refused(archive, secret):
    (archive / "up").symlink_to("..")
    with pytest.raises(UnauthorizedError):
        read(grant(archive, "up/secret"), offset=0, length=1)


def test_a_link_to_the_container_itself_is_no_file(archive):
    (archive / "self").symlink_to(".")
    with pytest.raises(IcevirtError):
        read(grant(archive, "self"), offset=0, length=1)


def test_a_link_to_a_sibling_with_the_same_beginning_is_refused(archive, disk_path):
    (disk_path / "archive2").write_bytes(b"secret")
    (archive / "b.nc").symlink_to(disk_path / "archive2")
    with pytest.raises(UnauthorizedError):
        read(grant(archive, "b.nc"), offset=0, length=1)


def test_a_link_loop_is_an_error(archive):
    (archive / "b.nc").symlink_to("b.nc")
    with pytest.raises(StorageError):
        read(grant(archive, "b.nc"), offset=0, length=1)


def test_a_link_pointed_elsewhere_after_it_was_opened_is_refused(source, archive, secret):
    (archive / "b.nc").symlink_to("a.nc")
    read(grant(archive, "b.nc"), offset=0, length=1)
    (archive / "b.nc").unlink()
    (archive / "b.nc").symlink_to(secret)
    with pytest.raises(UnauthorizedError):
        read(grant(archive, "b.nc"), offset=0, length=1)


def test_a_link_swapped_in_between_check_and_open_leads_nowhere(
    source, archive, secret, monkeypatch
):
    (archive / "latest.nc").symlink_to("a.nc")
    realpath = os.path.realpath

    def swap(path, **options):
        found = realpath(path, **options)
        if path == str(archive / "latest.nc"):
            Path(source.path).unlink()
            Path(source.path).symlink_to(secret)
        return found

    monkeypatch.setattr(os.path, "realpath", swap)
    with pytest.raises(StorageError):
        read(grant(archive, "latest.nc"), offset=0, length=1)
    assert Path(source.path).is_symlink()


@pytest.mark.parametrize("swapped", ["up", "up/secret"])
def test_a_link_swapped_in_on_the_way_is_refused(archive, disk_path, monkeypatch, swapped):
    """The root is open already, and ``swapped`` is opened next, or after the next."""
    (disk_path / "outside").mkdir()
    (disk_path / "outside" / "secret").write_bytes(b"secret")
    (archive / "up").mkdir()
    (archive / "up" / "secret").write_bytes(b"public")
    opened = os.open

    def swap(path, flags, **options):
        if not options and not (archive / swapped).is_symlink():
            (archive / swapped).rename(disk_path / "before")
            (archive / swapped).symlink_to(disk_path / "outside" / swapped.removeprefix("up")[1:])
        return opened(path, flags, **options)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(UnauthorizedError):
        read(grant(archive, "up/secret"), offset=0, length=1)


def test_a_path_without_links_is_walked_once(source, archive, monkeypatch):
    """Each of its directories was looked up twice before, which took longer than to open it."""
    opened, names = os.open, []

    def noted(path, flags, **options):
        names.append(path)
        return opened(path, flags, **options)

    monkeypatch.setattr(os, "open", noted)
    monkeypatch.setattr(os.path, "realpath", None)
    (archive / "sub").mkdir()
    (archive / "sub" / "b.nc").write_bytes(BODY)
    assert read(grant(archive, "sub/b.nc"), offset=0, length=1) == BODY[:1]
    assert names == [f"{archive}/", "sub", "b.nc"]


@pytest.mark.parametrize(
    "name", ["../secret", "sub/../../secret", "./../secret", "sub//../../secret"]
)
def test_a_path_that_leads_up_is_refused(archive, secret, name):
    (archive / "sub").mkdir()
    up = LocalGrant(f"file://{archive}/{name}", f"{archive}/{name}", f"{archive}/")
    with pytest.raises(UnauthorizedError):
        read(up, offset=0, length=1)


def test_a_path_beside_the_root_is_refused(archive, secret):
    beside = LocalGrant(f"file://{secret}", str(secret), f"{archive}/")
    with pytest.raises(UnauthorizedError):
        read(beside, offset=0, length=1)


# -- descriptors -----------------------------------------------------------------------------


def test_descriptors_are_bounded_and_closed(archive, monkeypatch):
    monkeypatch.setattr(fetch, "_MAX_OPEN", 4)
    FILES.reset()
    for number in range(50):
        (archive / str(number)).write_bytes(bytes([number]))
        assert read(grant(archive, str(number)), offset=0, length=1) == bytes([number])
    assert len(open_below(archive)) == 4
    FILES.reset()
    assert open_below(archive) == []


def test_threads_that_evict_each_other_read_the_right_files(archive, monkeypatch):
    monkeypatch.setattr(fetch, "_MAX_OPEN", 2)
    for number in range(16):
        (archive / str(number)).write_bytes(bytes([number]) * 4096)
    wrong = []

    def work(seed):
        for step in range(300):
            number = (step * 7 + seed) % 16
            body = read(grant(archive, str(number)), offset=0, length=4096)
            if body != bytes([number]) * 4096:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_reads_though_the_parent_held_the_lock(source):
    read(source, offset=0, length=1)
    with FILES._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if read(source, offset=1, length=1) == b"\1" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- without waiting -------------------------------------------------------------------------


def test_what_the_kernel_has_is_read_without_waiting(source):
    assert read_cached(source, offset=1, length=2) is None  # the file is not open yet
    read(source, offset=0, length=1)
    assert bytes(read_cached(source, offset=1, length=2)) == BODY[1:3]


@pytest.mark.skipif(fetch._NOWAIT is None, reason="the system cannot say what it would wait for")
@pytest.mark.parametrize(
    ("offset", "length"), [(len(BODY), 1), (0, len(BODY) + 1), (0, 2**40), (2**62, 1)]
)
def test_beyond_the_end_nothing_is_read_without_waiting(source, offset, length):
    read(source, offset=0, length=1)
    assert read_cached(source, offset=offset, length=length) is None


def test_what_is_wrong_is_left_for_the_read_that_waits(source, archive, secret):
    checksum = Checksum(last_modified=-(-mtime(source) // 10**9))
    read(source, offset=0, length=1, checksum=checksum)
    os.utime(source.path, (checksum.last_modified + 1,) * 2)
    assert read_cached(source, offset=0, length=1, checksum=checksum) is None
    Path(source.path).unlink()
    assert read_cached(source, offset=0, length=1) is None
    Path(source.path).symlink_to(secret)
    assert read_cached(source, offset=0, length=1) is None
