"""Numbers that are counted anew name the elements that the numbers of the files name, or none."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import icevirt
from archives.random_proposals import change_call
from icevirt.errors import CombineError

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

REBASED = {"rebase_indices": True, "index_of": {"nn": "node"}, "on_mismatch": "native"}


@dataclass(kw_only=True)
class File:
    """A file of some nodes, and rows of numbers of nodes; None stands for no node."""

    nodes: int
    rows: list[list[int | None]]
    dtype: str = "i4"
    first: int | None = None  # start_index
    none: float = -1  # as the file stores no node
    attrs: dict = field(default_factory=dict)

    def write(self, path: Path, at: int) -> None:
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("node", self.nodes)
            file.createDimension("face", len(self.rows))
            file.createDimension("c", 3)
            file.createVariable("x", "f8", ("node",))[:] = at + np.arange(self.nodes)
            attrs = dict(self.attrs)
            made = file.createVariable(
                "nn", self.dtype, ("face", "c"), fill_value=attrs.pop("_FillValue", None)
            )
            made.set_auto_maskandscale(False)
            first = self.first or 0
            made[:] = np.array(
                [[self.none if each is None else first + each for each in row] for row in self.rows]
            ).astype(self.dtype)
            if self.first is not None:
                made.start_index = np.int32(self.first)
            made.setncatts(attrs)


def build(folder: Path, files: list[File], **options) -> xr.Dataset:
    paths, at = [], 0
    for number, file in enumerate(files):
        paths.append(str(folder / f"{number}.nc"))
        file.write(Path(paths[-1]), at)
        at += file.nodes
    icevirt.build(
        paths, folder / "repo", concat_dim=["node", "face"], combine_options=REBASED | options
    )
    report = icevirt.verify(
        folder / "repo", full=True, authorize_virtual_chunk_access=[f"{folder.as_uri()}/"]
    )
    assert report.ok, report
    return xr.open_dataset(
        folder / "repo", engine="icevirt", authorize_virtual_chunk_access=[f"{folder.as_uri()}/"]
    )


def nodes_of(shown: xr.Dataset) -> list[list[float | None]]:
    """Return the x of each node that is named, as a reader of UGRID finds it."""
    first = int(shown["nn"].attrs.get("start_index", 0))
    x = shown["x"].values

    def node(number) -> float | None:
        at = float(number) - first
        return float(x[int(at)]) if 0 <= at < len(x) else None

    return [[node(each) for each in row] for row in shown["nn"].values]


def expected(files: list[File]) -> list[list[float | None]]:
    found, at = [], 0
    for file in files:
        found += [[None if each is None else float(at + each) for each in r] for r in file.rows]
        at += file.nodes
    return found


ROWS = [[0, 1, None]], [[1, 2, 0]]
FILES = {
    "no node is 0 where numbers begin at 1": [
        File(nodes=3, rows=[[0, 1, 2]], first=0),
        File(nodes=3, rows=[[0, 1, None]], first=1, none=0),
    ],
    "the greatest number, which a wider type reaches": [
        File(nodes=200, rows=[[0, 199, None]], dtype="u1", none=255),
        File(nodes=100, rows=[[0, 99, None]], dtype="u1", none=255),
    ],
    "the greatest number is a node": [
        File(nodes=128, rows=[[0, 127, 2]], dtype="i1"),
        File(nodes=128, rows=[[0, 127, None]], dtype="i1"),
    ],
    "each file has a fill value of its own": [
        File(nodes=3, rows=ROWS[0], none=-9, attrs={"_FillValue": -9}),
        File(nodes=3, rows=[[0, None, 2]], none=9999, attrs={"_FillValue": 9999}),
    ],
    "one file has none": [
        File(nodes=3, rows=ROWS[0], none=-9, attrs={"_FillValue": -9}),
        File(nodes=3, rows=ROWS[1]),
    ],
    "two numbers mean no node": [
        File(nodes=100, rows=ROWS[0], dtype="i1", none=-2,
             attrs={"_FillValue": -1, "missing_value": np.int8(-2)}),
        File(nodes=100, rows=[[0, 99, None]], dtype="i1", none=-1,
             attrs={"_FillValue": -1, "missing_value": np.int8(-2)}),
    ],
    "a missing value between the numbers": [
        File(nodes=3, rows=ROWS[0], attrs={"missing_value": np.float32(-0.5)}),
        File(nodes=3, rows=ROWS[1], attrs={"missing_value": np.float32(-0.5)}),
    ],
    "a missing value that the type does not hold": [
        File(nodes=3, rows=ROWS[0], attrs={"missing_value": np.float32(9.96921e36)}),
        File(nodes=3, rows=ROWS[1], attrs={"missing_value": np.float32(9.96921e36)}),
    ],
    "unsigned, of 8 bytes, with a fill value in the way": [
        File(nodes=3, rows=ROWS[0], dtype="u8", none=5, attrs={"_FillValue": 5}),
        File(nodes=3, rows=ROWS[1], dtype="u8", none=5, attrs={"_FillValue": 5}),
    ],
    "numbers begin below 0": [
        File(nodes=3, rows=[[0, 1, 2]], dtype="i8", first=-1),
        File(nodes=3, rows=[[0, None, 2]], dtype="i8", first=-1, none=-7),
    ],
}  # fmt: skip


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_numbers_name_the_same_nodes(files, tmp_path):
    assert nodes_of(build(tmp_path, files)) == expected(files)


@pytest.mark.parametrize(("dtype", "none", "size"), [("i4", 5, 3), ("u1", 255, 100)])
def test_what_a_file_lacks_is_no_node(dtype, none, size, tmp_path):
    """Where a fill value of the files is the number of a node in the dataset."""
    paths = [str(tmp_path / f"{number}.nc") for number in range(3)]
    rows = [[0, 1, None]] * size
    for number, path in enumerate(paths):
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("node", size)
            file.createDimension("c", 3)
            file.createVariable("x", "f8", ("node",))[:] = number * size + np.arange(size)
            if number != 1:
                made = file.createVariable("nn", dtype, ("node", "c"), fill_value=none)
                made.set_auto_maskandscale(False)
                made[:] = [[none if each is None else each for each in row] for row in rows]
    icevirt.build(
        paths,
        tmp_path / "repo",
        concat_dim="node",
        combine_options=REBASED | {"missing": "reserve"},
    )
    shown = xr.open_dataset(
        tmp_path / "repo",
        engine="icevirt",
        authorize_virtual_chunk_access=[f"{tmp_path.as_uri()}/"],
    )
    last = float(2 * size)
    there = [[0.0, 1.0, None]] * size, [[last, last + 1, None]] * size
    assert nodes_of(shown) == [*there[0], *[[None] * 3] * size, *there[1]]


def test_numbers_that_an_attribute_makes_unsigned_are_refused(tmp_path):
    files = [File(nodes=200, rows=ROWS[0], dtype="i1", attrs={"_Unsigned": "true"})] * 2
    with pytest.raises(CombineError, match="_Unsigned says that they are something else"):
        build(tmp_path, files)


def test_numbers_are_not_stored_as_floats(tmp_path):
    files = [File(nodes=3, rows=ROWS[0])] * 2
    with pytest.raises(CombineError, match="are stored as such"):
        build(tmp_path, files, float_variables=["nn"])


@pytest.mark.parametrize("options", [{}, REBASED, {"index_of": {"nn": "node"}}])
def test_floats_are_not_proposed_for_numbers_that_a_file_lacks(options, tmp_path):
    paths = [str(tmp_path / f"{number}.nc") for number in range(3)]
    for number, path in enumerate(paths):
        File(nodes=3, rows=ROWS[0], first=0).write(Path(path), 3 * number)
        if number == 1:
            with netCDF4.Dataset(path, "a") as file:
                file.createVariable("y", "f8", ("face",))[:] = 1
                file.renameVariable("nn", "mm")
    call = {
        "concat_dim": ["node", "face"],
        "combine_options": options | {"missing": "reserve"},
        "scan_options": {"drop_variables": ["mm"]},
    }
    with pytest.raises(CombineError, match="/nn ") as caught:
        icevirt.plan(paths, **call)
    assert caught.value.fixes
    assert not any("float_variables" in fix.python for fix in caught.value.fixes)
    for fix in caught.value.fixes:
        icevirt.plan(paths, **change_call(call, fix))


@st.composite
def archives(draw):
    files = []
    for _ in range(draw(st.integers(2, 3))):
        dtype = draw(st.sampled_from(["i1", "u1", "i2", "u2", "i4"]))
        limits = np.iinfo(dtype)
        first = draw(st.sampled_from([None, 0, 1]))
        nodes = draw(st.integers(1, min(limits.max - (first or 0), 300)))
        below = [n for n in (-1, -9) if limits.min <= n] if limits.min else []
        declared = draw(st.booleans())
        beyond = (first or 0) + nodes
        choices = [*below, *([0] if first else []), *([limits.max] if beyond <= limits.max else [])]
        if declared and beyond <= limits.max:
            choices.append(beyond)
        none = draw(st.sampled_from(choices)) if choices else None
        element = st.integers(0, nodes - 1)
        each = element if none is None else st.none() | element
        rows = draw(st.lists(st.lists(each, min_size=3, max_size=3), min_size=1, max_size=3))
        attrs = {"_FillValue": none} if declared and none is not None else {}
        files.append(
            File(nodes=nodes, rows=rows, dtype=dtype, first=first,
                 none=-1 if none is None else none, attrs=attrs)
        )  # fmt: skip
    return files


@settings(max_examples=15, deadline=None)
@given(archives())
def test_numbers_of_random_files_name_the_same_nodes(files):
    with tempfile.TemporaryDirectory() as folder:
        try:
            shown = build(Path(folder), files)
        except CombineError:  # of types that do not go together
            return
        assert nodes_of(shown) == expected(files)
