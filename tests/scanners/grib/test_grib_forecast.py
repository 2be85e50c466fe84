"""Files of a forecast become one cube, whose names, coordinates and values are cfgrib's."""

import shutil
from datetime import datetime
from itertools import product

import gribberish
import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import CombineError, ScanError, StorageError, UnsupportedError
from icevirt.model.chunks import ChunkType
from icevirt.scan import values
from icevirt.tasks.forkserver import Apart
from icevirt_scanners.grib import by_eccodes as oracle
from long_forms import cases
from scanners.grib.grib_files import ACCUMULATED, by_eccodes, message, put, several
from scanners.materialise import materialise

RUNS, LEADS, LEVELS = (20240101, 20240102), (0, 6, 12), (850, 500)


def fields(run, lead):
    """Yield the messages of one lead of a run; the first lead has no precipitation."""
    when = {"dataDate": run, "forecastTime": lead}
    number = np.arange(12.0) + run % 100 + lead * 100
    for level in LEVELS:
        yield message(
            "regular_ll_pl_grib2", shortName="t", level=level, values=number + level, **when
        )
    yield message(shortName="2t", values=number, **when)
    if lead:
        window = {"lengthOfTimeRange": lead, "dataDate": run, "forecastTime": 0}
        yield message(**ACCUMULATED, shortName="tp", values=number / 10, **window)


@pytest.fixture(scope="module")
def forecast(tmp_path_factory):
    """Files of one lead each, and a repository of them."""
    folder = tmp_path_factory.mktemp("forecast")
    for run in RUNS:
        for lead in LEADS:
            (folder / f"{run}_{lead:03d}.grib2").write_bytes(b"".join(fields(run, lead)))
    icevirt.build(
        [f"{folder}/*.grib2"], str(folder / "repo"), combine_options={"missing": "reserve"},
        executor="in-process",
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def opened(forecast):
    with xr.open_dataset(
        str(forecast / "repo"),
        engine="icevirt",
        authorize_virtual_chunk_access=[f"file://{forecast}/"],
    ) as found:
        yield found


@pytest.mark.parametrize("kind", ["isobaricInhPa", "heightAboveGround", "surface"])
def test_a_file_is_a_part_of_the_cube_as_cfgrib_reads_it(kind, forecast, opened):
    keys = {"indexpath": "", "filter_by_keys": {"typeOfLevel": kind}}
    theirs = xr.open_dataset(
        forecast / f"{RUNS[1]}_012.grib2", engine="cfgrib", backend_kwargs=keys
    )
    (name,) = theirs.data_vars
    mine = opened[name].sel(time=theirs.time, step=theirs.step)
    np.testing.assert_array_equal(mine.values.astype("f4"), theirs[name].values)
    assert mine.dims == theirs[name].dims
    for coordinate in {*theirs.coords} - {"heightAboveGround", "surface"}:
        xr.testing.assert_equal(mine[coordinate].variable, theirs[coordinate].variable)
    for attribute in ("GRIB_paramId", "GRIB_typeOfLevel", "units", "long_name", "standard_name"):
        assert mine.attrs.get(attribute, "unknown") == theirs[name].attrs[attribute]


def test_steps_without_a_message_read_as_missing(opened):
    assert np.isnan(opened.tp.isel(step=0)).all()
    assert not np.isnan(opened.tp.isel(step=[1, 2])).any()
    assert opened.tp.attrs["time_window"] == "from time to valid_time"


def test_other_chunks_of_a_message_are_stored_by_a_codec_that_has_an_encoder(
    forecast, opened, tmp_path
):
    repo = str(shutil.copytree(forecast / "repo", tmp_path / "repo"))
    icevirt.materialize(
        repo, "t", beside=True, chunks={"time": 2, "step": 3}, executor="in-process",
        authorize_virtual_chunk_access=[f"file://{forecast}/"],
    )  # fmt: skip
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(repo))
    twin = zarr.open_group(theirs.readonly_session("main").store, mode="r")["t_twin"]
    assert twin.chunks[:2] == (2, 3)
    np.testing.assert_array_equal(twin[...], opened.t.values)


@pytest.mark.ci
def test_verification_asks_eccodes(forecast):
    found = verify(forecast)
    assert found.ok, str(found)


def verify(folder):
    return icevirt.verify(
        str(folder / "repo"), executor="in-process",
        authorize_virtual_chunk_access=[f"file://{folder}/"],
    )  # fmt: skip


@pytest.mark.parametrize(("more", "is_sound"), [(0, True), (1 << 8, False)])
def test_verification_knows_the_rounding_of_the_codec_only(more, is_sound, tmp_path, monkeypatch):
    """A decimal scale factor of 7 is decoded otherwise by the last bits."""
    body = put(message(shortName="t"), 5, 18, b"\0\x07")
    (tmp_path / "a.grib2").write_bytes(body)
    icevirt.build(tmp_path / "a.grib2", tmp_path / "repo", executor="in-process")
    read = oracle.decode
    assert (read(body, 0, file="", number=1) != gribberish.parse_grib_array(body, 0)).any()

    def shifted(*args, **facts):
        values = read(*args, **facts)
        return values + more * np.spacing(values)

    monkeypatch.setattr(oracle, "decode", shifted)
    monkeypatch.setattr(Apart, "call", lambda _, __, work, *args: work(*args))
    assert verify(tmp_path).ok == is_sound


class PanicException(BaseException):
    """What a panic in Rust is."""

    __module__ = "pyo3_runtime"


def test_a_panic_of_the_codec_is_an_error_that_names_the_chunk(forecast, monkeypatch):
    def panic(*_):
        raise PanicException("range out of bounds")

    monkeypatch.setattr("gribberish.zarr.codec.parse_grib_array", panic)
    where = str(forecast / "repo")
    access = {"authorize_virtual_chunk_access": [f"file://{forecast}/"]}
    session = icevirt.Repository.open(where, **access).readonly_session("main")
    array = zarr.open_array(session.store, path="t2m", mode="r")
    dataset = xr.open_dataset(where, engine="icevirt", **access)
    for read in (lambda: array[1, 2], lambda: dataset.t2m.isel(time=1, step=2).load()):
        with pytest.raises(StorageError, match="cannot be decoded") as caught:
            read()
        facts = caught.value.facts
        assert facts["chunk"] == [1, 2, 0, 0]
        assert facts["location"].endswith(f"{RUNS[1]}_012.grib2")
        assert "range out of bounds" in facts["reason"]
    scanned = scan_file(forecast / f"{RUNS[0]}_000.grib2")
    body = (forecast / f"{RUNS[0]}_000.grib2").read_bytes()
    with pytest.raises(ScanError, match="range out of bounds"):
        values.read(scanned.arrays[-1], lambda _, begin, length: body[begin : begin + length])


# names of files of services by run, lead and parameter; and their pattern
NAMES = {
    "GFS": (
        "gfs.{0:%Y%m%d}/{0:%H}/atmos/gfs.t{0:%H}z.pgrb2.0p25.f{1:03d}",
        "gfs.{init:%Y%m%d}/{init:%H}/atmos/gfs.t*z.pgrb2.0p25.f{lead:d}",
    ),
    "HRRR": (
        "hrrr.{0:%Y%m%d}/conus/hrrr.t{0:%H}z.wrfsfcf{1:02d}.grib2",
        "hrrr.{init:%Y%m%d}/conus/hrrr.t{init:%H}z.wrfsfcf{lead:d}.grib2",
    ),
    "IFS": (
        "{0:%Y%m%d}/{0:%H}z/ifs/0p25/oper/{0:%Y%m%d%H}0000-{1}h-oper-fc.grib2",
        "{init:%Y%m%d%H}0000-{lead:d}h-oper-fc.grib2",
    ),
    "ICON, a file for each parameter": (
        "{0:%H}/{2}/icon_global_icosahedral_single-level_{0:%Y%m%d%H}_{1:03d}_{2}.grib2",
        None,
    ),
    "AROME": (
        "{0:%Y-%m-%dT%H}:00:00Z/0025/SP1/arome__0025__SP1__{1:02d}H__{0:%Y-%m-%dT%H}:00:00Z.grib2",
        "arome__0025__SP1__{lead:d}H__{init:%Y-%m-%dT%H}:00:00Z.grib2",
    ),
}
HOURS, STEPS = ("2024-01-01T00", "2024-01-01T12", "2024-01-02T00", "2024-01-02T12"), (3, 6)


@pytest.mark.parametrize(
    ("service", "is_named"),
    cases(
        [
            (each, is_named)
            for each, (_, pattern) in NAMES.items()
            for is_named in {False, bool(pattern)}
        ],
        ("GFS", True),
        ("ICON, a file for each parameter", False),
    ),
)
def test_files_called_as_services_call_them_are_one_cube(service, is_named, tmp_path):
    name, pattern = NAMES[service]
    for hour, lead in product(HOURS, STEPS):
        run = datetime.fromisoformat(hour)
        when = {"dataDate": int(f"{run:%Y%m%d}"), "dataTime": run.hour * 100, "forecastTime": lead}
        bodies = {
            each: message(
                shortName=each, values=np.full(12, run.day * 1000 + run.hour * 10 + lead), **when
            )
            for each in ("2t", "sp")
        }
        for each, body in bodies.items():
            path = tmp_path / "in" / name.format(run, lead, each)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((path.read_bytes() if path.exists() else b"") + body)
    dims = ("init", "lead") if is_named else ("time", "step")
    how = {"labels": pattern, "rename": {"time": "init", "step": "lead"}} if is_named else {}
    icevirt.build(
        f"{tmp_path}/in/**/*", str(tmp_path / "repo"), combine_options=how, executor="in-process"
    )
    with xr.open_dataset(
        str(tmp_path / "repo"), engine="icevirt",
        authorize_virtual_chunk_access=[f"file://{tmp_path}/in/"],
    ) as found:  # fmt: skip
        assert found.t2m.dims == found.sp.dims == (*dims, "latitude", "longitude")
        assert found[dims[0]].values.astype("M8[h]").astype(str).tolist() == [*HOURS]
        leads = found[dims[1]].values
        assert (leads if is_named else leads.astype("m8[h]").astype(int)).tolist() == [*STEPS]
        runs = map(datetime.fromisoformat, HOURS)
        wanted = [[run.day * 1000 + run.hour * 10 + lead for lead in STEPS] for run in runs]
        for each in (found.t2m, found.sp):
            assert (each.values == np.array(wanted)[..., None, None]).all()


def test_what_is_missing_at_some_leads_is_not_reserved_unasked(forecast):
    with pytest.raises(CombineError, match="variable /tp is missing"):
        icevirt.plan([f"{forecast}/*.grib2"], executor="in-process")


WINDOWS = ((0, 3), (0, 6), (3, 6))


def test_windows_are_told_apart(tmp_path):
    body = b"".join(
        message(
            **ACCUMULATED, shortName="tp", forecastTime=begin, lengthOfTimeRange=end - begin,
            values=np.full(12, begin * 10.0 + end),
        )
        for begin, end in WINDOWS
    )  # fmt: skip
    (tmp_path / "a.grib2").write_bytes(body)
    held = {array.path: materialise(array) for array in scan_file(tmp_path / "a.grib2").arrays}
    assert held["/step"].tolist() == [3, 6]
    assert held["/tp"][0, :, 0, 0].tolist() == [3, 6]
    np.testing.assert_array_equal(held["/tp_3h"][0, :, 0, 0], [np.nan, 36])


def test_members_are_a_dimension(tmp_path):
    body = b"".join(
        message(productDefinitionTemplateNumber=1, perturbationNumber=n, values=np.full(12, n))
        for n in (3, 0, 1)
    )
    (tmp_path / "a.grib2").write_bytes(body)
    held = {array.path: array for array in scan_file(tmp_path / "a.grib2").arrays}
    variable = held["/t_surface"]
    assert variable.dimension_names[:3] == ("time", "step", "number")
    assert materialise(held["/number"]).tolist() == [0, 1, 3]
    assert materialise(variable)[0, 0, :, 0, 0].tolist() == [0, 1, 3]


def test_a_message_that_is_there_twice_counts_once(tmp_path):
    (tmp_path / "a.grib2").write_bytes(message() * 2)
    found = scan_file(tmp_path / "a.grib2")
    assert len(found.arrays[-1].references) == 1
    assert found.findings[0].code == "messages-repeated"


def test_two_messages_of_one_place_are_refused(tmp_path):
    (tmp_path / "a.grib2").write_bytes(message() + message(values=np.zeros(12)))
    with pytest.raises(UnsupportedError, match="same variable, time, step and level") as caught:
        scan_file(tmp_path / "a.grib2")
    assert caught.value.facts["messages"] == [1, 2]


def test_later_fields_of_a_message_are_refused_or_stored(tmp_path):
    bodies = [message(shortName="10u"), message(shortName="10v", values=np.arange(12) * 2.0)]
    (tmp_path / "a.grib2").write_bytes(several(*bodies))
    with pytest.raises(UnsupportedError, match="not the first field of its message") as caught:
        scan_file(tmp_path / "a.grib2")
    assert "grib_copy" in str(caught.value.do)
    options = {"variable_policy": {"v10": "native"}}
    found = {a.path: a for a in scan_file(tmp_path / "a.grib2", scan_options=options).arrays}
    for name, body in zip(("/u10", "/v10"), bodies, strict=True):
        values = by_eccodes(body).values.reshape(1, 1, 3, 4)
        np.testing.assert_array_equal(materialise(found[name]), values)
    access = [f"file://{tmp_path}/"]
    repo, where = tmp_path / "repo", {"executor": "in-process"}
    icevirt.build(tmp_path / "a.grib2", repo, scan_options=options, **where)
    seen = icevirt.verify(repo, full=True, authorize_virtual_chunk_access=access, **where).checked
    assert {"/u10", "/v10"} <= seen.compared
    assert not seen.not_compared


def test_all_of_a_map_is_stored_where_asked(tmp_path):
    """The places of its points, too, which else a codec computes."""
    cone = {"Latin1InDegrees": 30, "Latin2InDegrees": 30, "jScansPositively": 1}
    (tmp_path / "a.grib2").write_bytes(message("GRIB2", gridType="lambert", Nx=4, Ny=3, **cone))
    referred = {a.path: a for a in scan_file(tmp_path / "a.grib2").arrays}
    options = {"variable_policy": {"*": "native"}}
    for array in scan_file(tmp_path / "a.grib2", scan_options=options).arrays:
        assert not array.references.count(ChunkType.virtual)
        np.testing.assert_array_equal(materialise(array), materialise(referred[array.path]))


def test_a_local_section_changes_nothing(tmp_path):
    (tmp_path / "a.grib2").write_bytes(message(setLocalDefinition=1, localDefinitionNumber=1))
    found = scan_file(tmp_path / "a.grib2")
    assert found.arrays[-1].path == "/t_surface"
    assert len(materialise(found.arrays[-1])) == 1


def test_a_parameter_that_no_table_knows_is_called_by_its_numbers(tmp_path):
    body = message(parameterCategory=191, parameterNumber=7)
    (tmp_path / "a.grib2").write_bytes(body)
    assert scan_file(tmp_path / "a.grib2").arrays[-1].path == "/param_0_191_7_center_98_surface"
