"""Real archives, some built on Spark, read as the files are read, by us and by the official client."""

import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, assert_same_raw, expected_dataset, official, opened

ARCHIVES = {
    "NEMO months, a file each": ("NEMO/*.nc", "time_counter"),
    "one file, a chunk for each step": ("A1B_north_america.nc", "time"),
    "one file without concatenation": ("A1B_north_america.nc", None),
    "one chunk for all steps of a coordinate": ("ostia_monthly.nc", "time"),
    "strings, and a chunk larger than its array": ("vlstr_type.nc", "time"),
    "an unlimited depth": ("atlantic_profiles.nc", "depth"),
    "NetCDF-3": ("space_weather.nc", None),
    "NetCDF-3, a dimension that is not the record's": ("space_weather.nc", "height"),
}


ON_SPARK = ("NEMO months, a file each", "strings, and a chunk larger than its array", "NetCDF-3")


@pytest.fixture(scope="module", params=ARCHIVES)
def archive(request, spark, sample_data, tmp_path_factory):
    """A repository built over real files: (repository, files, dimension, report)."""
    pattern, dimension = ARCHIVES[request.param]
    executor = spark if request.param in ON_SPARK else "in-process"
    files = sorted(map(str, sample_data.glob(pattern)))
    repo = str(tmp_path_factory.mktemp("real") / "repo")
    # the months of NEMO all say that they are step 0
    combine = "nested" if len(files) > 1 else "by_coords"
    report = icevirt.build(
        files, repo, concat_dim=dimension, combine_options={"combine": combine}, executor=executor
    )
    return repo, files, dimension, report


def test_raw_values_equal_those_of_the_c_libraries(archive):
    """Every array, element for element, before any decoding."""
    repo, files, dimension, report = archive
    session = icevirt.Repository.open(
        repo, authorize_virtual_chunk_access=report.containers
    ).readonly_session("main")

    def axis_of(_, array):
        names = array.metadata.dimension_names or ()
        return names.index(dimension) if len(files) > 1 and dimension in names else None

    assert_same_raw(session.store, files, axis_of)


def test_decoded_values_dtypes_and_attributes_equal_xarray(archive):
    """The engine shows what xarray shows of the files."""
    repo, files, dimension, _ = archive
    assert_same_dataset(opened(repo), expected_dataset(files, dimension))


def test_undecoded_values_equal_xarray(archive):
    """Also with every decoding switched off."""
    repo, files, dimension, _ = archive
    off = {"decode_cf": False}
    assert_same_dataset(opened(repo, **off), expected_dataset(files, dimension, **off))


def test_the_official_client_reads_the_same(archive):
    """Another implementation decides whether the repository is one."""
    repo, files, dimension, _ = archive
    store = official(repo).readonly_session("main").store
    found = xr.open_zarr(store, consolidated=False)
    expected = expected_dataset(files, dimension)
    xr.testing.assert_equal(_objects(found.load()), _objects(expected.load()))
    for name in expected.variables:
        assert set(found[name].attrs) == set(expected[name].attrs), name


def _objects(dataset):
    """Show strings of every kind as Python objects: zarr's are numpy's, netCDF's are fixed."""
    for name, variable in dataset.variables.items():
        if variable.dtype.kind in "TU":
            dataset = dataset.assign({name: variable.astype(object)})
    return dataset


def test_every_reference_is_counted(archive):
    """The report, `info` and the store agree."""
    repo, _, _, report = archive
    held = icevirt.info(repo)
    assert {array.path: array.references for array in held.arrays} == {
        array.path: array.references for array in report.arrays
    }
    assert report.references.total > 0
    assert report.files_scanned == len(archive[1])
