"""An archive in a bucket, and its dataset in another prefix, live by the same commands."""

from pathlib import Path

import obstore
import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_day

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.servers, pytest.mark.ci]


class Bucket:
    """An archive of monthly folders in a bucket, and the same files on disk."""

    def __init__(self, proxied, folder):
        self.place, self.rules = proxied.direct, proxied.rules
        self.through, self.folder = proxied.place, folder
        self.store = self.place.store()
        self.archive, self.repo = f"{self.place.url}/archive/", f"{self.place.url}/repo"
        self.days = {}

    def put(self, day, **how):
        path = write_day(self.folder / f"day{day:03}.nc", day, **how)
        obstore.put(self.store, self.key(day), Path(path).read_bytes())
        self.days[day] = path

    def key(self, day):
        return f"archive/2001-{1 + day // 10:02}/day{day:03}.nc"

    def assert_is(self, *days):
        with opened(self.repo) as found:
            assert_same_dataset(found, expected_dataset([self.days[day] for day in days], "time"))


@pytest.fixture
def bucket(s3_proxy, in_process, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_proxy.place.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    made = Bucket(s3_proxy, tmp_path)
    for day in (1, 2, 12):
        made.put(day)
    icevirt.build(made.archive, made.repo, concat_dim="time")
    return made


def listed(bucket):
    """Return from where on the archive was listed since the last time."""
    found = [
        request.query.get("start-after", "")
        for request in bucket.rules.requests
        if "archive/" in request.query.get("prefix", "")
    ]
    bucket.rules.requests.clear()
    return found


def test_an_archive_in_a_bucket_lives(bucket):
    bucket.put(21)
    listed(bucket)
    report = icevirt.update(bucket.repo, since="2001-02/day013")
    assert (report.files_added, report.files_scanned) == (1, 1)
    assert "2001-02/day01" in listed(bucket)[0]
    bucket.put(13)
    bucket.put(12)  # it is written again, with the same bytes
    report = icevirt.update(bucket.repo)
    assert (report.files_added, report.files_corrected, report.files_same_layout) == (1, 0, 0)
    bucket.assert_is(1, 2, 12, 13, 21)
    bucket.put(22)
    assert icevirt.append(f"{bucket.archive}2001-03/", bucket.repo).flat
    obstore.delete(bucket.store, bucket.key(2))
    assert icevirt.update(bucket.repo, vanished="remove", since="2001-01").files_vanished == 1
    icevirt.maintain(bucket.repo, window="9D", authorize=bucket.archive)
    bucket.assert_is(13, 21, 22)
    icevirt.withdraw(bucket.archive + "2001-03/day021.nc", bucket.repo, authorize=bucket.archive)
    bucket.assert_is(13, 22)
    assert icevirt.update(bucket.repo).already_built
    for day in (13, 22):
        raw = Path(bucket.days[day]).read_bytes()
        obstore.put(bucket.store, bucket.key(day).replace("archive/", "moved/"), raw)
    moved = f"{bucket.place.url}/moved/"
    icevirt.relocate(
        bucket.repo, bucket.archive, moved, authorize_virtual_chunk_access=[bucket.archive, moved]
    )
    bucket.assert_is(13, 22)
    report = icevirt.update(bucket.repo)
    assert (report.already_built, report.files_known) == (True, 2)


@pytest.mark.parametrize("how", [{}, {"chunks": {"time": 6}}], ids=["copied", "cut"])
def test_a_stored_variable_in_a_bucket_goes_on(bucket, how):
    access = [bucket.archive]
    icevirt.materialize(bucket.repo, "packed", authorize_virtual_chunk_access=access, **how)
    bucket.put(21)
    assert icevirt.append(f"{bucket.archive}2001-03/", bucket.repo).flat
    bucket.put(13)  # between others, so that all files are planned
    assert icevirt.update(bucket.repo).files_added == 1
    bucket.assert_is(1, 2, 12, 13, 21)
    session = icevirt.Repository.open(bucket.repo).readonly_session("main")
    assert 2 not in session.array_table("/packed").kind
