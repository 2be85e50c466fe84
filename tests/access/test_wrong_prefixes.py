"""A prefix that authorizes nothing is refused when it is given, and errors of values are short."""

import subprocess
import sys
import traceback

import pytest
import xarray as xr

import icevirt
from access.virtual import make
from icevirt.api import materialize as materialize_module
from icevirt.connect.options import s3_store
from icevirt.errors import UnauthorizedError
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig
from icevirt.objects.authorize import GrantedAccess
from icevirt.repo.authorization import authorize, refuse_unmatched

ARCHIVE, OTHER = "s3://archive/era5/", "https://host/data/"
CONTAINERS = {
    prefix: VirtualChunkContainer(prefix, s3_store()) for prefix in (ARCHIVE, "s3://mine/x/")
}
TYPING_ERRORS = {
    "a letter less": "s3://archive/era/",
    "a letter more": "s3://archives/era5/",
    "two letters": "s3://archive/ear5/",
    "a folder below": "s3://archive/era5/2024/",
    "another case": "s3://archive/ERA5/",
    "of something else": "s3://nothing/like/it/",
    "of another kind": OTHER,
}
FINE = {
    "exactly": [ARCHIVE],
    "above it": ["s3://archive/"],
    "both": [ARCHIVE, "s3://mine/x/"],
    "one of a list of trusted places": [ARCHIVE, OTHER, "s3://others/"],
    "all, and a typing error that changes nothing": [ARCHIVE, "s3://mine/x/", "s3://archive/era/"],
    "nothing": [],
}


@pytest.mark.parametrize("prefix", TYPING_ERRORS.values(), ids=TYPING_ERRORS)
def test_a_prefix_of_no_container_is_refused_with_the_nearest_one(prefix):
    with pytest.raises(UnauthorizedError, match="no virtual chunk container") as caught:
        refuse_unmatched(authorize([prefix]), CONTAINERS)
    assert caught.value.facts["prefix"] == prefix
    if prefix != OTHER and "nothing" not in prefix:
        assert ARCHIVE in caught.value.fixes[0].python


def test_a_typing_error_beside_a_right_one_is_refused_too():
    with pytest.raises(UnauthorizedError, match="no virtual chunk container"):
        refuse_unmatched(authorize(["s3://mine/x/", "s3://archive/era/"]), CONTAINERS)


@pytest.mark.parametrize("prefixes", FINE.values(), ids=FINE)
def test_what_authorizes_something_is_taken(prefixes):
    refuse_unmatched(authorize(prefixes) if prefixes else {}, CONTAINERS)


def test_without_containers_there_is_nothing_to_refuse():
    refuse_unmatched({ARCHIVE: GrantedAccess()}, RepositoryConfig().virtual_chunk_containers)


def test_each_way_to_open_refuses_it(tmp_path, in_process, run):
    virtual = make(tmp_path)
    wrong = virtual.prefix.replace("archive", "archiv")
    how = {"authorize_virtual_chunk_access": [wrong]}
    for call in (
        lambda: icevirt.Repository.open(virtual.root, **how),
        lambda: xr.open_dataset(virtual.root, engine="icevirt", **how),
        lambda: icevirt.open(virtual.root, **how),
        lambda: icevirt.verify(virtual.root, **how),
        lambda: icevirt.materialize(virtual.root, "v", **how),
    ):
        with pytest.raises(UnauthorizedError, match="no virtual chunk container") as caught:
            call()
        assert (
            caught.value.fixes[0].python == f'authorize_virtual_chunk_access=["{virtual.prefix}"]'
        )
    status, _, error = run("materialize", virtual.root, "v", "--authorize", wrong)
    assert (status, "no virtual chunk container" in error) == (1, True)


def test_materialize_refuses_before_it_starts_what_runs_tasks(tmp_path, monkeypatch):
    virtual = make(tmp_path)
    monkeypatch.setattr(materialize_module, "executor_of", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(UnauthorizedError):
        icevirt.materialize(virtual.root, "v", executor="spark")


VALUE = """
import sys, xarray as xr
xr.open_dataset(sys.argv[1], engine="icevirt")["v"].values
"""


def test_the_error_of_a_value_is_shown_once_without_what_awaited_it(tmp_path):
    """It has frames of the caller and of xarray, and none of zarr and its event loop."""
    virtual = make(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", VALUE, virtual.root], capture_output=True, text=True, check=False
    )
    assert ran.stderr.count("UnauthorizedError") == 1
    assert "During handling" not in ran.stderr
    assert len(ran.stderr.splitlines()) < 40, ran.stderr
    assert "/zarr/" not in ran.stderr


def test_a_cause_of_another_library_stays(tmp_path):
    virtual = make(tmp_path)
    virtual.source.unlink()
    dataset = xr.open_dataset(
        virtual.root, engine="icevirt", authorize_virtual_chunk_access=[virtual.prefix]
    )
    with pytest.raises(icevirt.errors.ObjectNotFoundError) as caught:
        dataset["v"].load()
    assert len(traceback.format_exception(caught.value)) < 30
