"""Values as a build would make them, and a file whose author means harm."""

import json

import numpy as np

from icevirt.archive.eras import Absence, Change, Choice, Era, Eras, Run
from icevirt.archive.facts import FileColumns
from icevirt.archive.plan import ArrayMode, BuildPlan, PlannedArray
from icevirt.archive.reports.build import (
    ArraySummary,
    BadFile,
    BuildReport,
    GroupSummary,
    Readers,
    ReferenceCounts,
    RepositorySummary,
)
from icevirt.archive.scanned import Finding, ScannedArray, ScannedFile
from icevirt.archive.schema import ArraySchema, ScannedGroup
from icevirt.archive.sources import SourceFile
from icevirt.ids import ObjectId8
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
from icevirt.model.strings import Strings

HOSTILE = "[red]\x1b[2J\x1b]0;pwned\x07\r\n[/red]\u202e[link=file:///etc/passwd]"

ZARR_JSON = json.dumps(
    {
        "shape": [3000, 10],
        "data_type": "float32",
        "chunk_grid": {"name": "regular"},
        "codecs": [{"name": "bytes"}, {"name": "numcodecs.zlib"}],
    }
).encode()


def array(path="/tos", **changed):
    facts = {
        "path": path,
        "data_type": "float32",
        "shape": (3, 330, 360),
        "chunk_shape": (1, 330, 360),
        "dimension_names": ("time_counter", "y", None),
        "references": ReferenceCounts(virtual=3, bytes_referenced=1_425_600),
        "manifests": 1,
        "readers": Readers(gdal_lacks=("the codec numcodecs.zlib",)),
    }
    return ArraySummary(**facts | changed)


def report(**changed):
    facts = {
        "repo": "file:///data/repo",
        "branch": "main",
        "group": "/",
        "snapshot_id": "1CECHNKREP0F1RSTCMT0",
        "build_id": "b",
        "already_built": False,
        "files_scanned": 3,
        "files_reused": 0,
        "bad_files": (),
        "arrays": (array(), array("/t", shape=(), chunk_shape=(), dimension_names=())),
        "manifests": 2,
        "manifest_bytes": 900,
        "containers": ("file:///data/",),
        "findings": (),
        "seconds": {"list": 0.01, "scan": 61.4},
    }
    return BuildReport(**facts | changed)


def summary(**changed):
    facts = {
        "repo": "file:///data/repo",
        "spec_version": 2,
        "branches": {"main": "A"},
        "tags": {},
        "snapshot_id": "A",
        "message": "build",
        "written_at": "2026-01-01T00:00:00Z",
        "snapshots": 2,
        "containers": ("file:///data/",),
        "groups": (
            GroupSummary(path="/", attributes={"title": "ocean", "n": 1}),
            GroupSummary(path="/a", attributes={}),
            GroupSummary(path="/a/b", attributes={f"k{i}": i for i in range(12)}),
        ),
        "arrays": (array(), array("/a/b/sst"), array("/nogroup/deep/x")),
    }
    return RepositorySummary(**facts | changed)


def scanned(name="/tos", attributes=None):
    table = ChunkTable.virtual(
        index=np.zeros((1, 1), np.uint32),
        offset=np.array([100], np.uint64),
        length=np.array([40], np.uint64),
        locations=Locations.one("file:///data/a.nc"),
    )
    found = ScannedArray(
        path=name,
        dimension_names=("x",),
        shape=(10,),
        chunk_shape=(10,),
        data_type={"name": "numpy.datetime64", "configuration": {"unit": "s"}},
        codecs=({"name": "bytes"},),
        fill_value=0,
        attributes=Attributes.of(attributes or {}),
        references=table,
    )
    return ScannedFile(
        source=SourceFile(url="file:///data/a.nc", size=140),
        scanner="hdf5",
        scanner_version="1",
        groups=(ScannedGroup(path="/"),),
        arrays=(found,),
        findings=(Finding(path=name, code="c", message=HOSTILE),),
    )


def plan(path="/tos", note="ordered by time"):
    files = FileColumns(
        parts=("p",),
        part=np.zeros(3, np.int32),
        row=np.arange(3, dtype=np.int32),
        url=Strings.of(["a", "b", "c"]),
        etag=Strings.of(["", "", ""]),
        size=np.ones(3, np.int64),
        last_modified=np.ones(3, np.int64),
    )
    planned = PlannedArray(
        path=path,
        source_path=path,
        node_id=ObjectId8(bytes(8)),
        mode=ArrayMode.concat,
        axes=(0,),
        shape=(3000, 10),
        chunk_shape=(1, 10),
        zarr_json=ZARR_JSON,
        schema=ArraySchema(
            dimension_names=("time", "x"),
            chunk_shape=(1, 10),
            data_type="float32",
            codecs=({"name": "bytes"},),
            fill_value=0,
        ),
        files=np.arange(3),
        starts=np.array([[0], [1000], [2000]]),
        lengths=np.array([[1000], [1000], [1000]]),
        whole=np.zeros(3, np.bool_),
        whole_schema=None,
        window=(1024, 1),
        expected=1,
        references=ReferenceCounts(virtual=3000, bytes_referenced=120_000),
    )
    return BuildPlan(
        build_id="b1",
        group="/",
        concat_dim=("time",),
        files=files,
        groups={"/": b"{}"},
        arrays=(planned,),
        containers=(VirtualChunkContainer("file:///data/", local_filesystem_store("/data")),),
        split_rules=(),
        notes=(note,),
    )


def eras(text="a.nc"):
    """Return two eras, a run of the second within the first, and a variable that is absent."""
    first = {"first": text, "last": "b.nc", "first_label": "2000-01-01", "last_label": text}
    changed = Change(variable=f"/{text}", what=f"{text} added; scale_factor 0.01 → 0.02")
    return Eras(
        dimension=text,
        count=2,
        eras=(
            Era(number=0, files=1_000_000, runs=2, since=None, changes=(), **first),
            Era(number=1, files=1, runs=1, since=0, changes=(changed,), **first),
        ),
        apart=(Run(era=1, files=1, inside=0, **first),),
        more_apart=3,
        absences=(Absence(variable=f"/{text}", era=0, places=7, examples=(text,)),),
        choices=(
            Choice(option='on_mismatch="eras"', does=f"2 groups, {text}", groups=2),
            Choice(option="natively", does="stored", bytes_stored=2048, max_error=0.005),
        ),
        ordered=True,
    )


def hostile():
    """Return a value of each kind with hostile text in every place that a file's author fills."""
    refused = BadFile(url=HOSTILE, code="scan", error=HOSTILE)
    named = array("/" + HOSTILE, dimension_names=(HOSTILE, None, None), data_type=HOSTILE)
    return {
        "a report": report(
            repo=HOSTILE,
            arrays=(named,),
            bad_files=(refused,),
            findings=(HOSTILE,),
            containers=(HOSTILE,),
            group=HOSTILE,
        ),
        "a summary": summary(
            message=HOSTILE,
            tags={HOSTILE: "A"},
            groups=(GroupSummary(path="/" + HOSTILE, attributes={HOSTILE: [HOSTILE]}),),
            arrays=(named,),
        ),
        "eras": eras(HOSTILE),
        "a plan": plan("/" + HOSTILE, HOSTILE),
        "a scanned file": scanned("/" + HOSTILE, {HOSTILE: HOSTILE}),
    }
