"""Files that are scanned where they will not be read: references say where they will be."""

import os
import shutil
from pathlib import Path

import obstore
import pytest

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    official,
    opened,
    write_day,
    write_days,
)
from grouping import grouped
from icevirt.errors import BuildError, InvalidInputError, SourcesChangedError
from icevirt.tasks.write_manifests import run_write


@pytest.fixture
def days(tmp_path, in_process):
    """Three days, scanned below ``in``, to be read below ``out``."""
    days = write_days(tmp_path / "in" / "a b")
    shutil.copytree(tmp_path / "in", tmp_path / "out")
    return days


def moved(tmp_path):
    return {str(tmp_path / "in"): str(tmp_path / "out")}


def test_references_lead_to_where_files_will_be_read(days, tmp_path, repo_path):
    report = icevirt.build(
        days, repo_path, concat_dim="time", commit_options={"publish_as": moved(tmp_path)}
    )
    assert report.containers == (f"file://{tmp_path}/out/",)
    expected = expected_dataset(days, "time").load()
    shutil.rmtree(tmp_path / "in")
    assert_same_dataset(opened(repo_path), expected)
    assert official(repo_path).readonly_session("main").all_virtual_chunk_locations()
    assert icevirt.verify(repo_path, full=True, authorize_virtual_chunk_access=report.containers).ok


def test_a_plan_says_where_files_will_be_read(days, tmp_path):
    made = icevirt.plan(days, concat_dim="time", commit_options={"publish_as": moved(tmp_path)})
    assert [place.url_prefix for place in made.containers] == [f"file://{tmp_path}/out/"]
    assert {Path(url).parent.parent.name for url in made.files.url} == {"out"}
    spoiled(tmp_path, "short")
    with pytest.raises(BuildError, match=r"day2\.nc.*5 bytes"):
        icevirt.plan(days, concat_dim="time", commit_options={"publish_as": moved(tmp_path)})


def test_the_longest_prefix_counts_and_other_files_stay(days, tmp_path, repo_path):
    more = write_day(tmp_path / "day0.nc", 0)
    shutil.copytree(tmp_path / "in" / "a b", tmp_path / "elsewhere")
    publish_as = {
        tmp_path / "in": tmp_path / "nowhere",
        (tmp_path / "in" / "a b").as_uri(): f"{tmp_path}/elsewhere/",
    }
    with pytest.raises(InvalidInputError, match=r"no file lies below.*/in/"):
        icevirt.build(
            [more, *days], repo_path, concat_dim="time", commit_options={"publish_as": publish_as}
        )
    del publish_as[tmp_path / "in"]
    icevirt.build(
        [more, *days], repo_path, concat_dim="time", commit_options={"publish_as": publish_as}
    )
    session = icevirt.Repository.open(repo_path).readonly_session("main")
    found = {Path(url).parent.name for url in session.all_virtual_chunk_locations()}
    assert found == {"elsewhere", tmp_path.name}


def spoiled(tmp_path, way):
    path = tmp_path / "out" / "a b" / "day2.nc"
    path.unlink() if way == "gone" else path.write_bytes(b"short")


@pytest.mark.parametrize(("way", "output"), [("gone", "is not there"), ("short", "5 bytes")])
def test_files_that_are_not_there_stop_the_build(way, output, days, tmp_path, repo_path):
    spoiled(tmp_path, way)
    with pytest.raises(BuildError, match=rf"1 of 3 files.*day2\.nc.*{output}"):
        icevirt.build(
            days, repo_path, concat_dim="time", commit_options={"publish_as": moved(tmp_path)}
        )
    assert not Path(repo_path).exists()


def test_files_that_change_where_they_will_be_read_stop_the_build(
    days, tmp_path, repo_path, in_process
):
    touched = tmp_path / "out" / "a b" / "day2.nc"
    in_process.before[run_write] = lambda: os.utime(touched, (1.7e9, 1.7e9))
    with pytest.raises(SourcesChangedError, match=r"1 of 6.*out.*day2\.nc"):
        icevirt.build(
            days, repo_path, concat_dim="time", commit_options={"publish_as": moved(tmp_path)}
        )
    assert not Path(repo_path).exists()
    icevirt.build(
        days,
        repo_path,
        concat_dim="time",
        commit_options={"publish_as": moved(tmp_path), "rescan_changed": True},
    )
    assert opened(repo_path).load().sizes["time"] == 12


@pytest.mark.ci
def test_a_build_that_is_run_again_commits_nothing_and_one_elsewhere_does(
    days, tmp_path, repo_path
):
    how = {"concat_dim": "time", "mode": "w"}
    first = icevirt.build(
        days,
        repo_path,
        commit_options={"publish_as": moved(tmp_path)},
        mode="w-",
        concat_dim="time",
    )
    again = icevirt.build(
        days,
        repo_path,
        commit_options={"publish_as": moved(tmp_path)},
        mode="w-",
        concat_dim="time",
    )
    assert again.already_built
    assert again.snapshot_id == first.snapshot_id
    plain = icevirt.build(days, repo_path, **grouped(how))
    assert not plain.already_built
    assert opened(repo_path).load().sizes["time"] == 12
    icevirt.build(days, repo_path, **grouped(how, publish_as=moved(tmp_path)))
    os.utime(tmp_path / "out" / "a b" / "day2.nc", (1.9e9, 1.9e9))
    icevirt.build(days, repo_path, **grouped(how, publish_as=moved(tmp_path)))
    assert opened(repo_path).load().sizes["time"] == 12


BAD = {
    "no URL": ({"": "/x"}, "not the path or URL"),
    "a number": ({"/x": 7}, "not the path or URL"),
    "an unknown scheme": ({"/x": "ftp://x/y"}, "object store"),
    "a prefix of nothing": ({"/nowhere": "/x"}, "no file lies below"),
}


@pytest.mark.parametrize(("publish_as", "output"), BAD.values(), ids=BAD.keys())
def test_what_is_no_prefix_is_reported(publish_as, output, days, repo_path):
    with pytest.raises(InvalidInputError, match=output):
        icevirt.build(days, repo_path, concat_dim="time", commit_options={"publish_as": publish_as})
    assert not Path(repo_path).exists()


def test_the_command_takes_prefixes_whose_names_hold_an_equals_sign(days, tmp_path, repo_path, run):
    (tmp_path / "in").rename(tmp_path / "v=1")
    line = ["build", f"{tmp_path}/v=1/a b", repo_path, "--concat-dim", "time", "-q"]
    assert run(*line, "--publish-as", f"{tmp_path}/v=1={tmp_path}/out")[0] == 0
    session = icevirt.Repository.open(repo_path).readonly_session("main")
    assert all("/out/a%20b/" in url for url in session.all_virtual_chunk_locations())


@pytest.mark.servers
@pytest.mark.parametrize("few", [64, 1], ids=["asked one by one", "listed"])
def test_files_on_disk_are_published_in_a_bucket(few, days, s3, repo_path, tmp_path, monkeypatch):
    from icevirt.api.sources import reader_urls

    monkeypatch.setattr(reader_urls, "_FEW", few)
    for name, value in {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    for day in days:
        obstore.put(s3.store(), f"a b/{Path(day).name}", Path(day).read_bytes())
    how = {"concat_dim": "time", "publish_as": {tmp_path / "in": s3.url}}
    report = icevirt.build(days, repo_path, **grouped(how))
    expected = expected_dataset(days, "time").load()
    shutil.rmtree(tmp_path / "in")
    assert_same_dataset(opened(repo_path), expected)
    obstore.put(s3.store(), "a b/day2.nc", Path(tmp_path / "out/a b/day1.nc").read_bytes())
    found = icevirt.verify(
        repo_path, references=True, authorize_virtual_chunk_access=report.containers
    )
    assert not found.ok
