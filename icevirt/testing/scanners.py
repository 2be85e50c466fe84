"""Test that a scanner keeps the contract, as a pytest class to subclass.

Give the scanner and its sample files as fixtures, and pytest runs the rest::

    from icevirt.testing.scanners import ScannerConformance

    class TestMyScanner(ScannerConformance):
        @pytest.fixture
        def scanner(self):
            return MyScanner()

        @pytest.fixture(params=["small.xyz", "large.xyz"])
        def sample(self, request):
            path = DATA / request.param
            return Sample(path=path, expected=lambda: read_with_the_reference_library(path))

Files are damaged and scanned in this process: a scanner over a library that damaged files can crash
takes the test run with it, and wants `damaged_copies` small.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import shutil
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from icevirt.archive.scanned import Finding, ScannedArray, ScannedFile, Severity
from icevirt.errors import IcevirtError, ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import restore
from icevirt.model.chunks import ChunkType
from icevirt.objects.opening import open_source
from icevirt.scan.contract import Scanner, ScannerOptions
from icevirt.scan.registry import HEAD
from icevirt.scan.values import read
from icevirt.testing.samples import Sample, WatchedSource, damage, fetch, same_value, same_values

_FOREIGN = (b"", bytes(HEAD), b"<!DOCTYPE html><html></html>", b"PK\x03\x04", b"plain text\n")


class ScannerConformance:
    """The suite. Every test runs for each sample."""

    chosen_by_content = True
    """Whether the scanner recognises its files; False for one that is only used where named."""

    damaged_copies = 40
    """Of each kind of damage."""

    @pytest.fixture
    def scanner(self) -> Scanner:
        """Return the scanner. To be overridden."""
        raise NotImplementedError

    @pytest.fixture
    def sample(self) -> Sample:
        """Return a sample file. To be overridden, and best given params."""
        raise NotImplementedError

    @pytest.fixture
    def scanned(self, scanner: Scanner, sample: Sample) -> ScannedFile:
        """Return what the scanner makes of the sample."""
        return sample.scan(scanner)

    # -- the scanner ---------------------------------------------------------------------------

    def test_it_is_a_scanner_that_workers_can_be_sent(self, scanner: Scanner) -> None:
        """It has name and version, and pickles."""
        assert isinstance(scanner, Scanner)
        assert scanner.name
        assert scanner.version
        again = pickle.loads(pickle.dumps(scanner))  # noqa: S301 - made here
        assert (again.name, again.version) == (scanner.name, scanner.version)

    def test_it_knows_its_files_by_their_first_bytes(
        self, scanner: Scanner, sample: Sample
    ) -> None:
        """It accepts the sample, and nothing that anybody might put beside it."""
        if self.chosen_by_content:
            assert scanner.accepts(sample.path.read_bytes()[:HEAD])
        for head in _FOREIGN:
            assert not scanner.accepts(head), head[:16]

    # -- what a scan is ------------------------------------------------------------------------

    def test_a_scan_is_the_same_every_time(
        self, scanner: Scanner, sample: Sample, scanned: ScannedFile
    ) -> None:
        """Retried tasks must write the same bytes."""
        assert sample.scan(scanner) == scanned
        assert (scanned.scanner, scanned.scanner_version) == (scanner.name, scanner.version)

    def test_a_scan_can_be_sent_home(self, scanned: ScannedFile) -> None:
        """Files may be scanned in a child process."""
        assert pickle.loads(pickle.dumps(scanned)) == scanned  # noqa: S301 - made here

    def test_the_name_of_the_file_does_not_matter(
        self, scanner: Scanner, sample: Sample, scanned: ScannedFile
    ) -> None:
        """A copy under another name is described alike."""
        copy = sample.path.with_name(f"renamed-{os.getpid()}.dat")
        shutil.copyfile(sample.path, copy)
        try:
            other = sample.scan(scanner, copy)
        finally:
            copy.unlink()
        assert [each.zarr_json() for each in other.groups] == [
            each.zarr_json() for each in scanned.groups
        ]
        for one, two in zip(scanned.arrays, other.arrays, strict=True):
            assert one.zarr_json() == two.zarr_json()
            for column in ("index", "kind", "offset", "length", "inline"):
                values = (getattr(each.references, column) for each in (one, two))
                assert np.array_equal(*values), (one.path, column)

    def test_nodes_have_parents_and_the_root_is_first(self, scanned: ScannedFile) -> None:
        """No path twice, and every group above a node is there."""
        groups = [group.path for group in scanned.groups]
        arrays = [array.path for array in scanned.arrays]
        assert groups[0] == paths.ROOT
        assert len({*groups, *arrays}) == len(groups) + len(arrays)
        for path in (*groups, *arrays):
            assert path == paths.canonical(path)
            assert set(paths.ancestors(path)) <= set(groups)

    def test_findings_are_for_people_and_programs(self, scanned: ScannedFile) -> None:
        """A stable code without blanks, a message, and the path of something."""
        for finding in scanned.findings:
            assert isinstance(finding, Finding)
            assert finding.code
            assert " " not in finding.code
            assert finding.message
            assert finding.path.startswith("/")
            assert isinstance(finding.severity, Severity)

    # -- arrays --------------------------------------------------------------------------------

    def test_references_fit_grids_and_files(self, scanned: ScannedFile) -> None:
        """Every row is a chunk of the array, and bytes that the file has."""
        for array in scanned.arrays:
            _check_references(array)

    def test_zarr_takes_the_metadata_for_what_it_says(
        self, sample: Sample, scanned: ScannedFile
    ) -> None:
        """Shape, chunks, data type and fill value are zarr's idea of them too."""
        expected = sample.expected()
        for array in scanned.arrays:
            opened = _open(array)
            assert opened.shape == array.shape
            assert opened.chunks == array.chunk_shape
            held = opened.metadata.to_dict()
            assert held["fill_value"] == array.fill_value or array.fill_value == "NaN"
            wanted = expected[array.path].values.dtype
            if wanted.kind not in "OT" and opened.dtype.kind != "T":
                assert opened.dtype == wanted.newbyteorder("="), array.path

    def test_nothing_is_missing_and_nothing_is_made_up(
        self, sample: Sample, scanned: ScannedFile
    ) -> None:
        """The oracle's variables are the arrays."""
        assert {array.path for array in scanned.arrays} == set(sample.expected())

    def test_values_are_the_oracles(self, sample: Sample, scanned: ScannedFile) -> None:
        """Bit for bit, through the references and any zarr reader."""
        for path, wanted in sample.expected().items():
            assert same_values(read(scanned.array(path), fetch), wanted.values), path

    def test_dimensions_and_attributes_are_the_oracles(
        self, sample: Sample, scanned: ScannedFile
    ) -> None:
        """Where the oracle returns them."""
        for path, wanted in sample.expected().items():
            array = scanned.array(path)
            if wanted.dimensions is not None:
                assert array.dimension_names == wanted.dimensions, path
            if wanted.attributes is None:
                continue
            found = _show(array)
            assert set(found) == set(wanted.attributes), path
            for name, value in wanted.attributes.items():
                assert same_value(found[name], value), (path, name)

    # -- what was asked for --------------------------------------------------------------------

    def test_variables_are_left_out_by_name_and_by_path(
        self, scanner: Scanner, sample: Sample, scanned: ScannedFile
    ) -> None:
        """Others stay as they are, and the scan reports what it left out."""
        for array in scanned.arrays[:3]:
            for name in (array.path, paths.name(array.path)):
                options = ScannerOptions(drop_variables=(name,))
                kept = tuple(each for each in scanned.arrays if options.wants(each.path))
                found = sample.scan(scanner, drop_variables=(name,))
                assert found.arrays == kept
                assert array.path in found.left_out

    def test_only_the_variables_named_are_taken(
        self, scanner: Scanner, sample: Sample, scanned: ScannedFile
    ) -> None:
        """By name or by path."""
        for array in scanned.arrays[:3]:
            found = sample.scan(scanner, variables=(array.path,))
            assert found.arrays == (array,)
            assert {*found.left_out} >= {e.path for e in scanned.arrays} - {array.path}

    def test_a_group_becomes_the_root(
        self, scanner: Scanner, sample: Sample, scanned: ScannedFile
    ) -> None:
        """With what is below it, and an error where there is none."""
        for group in scanned.groups[1:3]:
            found = sample.scan(scanner, group=group.path)
            below = [a for a in scanned.arrays if a.path.startswith(group.path + "/")]
            assert [array.path for array in found.arrays] == [
                array.path.removeprefix(group.path) for array in below
            ]
        with pytest.raises(ScanError):
            sample.scan(scanner, group="/no such group")

    def test_files_that_are_joined_bring_labels_and_digests(
        self, scanner: Scanner, sample: Sample, scanned: ScannedFile
    ) -> None:
        """Labels are the coordinate's values; what does not follow the dimension has a digest."""
        expected = sample.expected()
        names = {name for array in scanned.arrays for name in array.dimension_names if name}
        for name in sorted(names)[:3]:
            joined = sample.scan(scanner, concat_dim=name)
            assert joined == sample.scan(scanner, concat_dim=name)
            for array in joined.arrays:
                _check_joined(array, name, expected[array.path].values)

    def test_nothing_is_stored_beyond_the_budget(self, scanner: Scanner, sample: Sample) -> None:
        """A scan that may store nothing references everything, or is refused."""
        with contextlib.suppress(UnsupportedError):
            found = sample.scan(scanner, max_native_bytes=0)
            assert sum(len(array.references.inline) for array in found.arrays) == 0

    # -- files ---------------------------------------------------------------------------------

    def test_reads_stay_inside_the_file(
        self, scanner: Scanner, sample: Sample, scanned: ScannedFile
    ) -> None:
        """Also of a file that is not on local disk, unless the scanner refuses those."""
        with open_source(sample.path) as inner:
            source = WatchedSource(inner)
            with contextlib.suppress(UnsupportedError):
                found = scanner.scan(source, sample.options)
                assert {array.path for array in found.arrays} == {a.path for a in scanned.arrays}
            for offset, length in source.reads:
                assert 0 <= offset <= source.file.size
                assert length >= 0

    def test_open_files_stay_as_many(self, scanner: Scanner, sample: Sample) -> None:
        """Whether a scan succeeds or fails."""
        with contextlib.suppress(IcevirtError):
            sample.scan(scanner)  # of a library the first call may open what stays open
        gc.collect()  # libraries leave files in cycles of objects
        for group in (sample.options.group, "/no such group"):
            before = _descriptors()
            for _ in range(6):  # two descriptors may be those of a library, once
                with contextlib.suppress(IcevirtError):
                    sample.scan(scanner, group=group)
            if _descriptors() > before + 2:
                gc.collect()
            assert _descriptors() <= before + 2

    def test_damaged_files_are_errors_that_pickle_or_are_described(
        self, scanner: Scanner, sample: Sample
    ) -> None:
        """No other exception, no reference out of the file, no memory without end."""
        for what, raw in damage(sample.path, copies=self.damaged_copies):
            path = sample.path.with_name(f"damaged-{os.getpid()}")
            path.write_bytes(raw)
            try:
                _check_damaged(sample, scanner, path)
            except Exception as error:  # noqa: BLE001 - the test is that there is none
                pytest.fail(f"{what}: {type(error).__name__}: {error}")
            finally:
                path.unlink()


def _check_damaged(sample: Sample, scanner: Scanner, path: Path) -> None:
    try:
        found = sample.scan(scanner, path)
    except IcevirtError as refused:
        again = pickle.loads(pickle.dumps(refused))  # noqa: S301 - made here
        if str(again) != str(refused):
            pytest.fail(f"the error does not pickle: {refused}")
        return
    for array in found.arrays:
        _check_references(array)


def _check_references(array: ScannedArray) -> None:
    table, rank = array.references, len(array.shape)
    assert len(array.chunk_shape) == len(array.dimension_names) == table.ndim == rank, array.path
    assert all(edge >= 1 for edge in array.chunk_shape), array.path
    edges = zip(array.shape, array.chunk_shape, strict=True)
    grid = [-(-length // edge) for length, edge in edges]
    assert len(table) <= prod(grid), array.path
    assert (table.index < np.array(grid, np.int64).reshape(1, -1)).all(), array.path
    assert table.sort() is table, f"{array.path}: rows are not in order"
    assert np.isin(table.kind, (ChunkType.virtual, ChunkType.inline)).all(), array.path
    virtual = table.kind == ChunkType.virtual
    end = table.offset.astype(object) + table.length.astype(object)
    assert (end[~virtual] <= len(table.inline)).all(), array.path
    if virtual.any():
        assert int(table.source[virtual].max()) < len(table.locations), array.path
    for number, url in enumerate(table.locations.url):
        rows = virtual & (table.source == number)
        if rows.any() and url.startswith("file://"):
            with open_source(url) as source:
                assert max(end[rows]) <= source.file.size, (array.path, url)


def _check_joined(array: ScannedArray, dimension: str, wanted: np.ndarray[Any, Any]) -> None:
    assert same_values(read(array, fetch), wanted), array.path
    follows = dimension in array.dimension_names
    assert bool(array.digest) == (not follows), array.path
    if array.dimension_names == (dimension,) == (paths.name(array.path),):
        assert array.labels is not None, f"{array.path}: a coordinate without labels"
        labels = np.frombuffer(array.labels, np.dtype(array.labels_dtype))
        if wanted.dtype.kind in "iufbmM":
            native = labels.astype(labels.dtype.newbyteorder("="))
            assert same_values(native, wanted), array.path
        assert len(labels) == len(wanted), array.path
    if array.whole:
        assert len(array.references) == (1 if wanted.size else 0), array.path
        assert array.chunk_shape == tuple(max(length, 1) for length in array.shape), array.path


def _open(array: ScannedArray) -> Any:
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync
    from zarr.storage import MemoryStore

    store = MemoryStore({})
    sync(store.set("zarr.json", default_buffer_prototype().buffer.from_bytes(array.zarr_json())))
    return zarr.open_array(store, mode="r", zarr_format=3)


def _show(array: ScannedArray) -> dict[str, Any]:
    """Return attributes as the file had them, what was changed for other readers taken back."""
    held = array.attributes
    found = restore(held.values, held.dtypes)
    for name, (was, _) in held.replaced.items():
        found.pop(name, None)
        if was is not None:
            found[name] = was
    return found


def _descriptors() -> int:
    return len(os.listdir("/dev/fd"))
