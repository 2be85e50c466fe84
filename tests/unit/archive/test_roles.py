"""Which variables are coordinates, held against what xarray makes of CF's attributes."""

import pytest
import xarray as xr

from icevirt.archive.roles import coordinates_of

ROLES = {
    "of nobody": ({}, False),
    "coordinates": ({"coordinates": "lat other"}, True),
    "of another case": ({"coordinates": "Other"}, False),
    "bounds": ({"bounds": "other"}, True),
    "climatology": ({"climatology": "other"}, True),
    "grid_mapping": ({"grid_mapping": "other"}, True),
    "grid_mapping of several": ({"grid_mapping": "other: y x crs: lat"}, True),
    "grid_mapping that maps it": ({"grid_mapping": "crs: other y"}, False),
    "cell_measures": ({"cell_measures": "area: other"}, True),
    "cell_measures, a stray blank": ({"cell_measures": "area : other"}, True),
    "a measure of its name": ({"cell_measures": "other: area"}, False),
    "formula_terms": ({"formula_terms": "a: lat ps: other"}, True),
    "geometry": ({"geometry": "other"}, True),
    "node_coordinates": ({"node_coordinates": "other"}, True),
    "ancillary_variables": ({"ancillary_variables": "other"}, False),
    "a number": ({"coordinates": 5}, False),
    "a path": ({"coordinates": "/other"}, True),
    "a path beside it": ({"coordinates": "./other"}, True),
    "a path that leads nowhere": ({"coordinates": "../../x/.. .. . / //"}, False),
}


@pytest.mark.parametrize(("attributes", "is_coordinate"), ROLES.values(), ids=ROLES)
@pytest.mark.filterwarnings("ignore:Variable:UserWarning")  # xarray's, of names that are not there
def test_what_cf_names_is_a_coordinate(attributes, is_coordinate):
    names = ("lat", "crs", "area", "other", "data")
    output = {name: attributes if name == "data" else {} for name in names}
    found = coordinates_of([(f"/{name}", ("y", "x"), output[name]) for name in names])
    assert ("/other" in found) == is_coordinate
    assert "/data" not in found
    words = next(iter(attributes.values()), "")
    if isinstance(words, str) and "/" not in words:  # xarray knows no paths
        dataset = xr.Dataset({name: (("y", "x"), [[1.0]], output[name]) for name in names})
        theirs = xr.decode_cf(dataset, decode_coords="all")
        assert {f"/{name}" for name in theirs.coords} == found


def test_a_name_is_looked_for_towards_the_root():
    there = [("/a/b/data", ("x",), {"coordinates": "far near"}), ("/near", ("x",), {})]
    both = [*there, ("/a/near", ("x",), {}), ("/a/b/c/far", ("x",), {})]
    assert coordinates_of(there) == {"/near"}
    assert coordinates_of(both) == {"/a/near"}


def test_what_has_the_name_of_a_dimension_of_its_group_is_a_coordinate():
    variables = [("/x", ("y",), {}), ("/g/x", ("y",), {}), ("/data", ("x", "y"), {})]
    assert coordinates_of(variables) == {"/x"}


def test_a_group_may_list_coordinates():
    variables = [("/height", (), {}), ("/g/height", (), {}), ("/g/depth", (), {})]
    assert coordinates_of(variables, [("/g", {"coordinates": "height depth"})]) == {
        "/g/height",
        "/g/depth",
    }
