"""xarray's own tests of its zarr backend, with icevirt's store in place of zarr's.

What cannot apply, and why:

- everything for zarr format 2: Icechunk holds zarr v3 alone (`default_zarr_format` has one value);
- ``test_chunk_key_encoding_v2``: no other chunk keys than ``c/0/1`` exist in a repository; the
  refusal is tested instead;
- ``TestZarrDirectoryStore``, ``TestZarrWriteEmpty``, ``TestNCZarr``: they look at the files of a
  directory store, or let netCDF-C read them;
- ``TestInstrumentedZarrStore``: it counts the calls of zarr's MemoryStore;
- ``TestZarrNoConsolidatedMetadataSupport``: it makes a zip store;
- ``TestZarrRectilinearChunksRead``, ``TestZarrDatatreeIO``, ``test_open_dataset_chunking_zarr``,
  ``test_chunking_consistency``, ``test_zarr_create_default_indexes``, ``test_zarr_entrypoint``,
  ``test_raises_key_error_on_invalid_zarr_store``: they make their stores from paths, with zarr's
  own store; what they claim of indexes and dask's chunks is tested in test_engine.py, trees below;
- ``test_open_fsspec``, ``test_open_mfdataset_fsspec``, ``test_zarr_closing_internal_zip_store``:
  they open zarr's stores of fsspec and zip files;
- ``test_encode_zarr_attr_value``, ``test_extract_zarr_variable_encoding``, the fill value coders:
  they use no store.

Skipped by xarray itself, whatever the store: what needs a module ``netcdf`` that does not exist
(``test_roundtrip_example_1_netcdf``, ``test_drop_encoding``,
``test_coordinate_variables_after_iris_roundtrip``), unlimited dimensions, hidden keys of zarr format
2, object strings with a fill value, float32 fill values, ``sel`` of Variables, and what checks
that a zarr too old for asynchronous indexing is refused.
"""

import contextlib

import pytest
import xarray as xr
import zarr
from xarray.tests import test_backends as suite
from xarray.tests.test_backends import TestDataArrayToZarr as ArraySuite
from xarray.tests.test_backends import TestZarrDictStore as StoreSuite
from xarray.tests.test_backends import TestZarrRegionAuto as RegionSuite

from icevirt.access.xarray.writing import to_icechunk
from icevirt.errors import InvalidInputError
from icevirt.repo.repository import Repository
from icevirt.storage.memory import in_memory_storage

xr.set_options(warn_for_unclosed_files=False)  # xarray's tests switch it on for everybody

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.ci]


@pytest.fixture(params=[3])
def default_zarr_format(request):
    with zarr.config.set(default_zarr_format=request.param):
        yield


@pytest.fixture(params=[False, True], ids=["numpy", "dask"])
def use_dask(request):
    return request.param


@pytest.fixture(params=["s", "ns"])
def time_unit(request):
    return request.param


@pytest.fixture
def tmp_store():
    return new_store()


def new_store():
    return Repository.create(in_memory_storage()).writable_session("main").store


class TestStore(StoreSuite):
    @contextlib.contextmanager
    def create_zarr_target(self):
        yield new_store()

    @contextlib.contextmanager
    def roundtrip(self, data, save_kwargs=None, open_kwargs=None, allow_cleanup_failure=False):
        """Write, commit, and read what was committed."""
        with self.create_zarr_target() as store:
            self.save(data, store, **(save_kwargs or {}))
            store.session.commit("saved", allow_empty=True)
            with self.open(store, **(open_kwargs or {})) as ds:
                yield ds

    def test_chunk_key_encoding_v2(self):
        with pytest.raises(InvalidInputError, match="c/0/1"):
            super().test_chunk_key_encoding_v2()


class TestRegions(RegionSuite):
    """These write with `to_icechunk`, except for metadata alone, which it does not."""

    @contextlib.contextmanager
    def create_zarr_target(self):
        yield new_store()

    def save(self, target, ds, **options):
        if "compute" in options:
            ds.to_zarr(target, **options)
        else:
            to_icechunk(ds, target.session, **options)


class TestArrays(ArraySuite):
    pass


del StoreSuite, RegionSuite, ArraySuite


STRINGS = [
    suite.test_roundtrip_stringdtype_zarr_v3,
    suite.test_stringdtype_with_na_object_uses_the_compatibility_path,
]


@pytest.mark.parametrize("test", STRINGS)
def test_strings(test, monkeypatch):
    """xarray's tests that make zarr's MemoryStore themselves."""
    made = []

    def instead(*_, **__):
        made.append(new_store())
        return made[-1]

    monkeypatch.setattr(zarr.storage, "MemoryStore", instead)
    test()
    assert made


def test_a_tree_is_written_and_read():
    ds = xr.Dataset({"a": ("x", [1, 2])}, {"x": [0.5, 1.5]}, {"title": "here"})
    tree = xr.DataTree.from_dict({"/": ds, "/below/deep": ds * 2, "/beside": xr.Dataset()})
    store = new_store()
    tree.to_zarr(store, consolidated=False)
    found = xr.open_datatree(store, engine="zarr", consolidated=False)
    xr.testing.assert_identical(found.load(), tree)
