"""Texts of one unit are equal, and units convert where the factor is exact."""

from fractions import Fraction

import numpy as np
import pytest

from icevirt.planning.measures import are_equal, count_finest, factor_between, spell

ONE = [
    ("m", "meter", "metre", "meters", "metres", "Metres"),
    ("m s-1", "m/s", "m s^-1", "m s**-1", "meter second-1", "metres / second", "s-1 m"),
    ("kg m-2 s-1", "kg/m2/s", "kg m^-2 s^-1", "kg.m-2.s-1", "kg m**-2 s**-1"),
    ("K", "kelvin", "Kelvin", "degK", "degrees_Kelvin"),
    ("hPa", "mbar", "millibars", "hectopascal"),
    ("s-1", "1/s", "/s", "second-1"),
    ("%", "percent"),
]


@pytest.mark.parametrize("texts", ONE, ids=[texts[0] for texts in ONE])
def test_texts_of_one_unit_are_spelled_alike(texts):
    assert {spell(each) for each in texts} == {texts[0]}


@pytest.mark.parametrize(
    "text",
    [
        *("hours", "day", "s", "hr"),  # xarray decodes some of them, and not others
        *(
            "M",
            "kg of C m-2",
            "m s",
            "days since 2000-01-01",
            "",
            "1",
            "m/m",
            "m//s",
            "m s-",
            "psu",
        ),
        *("Mbar", "m^s", "m**s", "m*/s", "m./s"),
        *("W m-2 sr-1 um-1 ?", "10 m", "1e-3 m", "m-", "degrees true"),
    ],
)
def test_other_texts_are_equal_to_themselves_alone(text):
    assert spell(text) == text


@pytest.mark.parametrize(
    ("one", "other", "factor"),
    [
        ("km", "metres", 1000), ("m", "km", Fraction(1, 1000)), ("hPa", "mbar", 1),
        ("kPa", "hPa", 10), ("%", "1", Fraction(1, 100)), ("day", "hours", 24),
        ("degrees", "radians", None), ("K", "degC", None), ("m", "Pa", None), ("m", None, None),
        ("x", "x", None), ("m s-1", "km s-1", None),
    ],
)  # fmt: skip
def test_units_convert_where_the_factor_is_exact(one, other, factor):
    assert factor_between(one, other) == factor


@pytest.mark.parametrize(
    ("unit", "found"),
    [
        ("km", ("length", 10**12)), ("microns", ("length", 1000)), ("hPa", ("pressure", 100)),
        ("%", ("share", 1)), ("1", ("share", 100)), ("kg", ("mass", 1000)), ("hours", None), ("K", None),
        (None, None),
    ],
)  # fmt: skip
def test_units_are_whole_numbers_of_the_finest(unit, found):
    assert count_finest(unit) == found


def test_decimals_are_equal_as_nearly_as_they_are_written():
    kilometers = np.round(np.arange(0, 50, 0.001), 3)
    assert are_equal(kilometers, np.arange(50_000.0), Fraction(1000))
    assert are_equal(np.arange(50_000.0), kilometers, Fraction(1, 1000))
    assert not are_equal(kilometers + 1e-9, np.arange(50_000.0), Fraction(1000))
