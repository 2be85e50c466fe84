"""Sources, catalog and repository in one bucket: the same dataset as on disk, whatever the store does."""

import time
from dataclasses import replace
from pathlib import Path

import icechunk
import netCDF4
import numpy as np
import obstore
import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, expected_dataset, write_days
from grouping import grouped
from icevirt.api.dataset import writing
from icevirt.connect import retry
from icevirt.errors import ScanError, StorageError
from icevirt.execution.local_executors import ProcessExecutor
from icevirt.execution.selection import default_executor
from icevirt.planning.schedule.write_tasks import Route
from icevirt.storage import object_store
from long_forms import cases
from servers import azurite
from servers.faults import ANSWER_LOST, DROPPED, refused, truncated
from servers.haste import hasten

pytestmark = pytest.mark.servers
DAYS = 5


def below(place, name):
    """Return a part of a place."""
    return replace(place, prefix=f"{place.prefix}/{name}")


def uploaded(place, files):
    for path in files:
        obstore.put(place.store(), f"data/{Path(path).name}", Path(path).read_bytes())


def access_to(place):
    """Return how the files are reached: what a build is told, and what readers are."""
    match place.kind:
        case "s3":
            store = icevirt.s3_store(
                region="us-east-1",
                endpoint_url=place.endpoint,
                allow_http=True,
                force_path_style=True,
            )
            credentials = icevirt.s3_credentials(access_key_id="test", secret_access_key="test")
        case "azure":
            store = icevirt.azure_store(
                account=azurite.ACCOUNT,
                config={"azure_storage_endpoint": place.endpoint, "azure_allow_http": "true"},
            )
            credentials = icevirt.azure_credentials(access_key=azurite.KEY)
        case _:
            store = icevirt.gcs_store({"allow_http": "true"})
            key = place.options["service_account_key"]
            credentials = icevirt.gcs_credentials(service_account_key=key)
    return {f"{place.url}/": (store, credentials)}, credentials


def manifests(storage):
    return {info.path: storage.get(info.path) for info in storage.list("manifests")}


WAYS = [
    ("s3", Route.direct),
    ("s3", Route.shuffle),
    ("azure", Route.direct),
    ("gcs", Route.shuffle),
]


@pytest.mark.spark
# the bucket of a shuffle is one of S3 or GCS
@pytest.mark.parametrize(
    ("kind", "route"), cases(WAYS, *(way for way in WAYS if way != ("s3", Route.shuffle))), ids=str
)
def test_all_of_a_build_lies_in_a_bucket(request, spark, tmp_path, monkeypatch, kind, route):
    """Scan, plan, build, rebuild with a changed and a new file, verify; the same as on disk."""
    place, decided = request.getfixturevalue(kind), writing.route_of
    monkeypatch.setattr(writing, "route_of", lambda plan: replace(decided(plan), kind=route))
    files = write_days(tmp_path / "archive", DAYS)
    uploaded(place, files[:-1])
    access, credentials = access_to(place)
    sources, repo = f"{place.url}/data/", below(place, "repo").icevirt()
    how = {"concat_dim": "time", "executor": spark, "access": access}
    catalog = below(place, "catalog").icevirt() if route is Route.direct else None

    assert len(icevirt.plan(sources, catalog=catalog, **grouped(how)).files) == DAYS - 1
    first = icevirt.build(sources, repo, catalog=catalog, **grouped(how))
    assert first.files_scanned == (0 if catalog else DAYS - 1)
    assert icevirt.build(sources, repo, catalog=catalog, **grouped(how)).already_built
    on_disk = tmp_path / "repo"
    icevirt.build(sources, on_disk, **grouped(how))
    assert manifests(repo) == manifests(icevirt.local_filesystem_storage(str(on_disk)))
    assert not list(repo.list("icevirt/builds"))

    with netCDF4.Dataset(files[0], "a") as changed:
        changed["packed"].set_auto_maskandscale(False)
        changed["packed"][1] = 77
    uploaded(place, [files[0], files[-1]])
    second = icevirt.build(sources, repo, catalog=catalog, mode="w", **grouped(how))
    assert second.files_scanned == (2 if catalog else DAYS)
    authorize = dict.fromkeys(second.containers, credentials)
    with xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=authorize) as found:
        assert_same_dataset(found, expected_dataset(files, "time"))
        packed = found["packed"].values
    assert icevirt.verify(
        repo, references=True, full=True, authorize_virtual_chunk_access=authorize
    ).ok
    if place.kind == "s3":
        theirs = icechunk.Repository.open(
            below(place, "repo").official(),
            authorize_virtual_chunk_access=icechunk.containers_credentials(
                {
                    prefix: icechunk.s3_credentials(access_key_id="test", secret_access_key="test")
                    for prefix, _ in second.containers
                }
            ),
        )
        store = theirs.readonly_session("main").store
        with xr.open_zarr(store, consolidated=False, chunks=None) as read:
            np.testing.assert_allclose(read["packed"].values, packed, rtol=1e-6)


@pytest.mark.parametrize("kind", ["s3", "azure", "gcs"])
def test_few_files_of_a_bucket_are_built_by_forked_processes(request, tmp_path, kind):
    """No thread or connection of who forks is needed by what is forked."""
    place = request.getfixturevalue(kind)
    files = write_days(tmp_path / "archive", DAYS)
    uploaded(place, files)
    access, credentials = access_to(place)
    repo = below(place, "repo").icevirt()
    how = {"concat_dim": "time", "access": access, "commit_options": {"verify": 9}}
    with ProcessExecutor(2) as processes, default_executor(processes):
        report = icevirt.build(f"{place.url}/data/", repo, **how)
    authorize = dict.fromkeys(report.containers, credentials)
    with xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=authorize) as found:
        assert_same_dataset(found, expected_dataset(files, "time"))


# -- stores that fail ------------------------------------------------------------------------------


@pytest.fixture
def bucket(s3_proxy, monkeypatch, tmp_path, in_process):
    """Days in a bucket behind a proxy; whoever waits does so shortly, but as often as usual."""
    hasten(monkeypatch, max_retries=1)
    monkeypatch.setattr(object_store, "_pause", lambda _: None)
    for name, value in {
        "AWS_ENDPOINT_URL": s3_proxy.place.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    uploaded(s3_proxy.direct, write_days(tmp_path / "archive", DAYS))
    retry.SERVERS.clear()
    yield s3_proxy
    retry.SERVERS.clear()


def build(bucket, name="repo"):
    repo = f"{bucket.place.url}/{name}"
    return icevirt.build(f"{bucket.place.url}/data/*.nc", repo, concat_dim="time")


STAGES = {
    "listing": ("GET", r"list-type=2.*data"),
    "scan": ("GET", r"/data/day\d\.nc"),
    "catalog": ("PUT", r"/catalog/(files|arrays|refs)/"),
    "plan": ("GET", r"/catalog/(files|arrays)/"),
    "references": ("GET", r"/catalog/refs/"),
    "manifests": ("PUT", r"/manifests/"),
    "record": ("PUT", r"/items/"),
    "commit": ("PUT", r"/repo/repo$"),
    "end": ("POST", r"\?delete"),
}


ALL = tuple(STAGES)


@pytest.mark.parametrize("stages", cases([ALL, *((stage,) for stage in STAGES)], ALL), ids=len)
def test_a_storm_costs_a_build_time_only(bucket, stages, tmp_path):
    kinds = (
        refused(503, "SlowDown"),
        refused(429, "SlowDown"),
        DROPPED,
        refused(500),
        ANSWER_LOST,
        truncated(2),
    )
    rules = {stage: [] for stage in stages}
    for stage in stages:
        method, target = STAGES[stage]
        for number, fault in enumerate(kinds * 4):  # bursts longer than the library gets over
            rule = bucket.rules.add(fault, method=method, target=target, nth=number + 1)
            rules[stage].append(rule)
        if stage == "listing":  # once more at the recheck
            bucket.rules.add(refused(503), method=method, target=target, nth=30, times=6)
    report = build(bucket)
    for stage in stages:
        assert sum(rule.seen >= rule.nth for rule in rules[stage]) >= 6, stage
    assert report.files_scanned == DAYS
    icevirt.build(f"{bucket.place.url}/data/*.nc", tmp_path / "whole", concat_dim="time")
    repo = below(bucket.direct, "repo").icevirt()
    assert manifests(repo) == manifests(icevirt.local_filesystem_storage(str(tmp_path / "whole")))
    assert not list(repo.list("icevirt/builds"))
    assert icevirt.check(repo).problems == ()


@pytest.mark.parametrize("stage", cases(ALL[:-1], "scan", "references", "commit"))
def test_a_store_that_stays_away_is_named_and_the_next_run_goes_on(bucket, stage, monkeypatch):
    monkeypatch.setattr(retry, "TOTAL", 0.3)
    method, target = STAGES[stage]
    nth = 3 if stage in ("scan", "catalog") else 1
    bucket.rules.add(refused(503, "SlowDown"), method=method, target=target, nth=nth, times=1e9)
    begin = time.monotonic()
    with pytest.raises((StorageError, ScanError), match="503") as caught:
        build(bucket)
    assert time.monotonic() - begin < 60
    assert bucket.place.url in str(caught.value)
    assert "fewer requests" in str(caught.value)
    assert not icevirt.Repository.exists(below(bucket.direct, "repo").icevirt())

    bucket.rules.clear()
    retry.SERVERS.clear()  # as in another process
    report = build(bucket)
    kept = {"listing": 0, "scan": 2, "catalog": 0}
    assert report.files_reused == kept.get(stage, DAYS)
    if stage == "commit":
        assert not [
            r for r in bucket.rules.requests if r.method == "PUT" and "/manifests/" in r.path
        ]
    assert not list(below(bucket.direct, "repo").icevirt().list("icevirt/builds"))


@pytest.mark.usefixtures("part_of_each_file")
def test_a_committed_build_succeeds_though_its_work_cannot_be_removed(bucket, monkeypatch):
    monkeypatch.setattr(retry, "TOTAL", 0.3)
    method, target = STAGES["end"]
    # each part removes its note first
    bucket.rules.add(refused(503), method=method, target=target, nth=DAYS + 1, times=1e9)
    report = build(bucket)
    assert any("could not be removed" in text for text in report.findings)
    bucket.rules.clear()
    retry.SERVERS.clear()
    assert build(bucket).already_built
    assert not list(below(bucket.direct, "repo").icevirt().list("icevirt/builds"))
