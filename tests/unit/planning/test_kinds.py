"""A plan does not depend on how facts are held: a value for each row, or for each kind of array."""

from dataclasses import fields, is_dataclass
from enum import Enum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.facts import Coded
from icevirt.archive.kinds import EvenRuns, KindColumn
from icevirt.errors import IcevirtError
from icevirt.model.strings import Strings
from icevirt.planning.eras.group_plan import combine_eras
from unit.planning.scanned_facts import ZLIB, by_kind, coord, data, facts_of, spec, step

OTHER = (*ZLIB[:1], {"name": "numcodecs.zlib", "configuration": {"level": 9}})


@st.composite
def archives(draw):
    """Return files that are alike but for what a mistake or another era makes of them."""
    files = []
    for number in range(draw(st.integers(1, 7))):
        time = draw(st.sampled_from([number, number, number, 2 - number, 100 + number]))
        more = {"lat": coord("lat", [1.0, 2.0])}
        values = np.full((1, 2), float(number), "f4")
        unusual = draw(
            st.sampled_from([None] * 4 + ["codec", "scale", "missing", "longer", "units"])
        )
        changes = {
            "codec": {"codecs": OTHER},
            "scale": {"attrs": {"scale_factor": 2.0}},
            "longer": {},
        }.get(unusual, {})
        if unusual == "longer":
            values = np.full((1, 3), float(number), "f4")
        if unusual != "missing":
            more["v"] = data(("time", "lat"), values, chunks=(1, 2), **changes)
        if unusual == "units":
            more["time"] = coord("time", [time + 0.0], units="days since 2000-01-01")
        files.append(step(f"f{number}", float(time), **more))
    return files


@pytest.mark.ci
@settings(max_examples=50)
@given(archives(), st.sampled_from(["refuse", "eras", "native"]))
def test_plans_of_facts_by_kind_are_equal(files, on_mismatch):
    facts, asked = facts_of(*files), spec("time", on_mismatch=on_mismatch)
    assert outcome(by_kind(facts), asked) == outcome(facts, asked)


def outcome(facts, asked):
    """Return the plan, or the error, as plain values."""
    try:
        return plain(combine_eras(facts, asked))
    except IcevirtError as error:
        return type(error), str(error), plain(error.facts.get("eras"))


def plain(value):
    """Return what can be compared of a value."""
    if isinstance(value, np.ndarray | KindColumn | EvenRuns):
        return np.asarray(value).tolist()
    if isinstance(value, Coded):
        return [value[row] for row in range(len(value))], value.values
    if isinstance(value, Strings):
        return list(value)
    if isinstance(value, Enum | BaseException):
        return repr(value)
    if is_dataclass(value):
        return type(value), {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
