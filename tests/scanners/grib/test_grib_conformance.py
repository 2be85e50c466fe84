"""The scanner of GRIB passes the suite that other people's are given."""

import numpy as np
import pytest

from icevirt.testing.samples import Expected, Sample
from icevirt.testing.scanners import ScannerConformance
from icevirt_scanners.grib.scanner import GribScanner
from scanners.grib.grib_files import by_eccodes, message

LEVELS = (850.0, 500.0)


class TestGrib(ScannerConformance):
    """Two levels of a field and one near the ground."""

    @pytest.fixture
    def scanner(self):
        return GribScanner()

    @pytest.fixture
    def sample(self, tmp_path):
        levels = [message("regular_ll_pl_grib2", level=level, shortName="t") for level in LEVELS]
        ground = message(shortName="2t", bitmap=True)
        (tmp_path / "a.grib2").write_bytes(b"".join((*levels, ground)))

        def expected():
            read = [by_eccodes(body) for body in (*levels, ground)]
            values = [each.values.reshape(3, 4) for each in read]
            first = by_eccodes(ground, "dataDate", "dataTime", "step")
            when = np.datetime64("2007-03-23T12", "s").astype("i8")
            assert (first.keys["dataDate"], first.keys["dataTime"]) == (20070323, 1200)
            dims = ("time", "step")
            grid = ("latitude", "longitude")
            return {
                "/time": Expected(values=np.array([when]), dimensions=("time",)),
                "/step": Expected(values=np.array([0]), dimensions=("step",)),
                "/valid_time": Expected(values=np.array([[when]]), dimensions=dims),
                "/isobaricInhPa": Expected(values=np.array(LEVELS), dimensions=("isobaricInhPa",)),
                "/latitude": Expected(
                    values=read[0].latitude.reshape(3, 4)[:, 0], dimensions=("latitude",)
                ),
                "/longitude": Expected(
                    values=read[0].longitude.reshape(3, 4)[0], dimensions=("longitude",)
                ),
                "/t": Expected(
                    values=np.array(values[:2])[None, None],
                    dimensions=(*dims, "isobaricInhPa", *grid),
                ),
                "/t2m": Expected(values=values[2][None, None], dimensions=(*dims, *grid)),
            }

        return Sample(path=tmp_path / "a.grib2", expected=expected)
