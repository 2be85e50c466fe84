"""Names, attributes and coordinates are those that cfgrib gives, where it is right."""

import numpy as np
import pytest
import xarray as xr

from icevirt.api.scan import scan_file
from scanners.grib.grib_files import ACCUMULATED, message
from scanners.materialise import materialise

MEMBER = {"productDefinitionTemplateNumber": 1, "perturbationNumber": 3}
PRESSURE = {"sample": "regular_ll_pl_grib2"}
SIX = ACCUMULATED | {"lengthOfTimeRange": 6}
KINDS = {
    "t2m": MEMBER | {"shortName": "2t"},
    "u10": {"shortName": "10u", "forecastTime": 3},
    "v100": {"shortName": "100v"},
    "msl": {"shortName": "msl"},
    "tcc": {"shortName": "tcc"},
    "siconc": {"shortName": "ci"},
    "swh": {"shortName": "swh"},
    "cape": {"shortName": "cape"},
    "sd": MEMBER | {"shortName": "sd"},
    "mx2t6": {"shortName": "mx2t6"},
    "tp": {"shortName": "tp"} | SIX,
    "ssrd": SIX | {"shortName": "ssrd"},
    "z": PRESSURE | {"level": 500, "shortName": "z"},
    "q": PRESSURE | MEMBER | {"level": 700, "shortName": "q"},
    "t": {"sample": "regular_gg_ml_grib2", "shortName": "t"},
    "u": {"typeOfLevel": "heightAboveGround", "level": 80, "shortName": "u"},
    "pv": {"typeOfLevel": "theta", "level": 320, "shortName": "pv"},
    "v": {"typeOfLevel": "potentialVorticity", "level": 2000, "shortName": "v"},
}
ATTRIBUTES = (
    *(f"GRIB_{each}" for each in ("paramId", "shortName", "cfVarName", "name", "units")),
    *(f"GRIB_{each}" for each in ("typeOfLevel", "stepType", "gridType", "uvRelativeToGrid")),
    *("units", "long_name", "standard_name"),
)


@pytest.mark.parametrize("name", KINDS)
def test_a_message_is_called_as_cfgrib_calls_it(name, tmp_path):
    (tmp_path / "a.grib2").write_bytes(message(**KINDS[name]))
    by_path = {array.path: array for array in scan_file(tmp_path / "a.grib2").arrays}
    mine = [*by_path.values()][-1]
    with xr.open_dataset(
        tmp_path / "a.grib2", engine="cfgrib", backend_kwargs={"indexpath": ""}
    ) as found:
        theirs = found[name]
        assert mine.path == f"/{name}" or mine.path.startswith(f"/{name}_")
        held = mine.attributes.values
        assert {each: held.get(each, "unknown") for each in ATTRIBUTES} == {
            each: theirs.attrs.get(each, "unknown") for each in ATTRIBUTES
        }
        kind = theirs.attrs["GRIB_typeOfLevel"]
        level = (
            materialise(by_path[f"/{kind}"]) if f"/{kind}" in by_path else held.get("GRIB_level", 0)
        )
        assert float(found.get(kind, 0)) == np.ravel(level)[0]
        assert ("/number" in by_path) == ("number" in found)
        assert theirs.dims == mine.dimension_names[-2:]
        for each in theirs.dims:
            np.testing.assert_allclose(materialise(by_path[f"/{each}"]), found[each], atol=1e-9)
        hours = materialise(by_path["/step"]) * np.timedelta64(1, "h")
        assert hours == found.step.values
        seconds = materialise(by_path["/valid_time"]).ravel()
        assert seconds.astype("M8[s]") == found.valid_time.values.astype("M8[s]")
