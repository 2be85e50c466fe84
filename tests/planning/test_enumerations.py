"""Numbers that have names are joined only where they have the same names, and readers see these."""

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
import icevirt.xarray
from builds.support import official, opened
from icevirt.errors import CombineError, InvalidInputError

SKY = {"clear": 0, "cloud": 1}


def write(path, day, members, names, *, kind="u1", chunks=None, name="sky_t"):
    """Write two steps of an enumeration, or of plain numbers where ``members`` is None."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        time = file.createVariable("time", "i4", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = [2 * day, 2 * day + 1]
        dtype = kind if members is None else file.createEnumType(kind, name, members)
        sky = file.createVariable("sky", dtype, ("time",), chunksizes=chunks)
        sky[:] = [names[0], names[1]] if members is None else [members[name] for name in names]
    return str(path)


def days(folder, one, other, names=("clear", "cloud"), **options):
    return [
        write(folder / "0.nc", 0, one, names, **options),
        write(folder / "1.nc", 1, other, names, **options),
    ]


def build(files, folder, **options):
    repo = str(folder / "repo")
    icevirt.build(files, repo, combine_options=options, executor="in-process")
    return repo


def words(variable):
    """Return what numbers are called, by xarray's own place for it."""
    members = variable.encoding["dtype"].metadata["enum"]
    names = {number: name for name, number in members.items()}
    return [names[number] for number in variable.values.tolist()]


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_the_engine_keeps_the_names_where_xarray_does(engine, tmp_path):
    pytest.importorskip(engine if engine == "h5netcdf" else "netCDF4")
    source = write(tmp_path / "0.nc", 0, SKY, ("cloud", "clear"))
    found = opened(build([source], tmp_path))
    with xr.open_dataset(source, engine=engine) as wanted:
        xr.testing.assert_identical(found, wanted)
        kept = wanted["sky"].encoding["dtype"]
        assert found["sky"].encoding["dtype"] == kept
        assert found["sky"].encoding["dtype"].metadata == kept.metadata
    found.to_netcdf(tmp_path / "copy.nc", engine="netcdf4")
    with netCDF4.Dataset(tmp_path / "copy.nc") as file:
        assert file["sky"].datatype.enum_dict == SKY


def test_other_readers_see_the_names_as_flags(tmp_path):
    repo = build([write(tmp_path / "0.nc", 0, {"b": 7, "a": 3}, ("a", "b"))], tmp_path)
    store = official(repo).readonly_session("main").store
    attributes = xr.open_zarr(store, consolidated=False)["sky"].attrs
    assert attributes == {"flag_values": [3, 7], "flag_meanings": "a b"}
    assert "flag_values" not in opened(repo)["sky"].attrs


def test_names_with_blanks_are_no_flags_and_flags_of_the_file_stay(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        for name, members in (("blank", {"light rain": 1}), ("own", {"a": 1})):
            file.create_dataset(name, data=[1], dtype=h5py.enum_dtype(members, "i2"))
        file["own"].attrs["flag_meanings"] = "mine"
    repo = build([str(tmp_path / "f.h5")], tmp_path)
    store = official(repo).readonly_session("main").store
    theirs, found = xr.open_zarr(store, consolidated=False), opened(repo)
    assert theirs["blank"].attrs == {}
    assert theirs["own"].attrs == {"flag_meanings": "mine"}
    assert found["own"].attrs == {"flag_meanings": "mine"}
    assert found["blank"].encoding["dtype"].metadata == {"enum": {"light rain": 1}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SKY, {"cloud": 0, "clear": 1}),
        (SKY, {"clear": 0, "cloud": 2}),
        (SKY, {"clear": 0, "cloud": 1, "rain": 2}),
        ({"light rain": 0, "clear": 1, "cloud": 2}, {"light_rain": 0, "clear": 1, "cloud": 2}),
    ],
    ids=["swapped", "moved", "one more", "names that flags would not tell apart"],
)
def test_numbers_with_other_names_are_refused_by_both(one, other, tmp_path):
    with pytest.raises(CombineError) as caught:
        build(days(tmp_path, one, other), tmp_path)
    for members in (one, other):
        said = ", ".join(f"{name}={number}" for name, number in members.items())
        assert f"members {said}" in str(caught.value)


def test_named_numbers_are_not_plain_ones(tmp_path):
    files = [
        write(tmp_path / "0.nc", 0, SKY, ("clear", "cloud")),
        write(tmp_path / "1.nc", 1, None, (0, 1)),
    ]
    with pytest.raises(CombineError, match=r"members clear=0, cloud=1.*no members"):
        build(files, tmp_path)


def test_the_order_of_members_and_the_name_of_the_type_mean_nothing(tmp_path):
    files = [
        write(tmp_path / "0.nc", 0, SKY, ("clear", "cloud")),
        write(tmp_path / "1.nc", 1, {"cloud": 1, "clear": 0}, ("clear", "cloud"), name="other"),
    ]
    assert words(opened(build(files, tmp_path))["sky"]) == ["clear", "cloud"] * 2


@pytest.mark.parametrize("chunks", [None, (1,)], ids=["read by the scan", "referenced"])
@pytest.mark.parametrize("other", [{"cloud": 0, "clear": 1}, {"clear": 5, "cloud": 200}])
def test_members_are_numbered_anew_where_that_is_asked(other, chunks, tmp_path):
    files = [
        *days(tmp_path, SKY, other, chunks=chunks),
        write(tmp_path / "2.nc", 2, SKY, ("cloud", "clear"), chunks=chunks),
    ]
    repo = build(files, tmp_path, on_mismatch="native")
    found = opened(repo)["sky"]
    assert words(found) == ["clear", "cloud", "clear", "cloud", "cloud", "clear"]
    assert found.values.tolist() == [0, 1, 0, 1, 1, 0]
    checked = icevirt.verify(
        repo, full=True, authorize_virtual_chunk_access=[f"{tmp_path.as_uri()}/"]
    ).checked
    assert not checked.differences
    assert not checked.not_compared


def test_a_member_that_the_dataset_lacks_is_refused_by_name(tmp_path):
    files = [
        *days(tmp_path, SKY, SKY),
        write(tmp_path / "2.nc", 2, {"rain": 0, "clear": 1}, ("clear", "rain")),
    ]
    with pytest.raises(CombineError, match="no number for 'rain'"):
        build(files, tmp_path, on_mismatch="native")


def test_eras_keep_the_names_of_each_and_are_not_joined_by_number(tmp_path):
    repo = build(days(tmp_path, SKY, {"cloud": 0, "clear": 1}), tmp_path, on_mismatch="eras")
    for era in ("era_0", "era_1"):
        assert words(opened(repo, group=era)["sky"]) == ["clear", "cloud"]
    with pytest.raises(CombineError, match="members of the enumeration"):
        opened(repo, eras="concat")


def test_fields_of_compounds_have_names_too(tmp_path):
    for number, members in enumerate((SKY, {"cloud": 0, "clear": 1})):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            dtype = np.dtype([("sky", h5py.enum_dtype(members, "u1")), ("t", "f4")])
            file.create_dataset("v", data=np.zeros(2, dtype), dtype=dtype)
    with pytest.raises(CombineError, match="sky: clear=0, cloud=1"):
        build([f"{tmp_path}/*.h5"], tmp_path, labels="{n:d}.h5")


def test_appended_files_are_held_against_the_names_of_the_dataset(tmp_path):
    files = days(tmp_path, SKY, {"cloud": 0, "clear": 1})
    repo = build(files[:1], tmp_path)
    with pytest.raises(CombineError, match="members of the enumeration"):
        icevirt.append([files[1]], repo, executor="in-process")
    good = write(tmp_path / "2.nc", 2, SKY, ("cloud", "clear"))
    icevirt.append([good], repo, executor="in-process")
    assert words(opened(repo)["sky"]) == ["clear", "cloud", "cloud", "clear"]


def test_names_are_written_to_another_group_and_held_against_what_is_appended(tmp_path):
    repo = build([write(tmp_path / "0.nc", 0, SKY, ("cloud", "clear"))], tmp_path)
    session = icevirt.Repository.open(repo).writable_session("main")
    icevirt.xarray.to_icechunk(opened(repo).load(), session, group="copy")
    session.commit("copied")
    found = opened(repo, group="copy")
    assert words(found["sky"]) == ["cloud", "clear"]
    store = official(repo).readonly_session("main").store
    theirs = xr.open_zarr(store, group="copy", consolidated=False)["sky"].attrs
    assert theirs == {"flag_values": [0, 1], "flag_meanings": "clear cloud"}
    write(tmp_path / "1.nc", 1, {"cloud": 0, "clear": 1}, ("cloud", "clear"))
    session = icevirt.Repository.open(repo).writable_session("main")
    with (
        xr.open_dataset(tmp_path / "1.nc") as other,
        pytest.raises(InvalidInputError, match="other names in the repository"),
    ):
        icevirt.xarray.to_icechunk(other, session, group="copy", append_dim="time")
    assert not session.has_uncommitted_changes
