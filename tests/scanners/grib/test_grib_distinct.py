"""Fields that differ in what no dimension holds are variables of their own, or refused."""

from itertools import product

import numpy as np
import pytest

from icevirt.api.scan import scan_file
from icevirt.errors import UnsupportedError
from icevirt.objects.opening import open_source
from icevirt_scanners.grib.scanner import read_values
from scanners.grib.grib_files import ACCUMULATED, by_eccodes, message
from scanners.materialise import materialise


def scan(folder, *bodies, **options):
    """Return the arrays of a file of some messages, by path."""
    (folder / "a.grib2").write_bytes(b"".join(map(bytes, bodies)))
    return {
        array.path: array for array in scan_file(folder / "a.grib2", scan_options=options).arrays
    }


def variable(folder, body):
    """Return the array of a file of one message."""
    return [*scan(folder, body).values()][-1]


def over(length, increment, lead=0):
    keys = ACCUMULATED | {"typeOfStatisticalProcessing": 0, "shortName": "t"}
    when = {"lengthOfTimeRange": length, "typeOfTimeIncrement": increment, "forecastTime": lead}
    return message(**keys, **when)


WINDOWS = {
    (744, 1, 0): ("/avg_t_surface_744h_of_runs", "runs of 744h from time on, each at step"),
    (24, 1, 0): ("/avg_t_surface_24h_of_runs", "runs of 24h from time on, each at step"),
    (24, 1, 6): ("/avg_t_surface_24h_of_runs", "runs of 24h from time on, each at step"),
    (24, 2, 0): ("/avg_t_surface", "from time to valid_time"),
    (24, 2, 6): ("/avg_t_surface_24h", "24h before valid_time"),
    (24, 5, 0): ("/avg_t_surface_floating", "any part of: from time to valid_time"),
    (24, 5, 6): ("/avg_t_surface_24h_floating", "any part of: 24h before valid_time"),
}


@pytest.mark.parametrize("which", WINDOWS, ids=str)
def test_a_name_and_an_attribute_say_what_a_statistic_is_over(which, tmp_path):
    name, window = WINDOWS[which]
    found = scan(tmp_path, over(*which))
    assert [*found][-1] == name
    assert found[name].attributes.values["time_window"] == window
    theirs = by_eccodes(over(*which), "endStep").keys["endStep"]
    assert materialise(found["/step"]).tolist() == [theirs]


def test_a_mean_of_runs_is_one_along_time(tmp_path):
    methods = [
        variable(tmp_path, over(24, increment)).attributes.values["cell_methods"]
        for increment in (1, 2)
    ]
    assert methods == ["time: mean", "step: mean"]


@pytest.mark.parametrize("increment", [3, 4])
def test_statistics_of_runs_for_one_valid_time_are_refused(increment, tmp_path):
    with pytest.raises(UnsupportedError, match="several runs for one valid time"):
        scan(tmp_path, over(24, increment))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.grib2.idx", "1:0:d=2007032312:TMP:surface:0-31 day ave anl:"),
        ("a.index", '{{"_offset": 0, "_length": {n}, "date": 20070323, "time": 1200, "step": "0-744"}}'),
        ("a.index", '{{"_offset": 0, "_length": {n}, "date": 20070323, "time": 1200, "step": "0"}}'),
    ],
)  # fmt: skip
def test_a_list_may_say_when_the_last_run_of_a_statistic_begins(name, line, tmp_path):
    body = over(744, 1)
    (tmp_path / name).write_text(line.format(n=len(body)) + "\n")
    found = scan(tmp_path, body, sidecar="require")
    assert materialise(found["/step"]).tolist() == [0]


def test_leads_of_statistics_over_runs_are_read_and_not_taken_from_a_list(tmp_path):
    for lead in (0, 6):
        bodies = [over(24 + each, 1, lead) for each in range(16)]
        offsets = np.cumsum([0, *map(len, bodies)])
        line = "{}:{}:d=2007032312:TMP:surface:{}-{} hour ave fcst:\n"
        (tmp_path / "a.grib2.idx").write_text(
            "".join(line.format(n, offsets[n], lead, lead) for n in range(16))
        )
        found = scan(tmp_path, *bodies, sidecar="require")
        assert sum("of_runs" in path for path in found) == 16


@pytest.mark.parametrize("kind", ["generalVertical", "generalVerticalLayer", "hybridLayer"])
def test_levels_of_models_are_called_as_eccodes_calls_them(kind, tmp_path):
    body = message(centre="edzw", typeOfLevel=kind, level=3, shortName="t")
    (*_, array) = scan(tmp_path, body).values()
    assert array.path == f"/t_{kind}"
    assert array.dimension_names[2] == by_eccodes(body, "typeOfLevel").keys["typeOfLevel"] == kind


def section(body, number):
    """Return where a section of a message begins."""
    at = 16
    while body[at + 4] != number:
        at += int.from_bytes(body[at : at + 4], "big")
    return at


def between(first, second=(255, 0, 0), **keys):
    """Return a message between two surfaces: kind, scale and value of each."""
    body = bytearray(message(**keys))
    at = section(body, 4) + 22
    for kind, scale, value in (first, second):
        body[at : at + 6] = bytes((kind, scale)) + value.to_bytes(4, "big")
        at += 6
    return body


NONE = 0xFFFFFFFF
VALUES = {  # kinds of surfaces, and the values of two that are told apart
    "cloud cover above a percentage": (lambda v: ((13, 0, v),), (10, 90)),
    "cumulonimbus base": (lambda v: ((11, 0, v),), (500, 1000)),
    "cumulonimbus top": (lambda v: ((12, 0, v),), (500, 1000)),
    "a mixed layer's depth": (lambda v: ((18, 0, v),), (5000, 10000)),
    "lowest cloud cover above a percentage": (lambda v: ((19, 0, v),), (10, 90)),
    "a mixing layer": (lambda v: ((166, 0, v),), (1, 2)),
    "a kind of a center": (lambda v: ((230, 0, v),), (1, 2)),
    "from the surface to a depth": (lambda v: ((1, 0, 0), (106, 0, v)), (1, 2)),
    "from the surface, missing, to a height": (lambda v: ((1, 255, NONE), (103, 0, v)), (1, 2)),
    "a height": (lambda v: ((103, 0, v),), (0, 100)),
    "a height, to an end that 0 is written for": (lambda v: ((103, 0, v), (8, 0, 0)), (3, 100)),
}


@pytest.mark.parametrize(("make", "values"), VALUES.values(), ids=VALUES)
def test_values_of_surfaces_are_levels(make, values, tmp_path):
    bodies = [between(*make(v), values=np.full(12, v)) for v in values]
    alone = [variable(tmp_path, body).dimension_names for body in bodies]
    found = scan(tmp_path, *bodies)
    path, held = found.popitem()
    _, _, kind, *grid = held.dimension_names
    assert alone == [held.dimension_names] * 2
    assert path == f"/t_{kind}"
    assert grid == ["latitude", "longitude"]
    assert f"/{kind}_bounds" not in found
    assert materialise(found[f"/{kind}"]).tolist() == [*values]
    assert materialise(held)[0, 0, :, 0, 0].tolist() == [*values]


@pytest.mark.parametrize("first", [(1, 0, 0), (1, 255, NONE), (1, 255, 0), (101, 0, 0), (8, 0, 0)])
@pytest.mark.parametrize("second", [(255, 0, 0), (255, 255, NONE), (255, 0, 7), (8, 0, 0)])
def test_what_services_write_for_no_value_is_no_level(first, second, tmp_path):
    assert variable(tmp_path, between(first, second)).dimension_names[2:] == (
        "latitude",
        "longitude",
    )


LAYERS = {114: "snowLayer", 151: "soilLayer", 152: "seaIceLayer", 168: "oceanModelLayer"}
LAYERS |= {106: "depthBelowLandLayer"}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_are_counted_as_eccodes_counts_them(kind, tmp_path):
    """Of layers with numbers, the first one is between 0 and 1, and has the number 1."""
    bodies = [bytes(between((kind, 0, n), (kind, 0, n + 1), values=n)) for n in (0, 1)]
    found = scan(tmp_path, *bodies)
    theirs = [by_eccodes(body, "level", "typeOfLevel").keys for body in bodies]
    assert {each["typeOfLevel"] for each in theirs} == {LAYERS[kind]}
    levels = materialise(found[f"/{LAYERS[kind]}"])
    assert levels.tolist() == [each["level"] for each in theirs]
    assert materialise(found[f"/{LAYERS[kind]}_bounds"]).tolist() == [[0, 1], [1, 2]]


def test_errors_of_a_field_are_no_fields(tmp_path):
    """NOAA's URMA has the error of its analysis in a file of its own, under the same numbers."""
    names = [variable(tmp_path, message(typeOfGeneratingProcess=n)).path for n in (0, 6, 7)]
    assert names == ["/t_surface", "/t_surface_forecast_error", "/t_surface_analysis_error"]


def test_the_value_of_a_layer_that_is_called_by_it_is_no_level(tmp_path):
    found = variable(
        tmp_path,
        between((106, 0, 0), (106, 0, 1), discipline=2, parameterCategory=3, parameterNumber=19),
    )
    assert (found.path, found.dimension_names[2:]) == ("/sm100", ("latitude", "longitude"))


@pytest.mark.parametrize(
    "surfaces", [((103, 255, 2),), ((103, 0, 2), (103, 255, 100)), ((1, 255, 7),)]
)
def test_a_value_of_a_surface_without_its_scale_is_refused(surfaces, tmp_path):
    with pytest.raises(UnsupportedError, match="a surface whose value has no scale, in message 1"):
        scan(tmp_path, between(*surfaces))


def of_center(center, subcenter, *numbers):
    """Return a message of a center: discipline, category and number."""
    body = bytearray(message())
    at = section(body, 1) + 5
    body[at : at + 4] = center.to_bytes(2, "big") + subcenter.to_bytes(2, "big")
    at = section(body, 4) + 9
    body[6], body[at], body[at + 1] = numbers
    return body


CENTERS = {
    (146, 0, 0, 192, 200): "/param_0_192_200_center_146_surface",
    (200, 0, 0, 192, 200): "/param_0_192_200_center_200_surface",
    (200, 3, 0, 192, 200): "/param_0_192_200_center_200_3_surface",
    (200, 0xFFFF, 0, 191, 7): "/param_0_191_7_center_200_surface",
    (161, 0, 209, 6, 0): "/param_209_6_0_center_161_surface",
    (7, 0, 0, 0, 0): "/t_surface",
    (200, 3, 0, 0, 0): "/t_surface",
    (7, 0, 0, 4, 192): "/sdswrf_surface",
    (98, 0, 192, 128, 199): "/veg_surface",
    (200, 3, 192, 128, 199): "/veg_center_200_3_surface",
}


@pytest.mark.parametrize("which", CENTERS, ids=str)
def test_a_number_that_a_center_defines_is_called_by_the_center(which, tmp_path):
    assert variable(tmp_path, of_center(*which)).path == CENTERS[which]


LIMITS = {(27315149, 5): "273.15149", (27315150, 5): "273.1515", (10, 0): "10", (1, 7): "1e-07"}


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_threshold_is_written_with_all_its_digits(limit, tmp_path):
    value, scale = limit
    body = bytearray(message(productDefinitionTemplateNumber=9, shortName="tp"))
    at = section(body, 4)
    body[at + 36], body[at + 42] = 1, scale
    body[at + 43 : at + 47] = value.to_bytes(4, "big")
    assert variable(tmp_path, body).path == f"/tp_above_{LIMITS[limit]}"


OTHER = {"Ni": 2, "longitudeOfLastGridPointInDegrees": 10}


def test_a_file_of_two_grids_gives_a_dataset_of_each(tmp_path):
    bodies = message(shortName="t"), message(shortName="10u", **OTHER)
    with pytest.raises(UnsupportedError, match="it lies on another grid") as caught:
        scan(tmp_path, *bodies)
    assert 'scan_options={"grids": "groups"}' in str(caught.value.do)
    for name, body, left_out in zip(
        ("/t_surface", "/u10"), bodies, ("u10", "t_surface"), strict=True
    ):
        for options in ({"drop_variables": [left_out]}, {"variable_policy": {left_out: "skip"}}):
            found = scan(tmp_path, *bodies, **options)
            assert [*found][-1] == name
            assert f"/{left_out}" not in found
            theirs = by_eccodes(body)
            np.testing.assert_array_equal(materialise(found[name]).reshape(-1), theirs.values)
            longitudes = materialise(found["/longitude"])
            np.testing.assert_array_equal(longitudes, np.unique(theirs.longitude))
        source = open_source((tmp_path / "a.grib2").as_uri())
        for path in (name, "/longitude"):
            region = tuple(slice(0, n) for n in found[path].shape)
            mine = read_values(source, path, region)
            np.testing.assert_array_equal(mine, materialise(found[path]))


SERIES = {
    "hindcasts": (
        {"productDefinitionTemplateNumber": 60},
        {"dataDate": (20000101, 20010101), "forecastTime": (0, 24), "perturbationNumber": (0, 1)},
        {"time": [946728000, 978350400], "step": [0, 24], "number": [0, 1]},
    ),
    "runs of a day": (
        {"dataDate": 20240229, "forecastTime": 6},
        {"dataTime": (0, 600, 1200, 1800)},
        {"time": [1709164800 + hour * 3600 for hour in (0, 6, 12, 18)], "step": [6]},
    ),
    "quarters of an hour": (
        {"indicatorOfUnitOfTimeRange": 0},
        {"forecastTime": (0, 15, 30, 45)},
        {"step": [0, 15, 30, 45]},
    ),
    "before the analysis": ({}, {"forecastTime": (-6, 0)}, {"step": [-6, 0]}),
}


@pytest.mark.parametrize(("keys", "varied", "axes"), SERIES.values(), ids=SERIES)
def test_times_and_members_of_a_file_are_axes(keys, varied, axes, tmp_path):
    bodies = [
        message(values=np.full(12, at), **keys, **dict(zip(varied, which, strict=True)))
        for at, which in enumerate(product(*varied.values()))
    ]
    found = scan(tmp_path, *bodies)
    assert {axis: materialise(found[f"/{axis}"]).tolist() for axis in axes} == axes
    values = materialise([*found.values()][-1])[..., 0, 0]
    assert values.ravel().tolist() == [*range(len(bodies))]
