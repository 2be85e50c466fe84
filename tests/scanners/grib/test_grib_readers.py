"""One dataset of every kind of message, in icevirt and in a fresh process of the official client."""

import subprocess
import sys
from itertools import product

import numpy as np
import pytest

import icevirt
from icevirt_scanners.grib.grids import name_grid
from long_forms import cases
from scanners.grib.grib_files import ACCUMULATED, by_eccodes, find_section, message
from scanners.grib.test_grib_corpus import GRIDS, PACKINGS, SCANNED

RUNS = (20240101, 20240102)
KINDS = {
    "values": {},
    "some missing": {"bitmap": True},
    "one number": {"values": 3.25},
    "one number, some missing": {"values": 3.25, "bitmap": True},
    "a local section": {"setLocalDefinition": 1, "localDefinitionNumber": 1},
    "24 bits": {"bitsPerValue": 24},
}
ON = {name: keys for name, keys in GRIDS.items() if "sample" in keys} | {
    f"scanned in order {number}": keys for number, keys in enumerate(SCANNED)
}
ON |= {
    "unstructured": {"sample": "GRIB2", "gridType": "unstructured_grid"}
    | {"numberOfDataPoints": 50, "numberOfGridUsed": 26},
    "HEALPix": {"sample": "GRIB2", "gridType": "healpix", "Nside": 2, "numberOfDataPoints": 48}
    | {"orderingConvention": "nested", "longitudeOfFirstGridPointInDegrees": 45},
}
ON["Lambert, two parallels, WGS 84"] |= {"Nx": 6}  # the name of a grid says no parallels
STEPS = [*product(PACKINGS, KINDS)]  # a step of each
PRESSURE = {"typeOfFirstFixedSurface": 100, "scaleFactorOfFirstFixedSurface": 0}
# by name: keys, and where the field is along the level or the members
WHAT = {
    "t": (PRESSURE | {"scaledValueOfFirstFixedSurface": 85000}, {"isobaricInhPa": 850.0}),
    "t_heightAboveGround": (
        {"typeOfFirstFixedSurface": 103, "scaleFactorOfFirstFixedSurface": 0}
        | {"scaledValueOfFirstFixedSurface": 80},
        {"heightAboveGround": 80.0},
    ),
    "tp_1h": (ACCUMULATED | {"shortName": "tp", "lengthOfTimeRange": 1}, {}),
    "max_t_surface_1h": (
        ACCUMULATED | {"typeOfStatisticalProcessing": 2, "lengthOfTimeRange": 1},
        {},
    ),
    "t_surface": (
        {"productDefinitionTemplateNumber": 1, "perturbationNumber": 3},
        {"number": 3},
    ),
}
EVERY = [*product(ON, range(len(STEPS)), WHAT)]
FEW = [
    *product(("scanned in order 0",), range(len(STEPS)), ("t",)),
    *((name, at, "t") for at, name in enumerate(ON)),
    *(("rotated", at, name) for at, name in enumerate(WHAT)),
]
# prints nothing: it leaves the values of all arrays in a file
OFFICIAL = """
import sys
import icechunk, numpy as np, xarray as xr
from icechunk.credentials import LocalFileSystemAccess

repo, place, kept, groups = *sys.argv[1:4], sys.argv[4:]
session = icechunk.Repository.open(
    icechunk.local_filesystem_storage(repo),
    authorize_virtual_chunk_access={place: LocalFileSystemAccess},
).readonly_session("main")
held = {}
for group in groups:
    with xr.open_zarr(session.store, group=group, consolidated=False, chunks=None) as found:
        held |= {f"{group}/{name}": found[name].values for name in found.variables}
assert not any(name.startswith("icevirt") for name in sys.modules)
np.savez(kept, **held)
"""


def bodies(run):
    """Yield the messages of a run, and what ecCodes reads in each."""
    for name, number, what in dict.fromkeys(cases(EVERY, *FEW)):
        packing, kind = STEPS[number]
        keys, place = WHAT[what]
        lead = {"dataDate": run, "forecastTime": number + 2 - ("1h" in what)}
        try:
            body = message(packing=packing, **ON[name] | KINDS[kind] | keys | lead)
        except AssertionError:
            continue  # ecCodes writes constant fields in the simple packing
        at = find_section(body, 3)
        group = name_grid(body[at : at + int.from_bytes(body[at : at + 4], "big")])
        yield (
            body,
            (group, what, {"time": str(run), "step": np.timedelta64(number + 2, "h")} | place),
        )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder, wanted = tmp_path_factory.mktemp("corpus"), []
    for run in RUNS:
        with (folder / f"{run}.grib2").open("wb") as file:
            for body, place in bodies(run):
                file.write(body)
                wanted.append((by_eccodes(body), place))
    options = {"scan_options": {"grids": "groups"}, "combine_options": {"missing": "reserve"}}
    icevirt.build(f"{folder}/*.grib2", folder / "repo", executor="in-process", **options)
    return folder, wanted


@pytest.mark.ci
def test_every_kind_of_message_is_read_as_eccodes_reads_it_by_both(corpus, tmp_path):
    folder, wanted = corpus
    access = f"{folder.as_uri()}/"
    tree = icevirt.open(str(folder / "repo"), authorize_virtual_chunk_access=access)
    held = {name: node.to_dataset().load() for name, node in tree.children.items()}
    assert len(held) == len(ON)
    for read, (group, name, place) in wanted:
        found = held[group][name].sel(place)
        np.testing.assert_array_equal(found.values.reshape(-1), read.values, str(place))
    compared = icevirt.verify(str(folder / "repo"), authorize_virtual_chunk_access=access)
    assert compared.ok
    program = [sys.executable, "-c", OFFICIAL, str(folder / "repo"), access]
    subprocess.run([*program, str(tmp_path / "theirs.npz"), *held], check=True, timeout=300)
    with np.load(tmp_path / "theirs.npz") as theirs:
        assert {*theirs} == {f"{group}/{name}" for group in held for name in held[group].variables}
        for name in theirs:
            group, _, variable = name.partition("/")
            np.testing.assert_array_equal(theirs[name], held[group][variable].values, name)
