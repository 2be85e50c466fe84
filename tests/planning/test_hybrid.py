"""Arrays of references and stored chunks: every value is that of the files, or the build stops."""

import contextlib
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import icevirt
from builds.support import official, verified
from grouping import grouped
from icevirt.errors import CombineError, InvalidInputError
from long_forms import cases
from planning.chunked_files import WIDE, counts, held, names, raw, write

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def test_a_short_file_in_the_middle_shifts_what_follows(tmp_path, repo_path):
    """What lines up stays a reference; what does not is stored, and nothing else."""
    files = names(tmp_path, 3)
    for path, begin, steps in zip(files, (0, 7, 15), (7, 8, 8), strict=True):
        write(path, begin, steps)
    report = icevirt.build(files, repo_path, concat_dim="time")
    np.testing.assert_array_equal(held(repo_path), raw(files))
    kinds = counts(report)
    assert (kinds.virtual, kinds.native) == (3, 9)
    assert any(
        "/data: 9 of 12 chunks (8.5 MiB of values) are stored, because 2 files do not begin" in text
        and "f01.nc" in text
        for text in report.findings
    )


def test_damage_to_a_stored_chunk_is_found_though_the_official_client_wrote_others(
    tmp_path, repo_path
):
    """A build lists the chunks that it names by their content, and only these."""
    files = names(tmp_path, 2)
    write(files[0], 0, 5)
    write(files[1], 5, 6)
    icevirt.build(files, repo_path, concat_dim="time")
    chunks = sorted((Path(repo_path) / "chunks").iterdir())
    session = official(repo_path).writable_session("main")
    zarr.open_array(session.store, path="data")[0:2] = 1
    session.commit("theirs")
    report = icevirt.check(repo_path, chunks=True)
    assert report.ok
    assert (report.chunks.intact, report.chunks.unverifiable) == (len(chunks), 1)
    assert report.chunks.unlisted == 0
    raw = bytearray(chunks[0].read_bytes())
    raw[len(raw) // 2] ^= 4
    chunks[0].write_bytes(raw)
    report = icevirt.check(repo_path, chunks=True)
    assert [problem.code for problem in report.problems] == ["chunk-bytes"]
    assert not report.ok


def test_the_plan_says_what_would_be_stored(tmp_path):
    """Before anything is written, by variable and with the files."""
    files = names(tmp_path, 2)
    write(files[0], 0, 5)
    write(files[1], 5, 6)
    made = icevirt.plan(files, concat_dim="time")
    array = next(each for each in made.arrays if each.path == "/data")
    assert array.hybrid.chunks == 4
    assert array.hybrid.nbytes == 7 * 512 * 256 * 4
    assert (array.references.virtual, array.references.native) == (2, 4)
    assert any("/data: 4 of 6 chunks" in note and "f01.nc" in note for note in made.notes)


def test_more_than_the_budget_is_refused_with_the_number_and_the_remedy(tmp_path, repo_path):
    files = names(tmp_path, 2)
    write(files[0], 0, 5)
    write(files[1], 5, 6)
    with pytest.raises(CombineError, match=r"3\.5 MiB of values.*/data.*in 4 chunks") as caught:
        icevirt.build(
            files,
            repo_path,
            concat_dim="time",
            scan_options={"max_native_bytes_per_file": 3_000_000},
            combine_options={"max_native_bytes": 3_000_000},
        )
    assert "rectilinear" in str(caught.value)
    assert caught.value.facts["bytes_to_store"] == {"/data": 7 * 512 * 256 * 4}
    assert not Path(repo_path).exists() or not list(Path(repo_path).glob("refs/*"))


DEVIATING = {
    "chunk shape": {"space": (256, 256)},
    "chunks of more steps": {"chunk": 4},
    "another filter": {"shuffle": True},
    "no filter": {"compression": None},
    "lzf": {"compression": "lzf"},
    "byte order": {"dtype": ">f4"},
    "whole numbers": {"dtype": "i2"},
}


@pytest.mark.parametrize(
    "other",
    cases(DEVIATING, *(each for each in DEVIATING if each not in ("another filter", "lzf"))),
)
def test_a_file_that_is_stored_otherwise_is_encoded_as_the_others_are(tmp_path, repo_path, other):
    """Refused unless asked for; then its chunks are the only ones that are stored."""
    files = names(tmp_path, 4)
    for number, path in enumerate(files):
        write(path, 4 * number, 4, **(DEVIATING[other] if number == 1 else {}))
    with pytest.raises(CombineError, match="native"):
        icevirt.build(files, repo_path, concat_dim="time")
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"on_mismatch": "native"}
    )
    found = held(repo_path)
    assert found.dtype == np.dtype("f4")
    np.testing.assert_array_equal(found, raw(files))
    kinds = counts(report)
    assert (kinds.virtual, kinds.native + kinds.inline) == (6, 2)
    assert any("1 of 4 files differ in" in text and "f01.nc" in text for text in report.findings)


def test_a_fill_value_matters_only_where_it_is_read(tmp_path, repo_path):
    """Files that wrote all their chunks are referenced, whatever they say of others."""
    files = names(tmp_path, 3)
    for number, path in enumerate(files):
        write(path, 4 * number, 4, fillvalue=7.0 if number == 1 else None)
    kinds = counts(icevirt.build(files, repo_path, concat_dim="time"))
    assert (kinds.virtual, kinds.native) == (6, 0)
    np.testing.assert_array_equal(held(repo_path), raw(files))
    with h5py.File(files[1], "r+") as file:
        file["data"].resize(6, axis=0)  # without a value in its last chunk
        del file["time"]
        file.create_dataset("time", data=np.arange(4.0, 10)).make_scale("time")
        file["data"].dims[0].attach_scale(file["time"])
    write(files[2], 10, 4)
    kinds = counts(icevirt.build(files, f"{repo_path}2", concat_dim="time"))
    assert (kinds.virtual, kinds.native) == (6, 0)
    np.testing.assert_array_equal(held(f"{repo_path}2"), raw(files))


def test_a_wider_type_holds_the_values_of_all_files(tmp_path, repo_path):
    """As in xarray, float64 is what float32 and float64 become; the wider files are referenced."""
    files = names(tmp_path, 3)
    for number, path in enumerate(files):
        write(path, 4 * number, 4, dtype="f8" if number == 1 else "f4")
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"on_mismatch": "native"}
    )
    found = held(repo_path)
    assert found.dtype == np.dtype("f8")
    np.testing.assert_array_equal(found, raw(files))
    kinds = counts(report)
    assert (kinds.virtual, kinds.native + kinds.inline) == (2, 4)


def test_the_first_file_may_be_the_one_that_differs(tmp_path, repo_path):
    """The encoding with which least is stored is the array's."""
    files = names(tmp_path, 4)
    for number, path in enumerate(files):
        write(path, 4 * number, 4, chunk=1 if number == 0 else 2)
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"on_mismatch": "native"}
    )
    assert (counts(report).virtual, counts(report).native) == (6, 2)
    np.testing.assert_array_equal(held(repo_path), raw(files))


def decoded(files):
    """Return the decoded variable as xarray reads each file."""
    return [xr.open_dataset(path, decode_times=False)["data"].load() for path in files]


@pytest.mark.ci
def test_packing_that_differs_is_stored_where_every_value_survives(tmp_path, repo_path):
    """Half the scale: each value of the odd file is one of the others' values."""
    files = names(tmp_path, 3)
    fill = np.int16(-1)
    for number, path in enumerate(files):
        scale = np.float32(1.0 if number == 1 else 0.5)
        write(path, 4 * number, 4, dtype="i2",
              packing={"scale_factor": scale, "add_offset": np.float32(2), "_FillValue": fill})  # fmt: skip
        with h5py.File(path, "r+") as file:  # a variable that is alike in all files
            data = file["data"]
            more = file.create_dataset("more", data=data[...], chunks=data.chunks, shuffle=True)
            for axis, name in enumerate(("time", "y", "x")):
                more.dims[axis].attach_scale(file[name])
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"on_mismatch": "native"}
    )
    prefixes = report.containers
    ours = xr.open_dataset(
        repo_path, engine="icevirt", decode_times=False, authorize_virtual_chunk_access=prefixes
    )["data"]
    theirs = np.concatenate([each.values for each in decoded(files)])
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_array_equal(ours.values, theirs)
    assert (counts(report).virtual, counts(report).native) == (4, 2)
    checked = verified(repo_path, prefixes)
    assert checked.arrays >= 3 * 3  # also the file that is packed otherwise, beside its ``more``


def test_packing_in_which_a_value_would_change_is_refused_with_the_error(tmp_path, repo_path):
    """A finer scale cannot be rounded to the others'."""
    files = names(tmp_path, 3)
    for number, path in enumerate(files):
        scale = np.float32(0.25 if number == 1 else 0.5)
        write(path, 4 * number, 4, dtype="i2", packing={"scale_factor": scale})
    with pytest.raises(CombineError, match=r"maximum error would be 0\.25") as caught:
        icevirt.build(
            files, repo_path, concat_dim="time", combine_options={"on_mismatch": "native"}
        )
    assert "f01.nc" in caught.value.facts["file"]
    assert "float_variables" in str(caught.value)


@pytest.mark.parametrize("grid", [WIDE, (4, 5)], ids=["referenced", "read by the scan"])
def test_decoded_floats_are_stored_on_request(tmp_path, repo_path, grid):
    """Whatever the packing of each file: what xarray shows of it, in its dtype."""
    files = names(tmp_path, 3)
    for number, path in enumerate(files):
        scale = np.float32(0.1 * (number + 1))
        write(path, 5 * number, 5, dtype="i2", grid=grid,
              packing={"scale_factor": scale, "_FillValue": np.int16(100)})  # fmt: skip
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"float_variables": "data"}
    )
    theirs = np.concatenate([each.values for each in decoded(files)])
    assert np.isnan(theirs).any()
    ours = xr.open_dataset(
        repo_path,
        engine="icevirt",
        decode_times=False,
        authorize_virtual_chunk_access=report.containers,
    )["data"]
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_array_equal(ours.values, theirs)
    np.testing.assert_array_equal(held(repo_path), theirs)
    assert ours.attrs["units"] == "K"


def test_a_hole_in_a_stored_chunk_reads_as_missing(tmp_path, repo_path):
    """A chunk of two steps, one of which no file has."""
    files = names(tmp_path, 3)
    for number, path in enumerate(files):
        write(path, 3 * number, 3, packing={"_FillValue": np.float32(-9)})
        if number == 1:
            with h5py.File(path, "r+") as file:
                file["other"] = file["data"]
                del file["data"]
    other = str(tmp_path / "f09.nc")
    write(other, 3, 3, packing={"_FillValue": np.float32(-9)})
    report = icevirt.build(files, repo_path, concat_dim="time", scan_options={"drop_variables": "other"}, combine_options={"missing": "reserve"})  # fmt: skip
    found = held(repo_path)
    assert found.shape[0] == 9
    np.testing.assert_array_equal(found[:3], raw(files[:1]))
    np.testing.assert_array_equal(found[6:], raw(files[2:]))
    assert (found[3:6] == -9).all()
    assert (counts(report).virtual, counts(report).native) == (3, 1)


def test_a_file_that_changed_since_the_scan_stops_the_build(tmp_path, repo_path):
    """It is held against the scan before it is read again."""
    files = names(tmp_path, 2)
    write(files[0], 0, 5)
    write(files[1], 5, 6)
    icevirt.plan(files, concat_dim="time", catalog=str(tmp_path / "catalog"))
    from icevirt.api.dataset import planning as build_module

    combine = build_module.combine_eras

    def late(facts, wish):
        made = combine(facts, wish)
        write(files[1], 5, 6, compression_opts=9)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "combine_eras", late)
        with pytest.raises(icevirt.errors.SourcesChangedError, match="changed since the scan"):
            icevirt.build(files, repo_path, concat_dim="time")


def test_the_same_files_give_the_same_objects(tmp_path):
    """Names of stored chunks follow from their bytes."""
    files = names(tmp_path, 2)
    write(files[0], 0, 5)
    write(files[1], 5, 6)
    found = []
    for name in ("one", "two"):
        icevirt.build(files, str(tmp_path / name), concat_dim="time")
        found.append(sorted(each.name for each in (tmp_path / name / "chunks").iterdir()))
    assert found[0] == found[1]
    assert len(found[0]) >= 4


def test_classic_files_are_read_by_netcdf(tmp_path, repo_path):
    """A file of another format between NetCDF-4 ones."""
    files = names(tmp_path, 3)
    for number, path in enumerate(files):
        write(path, 4 * number, 4)
    with netCDF4.Dataset(files[1], "w", format="NETCDF3_CLASSIC") as file:
        for name, length in (("time", None), ("y", WIDE[0]), ("x", WIDE[1])):
            file.createDimension(name, length)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(4, 8)
        for name, length in zip(("y", "x"), WIDE, strict=True):
            file.createVariable(name, "f4", (name,))[:] = np.arange(length)
        data = file.createVariable("data", "f4", ("time", "y", "x"))
        data.units = "K"
        data[:] = 5
    report = icevirt.build(
        files, repo_path, concat_dim="time", combine_options={"on_mismatch": "native"}
    )
    found = held(repo_path)
    assert (found[4:8] == 5).all()
    np.testing.assert_array_equal(found[:4], raw(files[:1]))
    assert (counts(report).virtual, counts(report).native + counts(report).inline) == (4, 2)


def test_stacked_files_may_differ_too(tmp_path, repo_path):
    """The new axis is not in the files."""
    files = names(tmp_path, 3)
    for number, path in enumerate(files):
        write(path, 0, 4, chunk=1 if number == 1 else 2)
        with h5py.File(path, "r+") as file:
            file["data"][...] += number
    report = icevirt.build(
        files,
        repo_path,
        concat_dim="member",
        combine_options={"labels": ["a", "b", "c"], "on_mismatch": "native"},
    )
    parts = []
    for path in files:
        with h5py.File(path) as file:
            parts.append(file["data"][...])
    np.testing.assert_array_equal(held(repo_path), np.stack(parts))
    assert (counts(report).virtual, counts(report).native) == (4, 2)


@pytest.mark.parametrize(
    "wrong", [{"on_mismatch": "maybe"}, {"chunk_grid": "hexagonal"}, {"float_variables": "dta"}]
)
def test_an_unknown_rule_or_variable_is_refused(tmp_path, repo_path, wrong):
    files = names(tmp_path, 1)
    write(files[0], 0, 2)
    with pytest.raises(InvalidInputError, match=r"unknown|no file has this variable"):
        icevirt.build(files, repo_path, concat_dim="time", **grouped(wrong))


@st.composite
def archives(draw):
    """Some files: lengths, chunks, types, filters, packing."""
    usual = {
        "chunk": draw(st.integers(1, 5)),
        "dtype": draw(st.sampled_from(["f4", "i2", "u1", ">i4"])),
        "space": draw(st.sampled_from([None, (300, 100)])),
    }
    files = []
    for _ in range(draw(st.integers(2, 4))):
        how = dict(usual)
        if draw(st.integers(0, 2)) == 0:
            how["chunk"] = draw(st.integers(1, 7))
            how["dtype"] = draw(st.sampled_from([usual["dtype"], "f8", "i2"]))
            how["shuffle"] = draw(st.booleans())
        if draw(st.integers(0, 3)) == 0:
            how["packing"] = {"scale_factor": np.float64(draw(st.sampled_from([1.0, 0.5, 3.0])))}
        files.append((draw(st.integers(3, 9)), how))
    return files


@pytest.mark.ci
@settings(max_examples=8, suppress_health_check=list(HealthCheck), deadline=None)
@given(archives(), st.sampled_from(["regular", "rectilinear"]))
def test_whatever_the_files_values_are_theirs_or_the_build_stops(tmp_path_factory, made, grid):
    """Decoded values equal xarray's of each file; undecoded ones h5py's where packing is one."""
    folder = tmp_path_factory.mktemp("hybrid")
    files, begin = names(folder, len(made)), 0
    for path, (steps, how) in zip(files, made, strict=True):
        write(path, begin, steps, **how)
        begin += steps
    repo = str(folder / "repo")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        report = None
        unlike = len({str(how.get("packing")) + how["dtype"] for _, how in made}) > 1
        with contextlib.suppress(*[CombineError] * unlike):
            report = icevirt.build(
                files,
                repo,
                concat_dim="time",
                combine_options={"on_mismatch": "native", "chunk_grid": grid},
            )
        if report is None:
            return
        ours = xr.open_dataset(
            repo, engine="icevirt", decode_times=False,
            authorize_virtual_chunk_access=report.containers,
        )["data"].load()  # fmt: skip
        theirs = np.concatenate([each.values for each in decoded(files)])
        np.testing.assert_array_equal(ours.values, theirs)
        if len({str(how.get("packing")) for _, how in made}) == 1:
            np.testing.assert_array_equal(held(repo), raw(files))


def test_a_worker_reads_in_a_process_apart(tmp_path, repo_path, monkeypatch):
    """Values, errors and changes come back from there."""
    from icevirt.tasks import source_values

    monkeypatch.setattr(source_values, "in_worker", lambda: True)
    files = names(tmp_path, 2)
    write(files[0], 0, 5)
    write(files[1], 5, 6)
    report = icevirt.build(files, repo_path, concat_dim="time")
    np.testing.assert_array_equal(held(repo_path), raw(files))
    assert counts(report).native == 4
    with h5py.File(files[1], "r+") as file:
        info = file["data"].id.get_chunk_info(1)
    body = bytearray(Path(files[1]).read_bytes())
    body[info.byte_offset + 10 : info.byte_offset + 40] = bytes(30)
    Path(files[1]).write_bytes(body)
    with pytest.raises(icevirt.errors.ScanError) as caught:
        icevirt.build(files, str(tmp_path / "damaged"), concat_dim="time")
    assert "f01.nc" in str(caught.value)


@pytest.mark.ci
def test_hybrid_arrays_are_written_by_spark(tmp_path, repo_path, spark):
    """Several tasks, each with a part of the chunks."""
    files, begin = names(tmp_path, 5), 0
    for path, steps in zip(files, (7, 8, 6, 9, 5), strict=True):
        write(path, begin, steps)
        begin += steps
    report = icevirt.build(files, repo_path, concat_dim="time", executor=spark)
    np.testing.assert_array_equal(held(repo_path), raw(files))
    assert (counts(report).virtual, counts(report).native) == (6, 12)
