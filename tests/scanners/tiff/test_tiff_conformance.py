"""The scanner of TIFF passes the suite that other people's are given."""

import numpy as np
import pytest

from icevirt.testing.samples import Expected, Sample
from icevirt.testing.scanners import ScannerConformance
from icevirt_scanners.tiff.scanner import TiffScanner
from scanners.tiff.tiff_files import by_gdal, read_gdal, values


class TestTiff(ScannerConformance):
    """Tiles of interleaved bands with a predictor, and their overview."""

    @pytest.fixture
    def scanner(self):
        return TiffScanner()

    @pytest.fixture
    def sample(self, tmp_path):
        path = tmp_path / "a.tif"
        how = {"compress": "deflate", "predictor": "YES", "blocksize": 128}
        by_gdal(path, values("int16", (2, 150, 140)), driver="COG", nodata=7, **how)

        def expected():
            found = {}
            for level, group in ((None, ""), (0, "/overview_1")):
                read, place, *_ = read_gdal(path, level)
                bands, height, width = read.shape
                suffix = group.replace("/", "_")
                dims = ("band", f"y{suffix}", f"x{suffix}")
                x = place.a * np.arange(width) + (place.a * 0.5 + place.c)
                y = place.e * np.arange(height) + (place.e * 0.5 + place.f)
                found |= {
                    f"{group}/band_data": Expected(values=read, dimensions=dims),
                    f"{group}/band": Expected(values=np.arange(1, bands + 1), dimensions=("band",)),
                    f"{group}/{dims[1]}": Expected(values=y, dimensions=dims[1:2]),
                    f"{group}/{dims[2]}": Expected(values=x, dimensions=dims[2:]),
                    f"{group}/spatial_ref": Expected(values=np.int64(0), dimensions=()),
                }
            return found

        return Sample(path=path, expected=expected)
