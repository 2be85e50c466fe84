"""Files of a forecast that arrive over time are appended flat, and make what one build makes."""

from itertools import product

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, official, opened
from icevirt.api.dataset import stored_tail
from icevirt.errors import CombineError
from icevirt.planning import filled_cells, lengthened
from icevirt.planning.schedule.write_tasks import window_of
from long_forms import cases
from scanners.grib.grib_files import by_eccodes, message

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

RUNS, LEADS, RESERVING = (20240101, 20240102, 20240103), (0, 6, 12), {"missing": "reserve"}
ENSEMBLE = {"productDefinitionTemplateNumber": 1, "typeOfEnsembleForecast": 3}


def field(run, lead, name="2t", member=None):
    more = {} if member is None else {**ENSEMBLE, "number": member}
    number = np.arange(12.0) + run % 100 + lead * 100 + 7 * (member or 0)
    return message(shortName=name, dataDate=run, forecastTime=lead, values=number, **more)


def write(folder, run, lead, member=None, again=""):
    path = folder / "files" / f"{run}_{lead:03}_{member}{again}.grib2"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(field(run, lead, name, member) for name in ("2t", "sp")))
    return str(path)


def assert_as_if_built(folder, repo, files, **options):
    """Compare with one build of all files, in icevirt and the official client."""
    whole = str(folder / "whole")
    icevirt.build(files, whole, **options)
    assert_same_dataset(opened(repo), opened(whole))
    store = official(repo).readonly_session("main").store
    theirs, ours = xr.open_zarr(store, consolidated=False, chunks=None), opened(repo)
    for name in ours.variables:
        np.testing.assert_array_equal(ours[name].values, theirs[name].values, err_msg=name)
    session = icevirt.Repository.open(repo).readonly_session("main")
    for node in session.snapshot.nodes:
        boxes = [each.extents for each in getattr(node, "manifests", ())]
        for at, one in enumerate(boxes):  # the official client looks into the first that fits
            for other in boxes[:at]:
                assert any(a[0] >= b[1] or b[0] >= a[1] for a, b in zip(one, other, strict=True))


@pytest.fixture
def first(tmp_path):
    return [write(tmp_path, RUNS[0], lead) for lead in LEADS]


def batches_of(how):
    arriving = [(run, lead) for run in RUNS[1:] for lead in LEADS]
    if how == "runs":
        return [[each for each in arriving if each[0] == run] for run in RUNS[1:]]
    if how == "leads in any order":
        return [[arriving[at]] for at in (2, 0, 1, 4, 3, 5)]
    by_lead = how == "two runs at once"
    return [[each] for each in sorted(arriving, key=lambda each: (by_lead and each[1], each[0]))]


@pytest.mark.parametrize(
    ("how", "most"),
    cases(
        product(("runs", "leads", "leads in any order", "two runs at once"), (50_000, 9)),
        ("runs", 50_000), ("leads in any order", 9),
    ),
)  # fmt: skip
def test_runs_and_leads_that_arrive_are_appended_flat(how, most, first, tmp_path, monkeypatch):
    """A new run makes ``time`` longer; its other leads fill the places that it reserved."""
    monkeypatch.setattr(stored_tail, "HOT_REFERENCES", most)
    repo, files = str(tmp_path / "repo"), [*first]
    options = {"concat_dim": ["time", "step"], "combine_options": RESERVING}
    icevirt.build(files, repo, **options)
    for batch in batches_of(how):
        new = [write(tmp_path, *each) for each in batch]
        assert icevirt.append(new, repo).flat
        files += new
    assert_as_if_built(tmp_path, repo, files, **options)
    with xr.open_dataset(
        repo, engine="icevirt", authorize_virtual_chunk_access=[f"file://{tmp_path}/files/"]
    ) as found:
        for at, run in enumerate(RUNS):
            wanted = [by_eccodes(field(run, lead)).values for lead in LEADS]
            np.testing.assert_array_equal(found.t2m[at].values.reshape(len(LEADS), -1), wanted)


def test_members_that_arrive_are_appended_flat(tmp_path):
    options = {"concat_dim": ["time", "number", "step"], "combine_options": RESERVING}
    places = [(run, lead, member) for run in RUNS[:2] for lead in LEADS[:2] for member in (0, 1)]
    files = [write(tmp_path, *each) for each in places]
    repo = str(tmp_path / "repo")
    icevirt.build(files[:4], repo, **options)
    for each in (files[5:6], files[4:5], files[6:]):
        assert icevirt.append(each, repo).flat
    assert_as_if_built(tmp_path, repo, files, **options)


def test_a_run_that_lacks_leads_is_refused_unless_places_are_reserved(first, tmp_path):
    repo = str(tmp_path / "repo")
    icevirt.build(first, repo, concat_dim=["time", "step"])
    run = [write(tmp_path, RUNS[1], lead) for lead in LEADS]
    with pytest.raises(CombineError, match="missing at 1 of 6 file positions"):
        icevirt.append(run[1:], repo)
    assert icevirt.append(run, repo).flat
    assert opened(repo).sizes["time"] == 2


def test_a_second_file_of_a_lead_is_no_flat_append(first, tmp_path):
    """It would go over references that are there."""
    repo = str(tmp_path / "repo")
    icevirt.build(first, repo, concat_dim=["time", "step"], combine_options=RESERVING)
    other = write(tmp_path, RUNS[0], LEADS[1], again="again")
    with pytest.raises(CombineError, match="same"):
        icevirt.append(other, repo)
    earlier = write(tmp_path, 20231231, LEADS[1])
    assert not icevirt.append(earlier, repo).flat
    assert_as_if_built(
        tmp_path, repo, [*first, earlier], concat_dim=["time", "step"], combine_options=RESERVING
    )


@pytest.mark.parametrize("dims", [["time", "step"], "time"])
def test_new_files_may_lie_in_several_windows(dims, first, tmp_path, monkeypatch):
    """Each window is a table of its own; what a manifest holds is put beside them once."""
    for module in (filled_cells, lengthened):
        monkeypatch.setattr(module, "window_of", lambda grid, axis, _: window_of(grid, axis, 3))
    options = {"concat_dim": dims, "combine_options": RESERVING}
    leads, repo = LEADS if len(dims) == 2 else LEADS[:1], str(tmp_path / "repo")
    files = first[: len(leads)]
    icevirt.build(files, repo, **options)
    for runs in ((20240102,), (20240103, 20240104, 20240105)):
        new = [write(tmp_path, run, leads[-1]) for run in runs]
        assert icevirt.append(new, repo).flat
        files = files + new
    assert_as_if_built(tmp_path, repo, files, **options)


def write_small(folder, run, lead, *names, again=""):
    """Write a file of chunks, and of values that the repository stores."""
    path = folder / f"{again}_{run}_{lead}.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 4000)
        for name in names:
            dims = ("x",) if name == "field" else ()
            file.createVariable(name, "f8", dims, fill_value=np.nan)[...] = run * 100 + lead
    return str(path)


def test_a_file_that_lacks_stored_values_is_refused_as_a_build_refuses_it(tmp_path):
    repo = str(tmp_path / "repo")
    options = {"labels": "*_{init:d}_{lead:d}.nc"}
    run = [write_small(tmp_path, 1, lead, "field", "gust") for lead in (0, 6)]
    icevirt.build(run, repo, concat_dim=["init", "lead"], combine_options=options)
    new = [write_small(tmp_path, 2, 0, "field", "gust"), write_small(tmp_path, 2, 6, "field")]
    with pytest.raises(CombineError, match="/gust is missing at 1 of 4"):
        icevirt.append(new, repo)
    write_small(tmp_path, 2, 6, "field", "gust")
    assert icevirt.append(new, repo).flat


def test_a_second_file_of_values_that_are_all_stored_is_refused(tmp_path):
    """There are no references that would meet; equal values, or those of a place, say nothing."""
    repo = str(tmp_path / "repo")
    options = {"labels": "*_{init:d}_{lead:d}.nc", "missing": "reserve"}
    places = [(run, lead) for run in (1, 2, 3) for lead in (0, 6, 12)]
    files = [write_small(tmp_path, *each, "gust") for each in places]
    icevirt.build(files, repo, concat_dim=["init", "lead"], combine_options=options)
    with pytest.raises(CombineError, match="same step"):
        icevirt.append(write_small(tmp_path, 2, 6, "gust", again="again"), repo)
