"""What calls return is a value: a pickle of it holds no storage and no credentials.

And it is described once, for commands, ``print``, notebooks and programs.
"""

import copy
import dataclasses
import inspect
import json
import pickle
import re
from html import unescape

import cloudpickle
import icechunk
import netCDF4
import numpy as np
import pytest

import icevirt
from builds.support import write_day, write_days
from executors import StagedExecutor
from icevirt.api.history import moves as names
from icevirt.archive.reports.build import Opening
from icevirt.cli.output import CommandResult, Output, in_own_notation, show
from icevirt.display.descriptions import DESCRIPTIONS, describe
from icevirt.display.document import document
from icevirt.errors import UnauthorizedError
from icevirt.execution.selection import default_executor
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
OF_METHODS = {  # which the methods of a repository return, as icechunk's do
    *("ManifestFileInfo", "RepoStatus", "SnapshotInfo"),
    *("Update", "GCSummary", "OpsLogTrimSummary", "ChunkStorageStats", "Diff", "FeatureFlag"),
    *("AncestryGraph", "Conflict"),
}


class SecretStorage(LocalStorage):
    """A storage that was opened with a secret, as those of buckets are."""

    def __init__(self, root, **how):
        super().__init__(root, **how)
        self.secret = CANARIES[0]


@pytest.fixture(scope="module")
def access():
    secret = icevirt.s3_credentials(
        access_key_id="k", secret_access_key=CANARIES[1], session_token=CANARIES[2]
    )
    return {"s3://archive/": secret, "s3://open/": "anonymous"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the files and the repository of `values` are."""
    return tmp_path_factory.mktemp("values")


@pytest.fixture(scope="module")
def values(folder, access):
    """Values of each kind that the commands return."""
    with default_executor(StagedExecutor()):
        return make_values(folder, access)


def make_values(folder, access):
    days = folder / "archive"
    write_days(days, 2)
    repo, allowed = SecretStorage(folder / "repo"), [days.as_uri()]
    scans = SecretStorage(folder / "scans")
    found = [icevirt.build(str(days), repo, concat_dim="time", access=access)]
    found += [icevirt.append(write_day(days / "day3.nc", 3), repo, access=access)]
    write_day(days / "day4.nc", 4)
    found += [icevirt.update(repo, dry_run=True, access=access)]
    found += [icevirt.update(repo, access=access)]
    found += [icevirt.scan_files(str(days), scans, concat_dim="time", access=access)]
    found += [found[-1].combine(), icevirt.plan(str(days), catalog=scans, access=access)]
    found += [found[-1].changes(repo), found[-3].bad_files]
    found += [icevirt.catalog_view(scans), icevirt.catalog_view(scans).summary()]
    found += [icevirt.scan_file(days / "day1.nc", access=access)]
    found += [found[-1].array("packed")]
    found += [icevirt.verify(repo, authorize_virtual_chunk_access=allowed)]
    found += [icevirt.status(repo), icevirt.info(repo), icevirt.log(repo), icevirt.ops_log(repo)]
    found += [icevirt.diff(repo, "main~1", "main"), icevirt.source(repo, "packed", {})]
    found += [icevirt.materialize(repo, "mask", authorize_virtual_chunk_access=allowed)]
    found += [icevirt.relocate(repo, days, folder / "moved", dry_run=True)]
    found += [icevirt.maintain(repo, dry_run=True), icevirt.check(repo)]
    found += [icevirt.withdraw(days / "day1.nc", repo, authorize=str(days), dry_run=True)]
    found += [icevirt.exclude(days / "day9.nc", repo), icevirt.undo(repo)]
    found += [icevirt.export(repo, folder / "references.json")]
    found += [icevirt.open(repo).icevirt.explain()]
    found += [names.create_tag(repo.url, "v1"), names.tags(repo.url)]
    old = folder / "old"
    icechunk.Repository.create(icechunk.local_filesystem_storage(str(old)), spec_version=1)
    found += [icevirt.upgrade(old, folder / "new"), icevirt.Repository.open(old).upgrade()]
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
    missing = public - kinds - parts - HANDLES - PLAIN - OF_METHODS
    assert missing == set()


# -- one description -------------------------------------------------------------------------------

NOT_SHOWN = {  # what opens and configures, and numbers
    *("ObjectStorage", "HttpStorage", "MemoryStorage", "LocalStorage", "ObjectStoreConfig"),
    *("Repository", "int", "Dataset", "Dataset | DataTree", "None", "dict[str, Any]"),
}


def test_what_each_public_function_returns_is_among_these(values):
    """By its annotation: a new one has to be among them, or is no report."""
    functions = {name: getattr(icevirt, name) for name in icevirt.__all__}
    returned = {
        str(inspect.signature(each).return_annotation)
        for name, each in functions.items()
        if inspect.isfunction(each) and "credentials" not in name
    }
    kinds = {kind.__name__ for value in values for kind in type(value).__mro__}
    assert returned - NOT_SHOWN - kinds == set()
    missing = {name for name, each in DESCRIPTIONS.items() if each.parts} - kinds
    assert missing == {"Eras", "VirtualBuildReport"}  # the first is part of plans; see below


def test_every_value_is_described_once(values, capsys):
    """``print`` shows what the command prints; its words stand in the picture, and JSON is JSON."""
    for value in values:
        described = describe(value)[1]
        assert described.parts, type(value)
        show(CommandResult(value=value))
        with in_own_notation():
            text = str(value)
            assert capsys.readouterr().out == f"{text}\n"
            picture = re.sub("<[^>]*>", " ", value._repr_html_())
        lines = {word for word in text.split() if not set(word) <= {*"─│├└"}}
        assert lines <= {*unescape(picture).split()}, type(value)
        assert all(unescape(step) in unescape(picture) for step in described.steps(value))
        show(CommandResult(value=value, output=Output.json))
        assert json.loads(capsys.readouterr().out) is not None


PRINTED = {
    "log": icevirt.log,
    "ops-log": icevirt.ops_log,
    "info": icevirt.info,
    "check": icevirt.check,
    "status": lambda repo: icevirt.status(repo, recorded_only=True),
    "verify": lambda repo: icevirt.verify(repo, seed=1),
    "diff": lambda repo: icevirt.diff(repo, "main~1", "main"),
    "source": lambda repo: icevirt.source(repo, "packed", {}),
    "exclude": icevirt.excluded,
    "tag list": names.tags,
}
MORE = {
    "status": ["--recorded-only"],
    "verify": ["--seed", 1],
    "diff": ["main~1", "main"],
    "source": ["packed"],
}


@pytest.mark.parametrize("command", PRINTED)
def test_print_shows_what_the_command_prints(values, folder, run, command):
    repo = (folder / "repo").as_uri()
    _, printed, error = run(*command.split(), repo, *MORE.get(command, []))
    with in_own_notation():
        said = str(PRINTED[command](repo))
    duration = re.compile(r"\d+(\.\d)? (s|seconds?)\b")
    assert duration.sub("T", printed) == duration.sub("T", f"{said}\n"), error


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
    assert "Built file:///" in str(report)
    assert "Built" in report._repr_html_()


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


def test_steps_go_on_where_their_pickles_came_to(values, folder, tmp_path):
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
    with written.open() as found, netCDF4.Dataset(folder / "archive" / "day1.nc") as file:
        np.testing.assert_array_equal(found["mask"].values, file["mask"][:])
