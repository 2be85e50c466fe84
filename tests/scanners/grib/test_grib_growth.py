"""Files of a forecast that arrive over time are appended flat, and make what one build makes."""

import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, official, opened, opened_by_both
from icevirt.api.dataset import stored_tail
from long_forms import cases
from scanners.grib.grib_files import by_eccodes, message

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

RUNS, LEADS, RESERVING = (20240101, 20240102, 20240103), (0, 6, 12), {"missing": "reserve"}
ENSEMBLE = {"productDefinitionTemplateNumber": 1, "typeOfEnsembleForecast": 3}


def field(run, lead, name="2t", member=None):
    more = {} if member is None else {**ENSEMBLE, "perturbationNumber": member}
    number = np.arange(12.0) + run % 100 + lead * 100 + 7 * (member or 0)
    return message(shortName=name, dataDate=run, forecastTime=lead, values=number, **more)


def write(folder, run, lead, member=None, names=("2t", "sp")):
    path = folder / "files" / f"{run}_{lead:03}_{member}.grib2"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(field(run, lead, name, member) for name in names))
    return str(path)


def assert_as_if_built(folder, repo, dims, files, **options):
    """Compare with one build of all files, in icevirt and the official client."""
    whole = str(folder / "whole")
    report = icevirt.build(files, whole, concat_dim=dims, **options)
    assert_same_dataset(opened(repo), opened(whole))
    opened_by_both(repo, report)
    snapshot = icevirt.Repository.open(repo).readonly_session("main")
    for node in snapshot.snapshot.nodes:
        boxes = [each.extents for each in getattr(node, "manifests", ())]
        for at, one in enumerate(boxes):  # the official client looks into the first that fits
            for other in boxes[:at]:
                assert any(a[0] >= b[1] or b[0] >= a[1] for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("most", [50_000, 9], ids=["a manifest for all", "manifests that fill up"])
@pytest.mark.parametrize("how", ["runs", "leads", "leads in any order", "two runs at once"])
def test_runs_and_leads_that_arrive_are_appended_flat(how, most, tmp_path, monkeypatch):
    """A new run makes ``time`` longer; its other leads fill the places that it reserved."""
    monkeypatch.setattr(stored_tail, "HOT_REFERENCES", most)
    repo, first, later = str(tmp_path / "repo"), RUNS[:1], RUNS[1:]
    files = [write(tmp_path, run, lead) for run in first for lead in LEADS]
    icevirt.build(files, repo, concat_dim=["time", "step"], combine_options=RESERVING)
    arriving = [(run, lead) for run in later for lead in LEADS]
    if how == "runs":
        batches = [[each for each in arriving if each[0] == run] for run in later]
    elif how == "leads":
        batches = [[each] for each in arriving]
    elif how == "leads in any order":
        batches = [[arriving[at]] for at in (2, 0, 1, 4, 3, 5)]
    else:
        batches = [[each] for each in sorted(arriving, key=lambda each: (each[1], each[0]))]
    for batch in batches:
        new = [write(tmp_path, *each) for each in batch]
        assert icevirt.append(new, repo).flat
        files += new
    assert_as_if_built(tmp_path, repo, ["time", "step"], files, combine_options=RESERVING)
    with xr.open_dataset(
        repo, engine="icevirt", authorize_virtual_chunk_access=[f"file://{tmp_path}/files/"]
    ) as found:
        for at, run in enumerate(RUNS):
            wanted = [by_eccodes(field(run, lead)).values for lead in LEADS]
            np.testing.assert_array_equal(found.t2m[at].values.reshape(len(LEADS), -1), wanted)
