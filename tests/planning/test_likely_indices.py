"""Indices that nothing calls so count elements of the dataset by the first command of the error."""

import h5py
import numpy as np
import pytest
import xarray as xr

import icevirt
from archives.random_proposals import change_call
from builds.support import verified
from icevirt.errors import CombineError

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def scale(group, name, values, **attrs):
    made = group.create_dataset(name, data=values)
    made.attrs.update(attrs)
    return made


def photons(path, number):
    """Write beams as ATL03 has them: the first photon of each segment, from 1; 0 where it has none."""
    with h5py.File(path, "w") as file:
        for beam, name in enumerate(("gt1l", "gt1r")):
            random = np.random.default_rng(10 * number + beam)
            count = random.integers(0, 6, 8 + number + beam)
            count[2], count[-1] = 0, 3
            first = np.where(count > 0, np.cumsum(count) - count + 1, 0)
            for group, steps, held in (
                ("heights", count.sum(), {"value": random.random(count.sum())}),
                ("geolocation", len(count), {"count": count, "ph_index_beg": first}),
            ):
                made = file.create_group(f"{name}/{group}")
                times = scale(made, "delta_time", 1000.0 * number + np.arange(steps) / steps,
                              units="seconds since 2018-01-01")  # fmt: skip
                times.make_scale("delta_time")
                for each, values in held.items():
                    made[each] = values
                    made[each].dims[0].attach_scale(times)


def waveforms(path, number):
    """Write beams as GEDI L1B has them: dimensions have no names."""
    with h5py.File(path, "w") as file:
        for beam in range(2):
            random = np.random.default_rng(10 * number + beam)
            count = random.integers(3, 9, 7 + number + beam)
            made = file.create_group(f"BEAM000{beam}")
            made["count"] = count
            made["rx_sample_start_index"] = np.cumsum(count) - count + 1
            made["value"] = random.random(count.sum())


KINDS = {
    "ATL03": (photons, "geolocation", "heights", "ph_index_beg"),
    "GEDI": (waveforms, "", "", "rx_sample_start_index"),
}


def runs(opened, beams, kind):
    """Return the values that each number leads to, by beam."""
    _, rows, values, index = KINDS[kind]
    found = {}
    for beam in beams:
        held = opened(f"{beam}/{rows}".rstrip("/"))
        of = np.asarray(opened(f"{beam}/{values}".rstrip("/"))["value"])
        pairs = zip(*(np.asarray(held[each]).tolist() for each in (index, "count")), strict=True)
        found[beam] = [of[at - 1 : at - 1 + n].tolist() if at else [] for at, n in pairs]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_command_lets_numbers_lead_to_the_same_values(kind, tmp_path):
    files = [str(tmp_path / f"{number}.h5") for number in range(3)]
    for number, path in enumerate(files):
        KINDS[kind][0](path, number)
    call: dict = {}
    with pytest.raises(CombineError) as caught:
        icevirt.plan(files, **call)
    call = change_call(call, caught.value.fixes[0])
    repo, access = tmp_path / "repo", [f"{tmp_path.as_uri()}/"]
    icevirt.build(files[:2], repo, **call)
    icevirt.append(files[2:], repo)
    with h5py.File(files[0]) as file:
        beams = [*file]
    wanted: dict = {beam: [] for beam in beams}
    for path in files:
        with h5py.File(path) as file:
            for beam, own in runs(file.__getitem__, beams, kind).items():
                wanted[beam] += own
    shown = runs(
        lambda group: xr.open_dataset(
            repo, engine="icevirt", group=group, authorize_virtual_chunk_access=access
        ),
        beams,
        kind,
    )
    assert shown == wanted
    verified(repo, access)


def test_a_person_says_that_it_is_no_index(tmp_path):
    files = [str(tmp_path / f"{number}.h5") for number in range(2)]
    for number, path in enumerate(files):
        photons(path, number)
    with pytest.raises(CombineError, match="seem to number elements along 'delta_time'") as caught:
        icevirt.plan(files)
    icevirt.build(files, tmp_path / "repo", **change_call({}, caught.value.fixes[1]))
    held = xr.open_dataset(
        tmp_path / "repo",
        engine="icevirt",
        group="gt1l/geolocation",
        authorize_virtual_chunk_access=[f"{tmp_path.as_uri()}/"],
    )
    with h5py.File(files[0]) as one, h5py.File(files[1]) as other:
        own = [each["gt1l/geolocation/ph_index_beg"][:] for each in (one, other)]
    assert held.ph_index_beg.values.tolist() == np.concatenate(own).tolist()
