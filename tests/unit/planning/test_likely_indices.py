"""Integers that number elements of their own file are found though no attribute calls them so."""

from dataclasses import replace

import numpy as np
import pytest

from icevirt.planning.meaning.likely_indices import likely_indices, options_for
from unit.planning.scanned_facts import data, facts_of, step

PLACED = {"obs", "row", "node", "cell", "day"}


def photons(n, zeros=True):
    """Return the first photon of each row, from 1, and 0 where there is none."""
    counts = np.array([2, 0, 3, 1, 4 + n])
    first = np.cumsum(counts) - counts + 1
    return np.where(counts > 0, first, 0) if zeros else first


def corners(n):
    return np.arange(3 * (4 + n)).reshape(-1, 3) % (5 + n)


def of(name, dims, values, **attrs):
    """Return a file after another, each with a variable, and with the dimensions that it may number."""

    def variables(n):
        return {
            name: data(dims, np.asarray(values(n)), attrs=attrs),
            "x": data("node", np.zeros(5 + n)),
            "y": data("cell", np.zeros(4 + n)),
            "heights/h": data("obs", np.zeros(10 + n)),
            "lookup": data("detector", np.zeros(9)),
            "day": data("day", np.arange(20 + n), attrs={"units": "days since 2000-01-01"}),
        }

    return variables


ROW = ("row",)
CASES = {
    "first photons, from 1": (of("rows/ph_index_beg", ROW, photons), "/heights/obs", True),
    "first photons, of which a text says that they count from 1": (
        of("rows/first", ROW, photons, description="Index (1-based) of the first photon"),
        "/heights/obs",
        False,
    ),
    "first samples": (
        of("rx_sample_start_index", ROW, lambda n: photons(n, zeros=False) - 1),
        "/heights/obs",
        False,
    ),
    "stations": (of("nodeIndex", ("obs",), lambda n: np.arange(10 + n) % (5 + n)), "node", False),
    "corners from 0": (of("elementConn", ("cell", "three"), corners), "node", False),
    "corners from 1": (of("elementConn", ("cell", "three"), lambda n: corners(n) + 1), "node", True),
    "neighbors, and -1 for none": (
        of("neighbors", ("cell", "two"), lambda n: [[i - 1, i + 1 - (n + 4) * (i == n + 3)] for i in range(4 + n)]),
        "cell",
        False,
    ),
    "unsigned, and the greatest for none": (
        of("node_idx", ("obs",), lambda n: np.r_[np.arange(5 + n), [255] * 5].astype("u1")),
        "node",
        False,
    ),
    "nodes, along days": (
        of("node_index", ("day",), lambda n: np.arange(20 + n) % (5 + n)), "node", False
    ),
    "a fill value": (
        of("node_idx", ("obs",), lambda n: np.r_[np.arange(5 + n), [99] * 5], _FillValue=99),
        "node",
        False,
    ),
}  # fmt: skip
NONE = {
    "steps of its own dimension": of("obs_index", ("obs",), lambda n: np.arange(10 + n)),
    "rows of a grid": of(
        "row_index", ("row", "node"), lambda n: np.repeat(np.arange(5)[:, None], 5 + n, axis=1)
    ),
    "steps that go on": of("obs_offset", ROW, lambda n: np.arange(5) + 10 * n),
    "detectors, of which all files have the same": of(
        "detector_index", ("obs",), lambda n: np.arange(10 + n) % 9
    ),
    "small codes": of("quality_index", ("obs",), lambda n: np.arange(10 + n) % 2),
    "counts": of("index_count", ROW, photons),
    "flags": of("node_index", ROW, photons, flag_values=np.arange(20)),
    "a measure": of("ndvi", ROW, photons, long_name="vegetation index", scale_factor=0.1),
    "a quantity": of("uv_index", ROW, photons, units="W m-2"),
    "a name that says nothing": of("level", ROW, photons),
    "floats": of("obs_index", ROW, lambda n: photons(n) / 2),
    "no number anywhere": of("obs_index", ROW, lambda n: np.full(5, -1)),
    "a measure in small numbers": of(
        "fire_danger_index",
        ("day", "node"),
        lambda n: np.arange((20 + n) * (5 + n)).reshape(20 + n, -1) % 19,
    ),
    "days": of("day_index", ("day",), lambda n: np.arange(20 + n)),
    "not along files": of("obs_index", ("five",), photons),
}


def found(variables, known=frozenset()):
    held = [{f"/{name}": each for name, each in variables(n).items()} for n in range(3)]
    files = [step(f"{n}.nc", float(n), **each) for n, each in enumerate(held)]
    values = {file.url: each for file, each in zip(files, held, strict=True)}
    facts = replace(facts_of(*files), values=lambda url, path: values[url][path].values)
    return likely_indices(facts, PLACED, known)


@pytest.mark.parametrize(("variables", "numbered", "says_one"), CASES.values(), ids=CASES)
def test_what_seems_to_number_elements_is_found(variables, numbered, says_one):
    (index,) = found(variables)
    options = options_for([index], 0)
    assert [*options["index_of"].values()] == [numbered]
    assert ("attrs" in options) == says_one


@pytest.mark.parametrize("variables", NONE.values(), ids=NONE)
def test_what_counts_something_else_is_joined(variables):
    assert not found(variables)


def test_what_a_person_said_is_not_guessed():
    assert not found(CASES["stations"][0], {"nodeIndex"})
