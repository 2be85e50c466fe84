"""What calls return is a value: a pickle of it holds no storage and no credentials."""

import copy
import dataclasses
import json
import pickle

import cloudpickle
import netCDF4
import numpy as np
import pytest

import icevirt
from builds.support import write_day, write_days
from icevirt.archive.reports.build import Opening
from icevirt.display.document import document
from icevirt.errors import UnauthorizedError
from icevirt.storage.local import LocalStorage
from icevirt.virtualizarr.building import VirtualBuildReport

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

CANARIES = ("CANARY-OF-A-STORAGE", "CANARY-OF-A-KEY", "CANARY-OF-A-SESSION")

HANDLES = {  # which workers need, with what opens them; or arguments, which hold what was passed
    *("GcsBearerCredential", "S3StaticCredentials"),
    *("AppendConflictSolver", "BasicConflictSolver"),
}
PLAIN = {  # arguments, and facts that hold nothing but text and numbers
    *("FileChanges", "FileFacts", "VariableFacts", "FileHeldBack"),
    *(
        name
        for name in icevirt.__all__
        if name.endswith(("Config", "Options", "Settings", "Condition", "Container", "Spec"))
    ),
}
OF_OTHER_REPOSITORIES = {  # made of V1 repositories, or by the methods of a repository
    *("UpgradeCopyReport", "UpgradeReport", "ManifestFileInfo", "RepoStatus", "SnapshotInfo"),
    *("Update", "GCSummary", "OpsLogTrimSummary", "ChunkStorageStats", "Diff", "FeatureFlag"),
    *("AncestryGraph", "Conflict"),
}


class SecretStorage(LocalStorage):
    """A storage that was opened with a secret, as those of buckets are."""

    def __init__(self, root, **how):
        super().__init__(root, **how)
        self.secret = CANARIES[0]


@pytest.fixture
def access():
    secret = icevirt.s3_credentials(
        access_key_id="k", secret_access_key=CANARIES[1], session_token=CANARIES[2]
    )
    return {"s3://archive/": secret, "s3://open/": "anonymous"}


@pytest.fixture
def values(tmp_path, access, monkeypatch):
    """Values of each kind that the commands return."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    days = tmp_path / "archive"
    write_days(days, 2)
    repo, allowed = SecretStorage(tmp_path / "repo"), [days.as_uri()]
    scans = SecretStorage(tmp_path / "scans")
    found = [icevirt.build(str(days), repo, concat_dim="time", access=access)]
    found += [icevirt.append(write_day(days / "day3.nc", 3), repo, access=access)]
    write_day(days / "day4.nc", 4)
    found += [icevirt.update(repo, dry_run=True, access=access)]
    found += [icevirt.update(repo, access=access)]
    found += [icevirt.scan_files(str(days), scans, concat_dim="time", access=access)]
    found += [found[-1].combine(), icevirt.plan(str(days), catalog=scans, access=access)]
    found += [icevirt.catalog_view(scans), icevirt.catalog_view(scans).summary()]
    found += [icevirt.scan_file(days / "day1.nc", access=access)]
    found += [icevirt.verify(repo, authorize_virtual_chunk_access=allowed)]
    found += [icevirt.status(repo), icevirt.info(repo), icevirt.log(repo), icevirt.ops_log(repo)]
    found += [icevirt.diff(repo, "main~1", "main"), icevirt.source(repo, "packed", {})]
    found += [icevirt.materialize(repo, "mask", authorize_virtual_chunk_access=allowed)]
    found += [icevirt.relocate(repo, days, tmp_path / "moved", dry_run=True)]
    found += [icevirt.maintain(repo, dry_run=True), icevirt.check(repo)]
    found += [icevirt.withdraw(days / "day1.nc", repo, authorize=str(days), dry_run=True)]
    found += [icevirt.exclude(days / "day9.nc", repo), icevirt.undo(repo)]
    found += [icevirt.export(repo, tmp_path / "references.json")]
    return found


FORMS = {
    "pickle": pickle.dumps,
    "cloudpickle": cloudpickle.dumps,
    "a deep copy": lambda value: pickle.dumps(copy.deepcopy(value)),
    "as JSON": lambda value: json.dumps(document(value), default=repr).encode(),
    "as text": lambda value: repr(value).encode(),
}


def test_no_value_takes_a_secret_with_it(values):
    for value in values:
        for name, form in FORMS.items():
            raw = form(value)
            assert [each for each in CANARIES if each.encode() in raw] == [], (name, value)
        if dataclasses.is_dataclass(value):
            raw = repr(dataclasses.asdict(value)).encode() if not hasattr(value, "asked") else b""
            assert not any(each.encode() in raw for each in CANARIES), value


def test_each_kind_of_value_is_looked_at(values):
    """A new one has to be among them."""
    kinds = {kind.__name__ for value in values for kind in type(value).__mro__}
    parts = {
        type(each).__name__
        for value in values
        if dataclasses.is_dataclass(value)
        for each in (getattr(value, field.name) for field in dataclasses.fields(value))
    }
    public = {
        name
        for name in icevirt.__all__
        if isinstance(getattr(icevirt, name), type)
        and dataclasses.is_dataclass(getattr(icevirt, name))
    }
    missing = public - kinds - parts - HANDLES - PLAIN - OF_OTHER_REPOSITORIES
    assert missing == set()


def test_a_report_of_virtual_datasets_takes_none_along(tmp_path, access):
    opening = Opening(SecretStorage(tmp_path), {"s3://archive/": access["s3://archive/"]})
    facts = {"arrays": 1, "references": 1, "files": 1, "files_unverifiable": 0}
    report = VirtualBuildReport(
        repo=tmp_path.as_uri(),
        branch="main",
        snapshot_id="x",
        group="/",
        bytes_referenced=1,
        containers=("s3://archive/",),
        opening=opening,
        **facts,
    )
    for form in FORMS.values():
        assert not any(each.encode() in form(report) for each in CANARIES)
    assert pickle.loads(pickle.dumps(report)).opening.prefixes == ("s3://archive/",)


def test_a_report_opens_where_its_pickle_came_to(values):
    """By its URL and the environment there; the one that was returned still holds what opened it."""
    report = values[0]
    assert isinstance(report.opening.storage, SecretStorage)
    again = pickle.loads(pickle.dumps(report))
    assert again == report
    assert again.opening.storage is None
    with report.open() as here, again.open() as there:
        np.testing.assert_array_equal(here["packed"], there["packed"])
    with pytest.raises(UnauthorizedError):
        again.open(authorize_virtual_chunk_access=[]).load()


def test_steps_go_on_where_their_pickles_came_to(values, tmp_path):
    scanned, plan = (
        next(each for each in values if type(each).__name__ == name)
        for name in ("ScannedArchive", "Plan")
    )
    again = pickle.loads(pickle.dumps(scanned))
    assert again.asked.access == {"s3://open/": "anonymous"}
    assert again.asked.catalog == scanned.asked.catalog.url
    assert again.combine().write(tmp_path / "one").files_reused == scanned.files
    written = pickle.loads(pickle.dumps(plan)).write(tmp_path / "other")
    assert written.files_scanned == 0
    with written.open() as found, netCDF4.Dataset(tmp_path / "archive" / "day1.nc") as file:
        np.testing.assert_array_equal(found["mask"].values, file["mask"][:])
