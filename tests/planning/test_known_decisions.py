"""What was decided before is decided again only of what is the same; nothing else comes of it."""

from dataclasses import fields, replace

import numpy as np
import pytest

from grouping import combine_spec
from icevirt.errors import CombineError
from icevirt.model.attributes import Attributes
from icevirt.planning.combine import combine
from icevirt.planning.combine.known_decisions import KnownDecisions
from icevirt.planning.combine.prepare import prepare
from planning.test_combine import data, facts_of, file, static, time


def step(number, value, **changed):
    """A file of one step; what is given of arrays takes the place of what they are else."""
    url = f"s3://a/{number}.nc"
    arrays = {name: data(url, 1, path=f"/{name}") for name in ("u", "v", "w")}
    arrays |= {"time": time([value]), "x": static(url)}
    for name, change in changed.items():
        arrays[name] = change(arrays[name])
    return file(number, *(each for each in arrays.values() if each is not None))


def with_attribute(array):
    return replace(array, attributes=Attributes(values={"units": "degC"}))


SAME = [step(0, 0.0), step(5, 5.0), step(6, 6.0)]
NOW = {
    "the same, one step on": ([step(0, 0.0), step(6, 6.0), step(7, 7.0)], 3),
    "another attribute": ([step(0, 0.0), step(6, 6.0), step(7, 7.0, v=with_attribute)], 0),
    "another digest of values that are stored once": (
        [step(0, 0.0), step(6, 6.0), step(7, 7.0, x=lambda x: replace(x, digest="other"))],
        0,
    ),
    "a chunk that was never written": (
        [step(0, 0.0), step(6, 6.0), step(7, 7.0, v=lambda v: replace(
            v, references=v.references.take(np.zeros(0, int))))],
        2,
    ),
    "a variable less": ([step(0, 0.0), step(6, 6.0), step(7, 7.0, v=lambda _: None)], 0),
    "another grid": ([step(0, 0.0), step(6, 6.0), step(7, 7.0, v=lambda v: replace(
        v, shape=(1, 5), chunk_shape=(1, 5)))], 0),
    "another type": (
        [step(0, 0.0), step(6, 6.0), step(7, 7.0, v=lambda v: replace(v, data_type="float64"))],
        0,
    ),
    "a file more": ([step(0, 0.0), step(5, 5.0), step(6, 6.0), step(7, 7.0)], 0),
    "another order": ([step(0, 0.0), step(7, 7.0), step(6, 6.0)], 0),
    "the same steps again": ([step(0, 0.0), step(6, 6.0), step(7, 6.0)], 0),
}  # fmt: skip


def decide(files, known, **options):
    spec = combine_spec(concat_dim=("time",), **options)
    try:
        return combine.combine_prepared(prepare(facts_of(files, 1), spec), spec, known)
    except CombineError as error:
        return str(error)


def said(plan):
    if isinstance(plan, str):
        return plan
    arrays = [
        {each.name: repr(getattr(array, each.name)) for each in fields(array)}
        for array in plan.arrays
    ]
    return arrays, plan.groups, plan.notes, plan.dimensions, plan.split_rules


@pytest.mark.parametrize(("files", "kept"), NOW.values(), ids=NOW)
def test_a_plan_is_the_same_whatever_was_decided_before(files, kept, monkeypatch):
    made, plan_array = [], combine.plan_array
    known = KnownDecisions()
    assert said(decide(SAME, known)) == said(decide(SAME, None))
    assert known.nbytes > 0
    expected = said(decide(files, None))
    monkeypatch.setattr(
        combine,
        "plan_array",
        lambda facts, member, *a, **k: (
            made.append(member.path) or plan_array(facts, member, *a, **k)
        ),
    )
    assert said(decide(files, known)) == expected
    if not isinstance(expected, str):
        assert len({"/u", "/v", "/w"} - {*made}) == kept
    assert said(decide(SAME, known)) == said(decide(SAME, None))


@pytest.mark.parametrize(
    "options", [{"combine_attrs": "drop"}, {"float_variables": ["u"]}, {"tolerance": 1.0}]
)
def test_other_choices_are_decided_anew(options):
    known = KnownDecisions()
    decide(SAME, known)
    files, _ = NOW["the same, one step on"]
    assert said(decide(files, known, **options)) == said(decide(files, None, **options))
