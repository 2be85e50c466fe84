"""Random small archives: the structure of a dataset never depends on the values of its files."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grouping import combine_spec
from icevirt.archive.roles import coordinates_of
from icevirt.archive.scanned import ScannedArray
from icevirt.errors import CombineError
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.planning.eras.group_plan import combine_eras
from planning.test_combine import BYTES, ZLIB, facts_of, file, time

NAMES = ("a", "b", "c", "d")
OWN = ((), ("x",), ("time",), ("time", "x"), ("x", "y"))
SIZES = {"time": 2, "x": 3, "y": 2}


@st.composite
def archives(draw):
    """Draw variables with dimensions and attributes, how files lie, and what is asked."""
    names = st.sampled_from(NAMES)
    variables = {
        name: (
            draw(st.sampled_from(OWN)),
            draw(st.sampled_from([{}, {"coordinates": draw(names)}, {"bounds": draw(names)}])),
            draw(st.booleans()),  # whether the scan read the values
        )
        for name in draw(st.lists(names, min_size=1, unique=True))
    }
    dims = draw(st.sampled_from([("time",), ("run",), ("run", "time"), ("run", "start")]))
    rule = st.sampled_from(["all", "minimal"]) | st.lists(
        st.sampled_from([*variables]), min_size=1, unique=True
    )
    asked = draw(st.none() | rule | st.dictionaries(st.sampled_from(dims), rule))
    return variables, dims, asked


def array(url, name, own, attributes, *, whole, value):
    """A variable of which the scan says no more than a digest of its values, if as much."""
    shape = tuple(SIZES[each] for each in own)
    made = ScannedArray(
        path=f"/{name}",
        dimension_names=own,
        shape=shape,
        chunk_shape=shape,
        data_type="float32",
        codecs=BYTES if whole else ZLIB,
        fill_value=0.0,
        attributes=Attributes(values=attributes),
        references=ChunkTable.virtual(
            index=np.zeros((1, len(own)), int),
            offset=np.array([1000]),
            length=np.array([90]),
            locations=Locations.one(url),
        ),
        digest=value,
    )
    raw = ChunkTable.of_inline(
        index=np.zeros((1, len(own)), int), chunks=[bytes(4 * int(np.prod(shape)))]
    )
    return replace(made, references=raw, whole=True) if whole else made


def planned(variables, dims, asked, values):
    """Plan two files along each dimension; ``values`` gives the digest of a variable in a file."""
    files, nest = [], {}
    for number, place in enumerate(np.ndindex(*[2] * len(dims))):
        arrays = [
            lambda url, name=name, output=output, n=number: array(
                url, name, output[0], output[1], whole=output[2], value=values(name, n)
            )
            for name, output in variables.items()
        ]
        step = 2.0 * place[dims.index("time")] if "time" in dims else 0.0
        files.append(file(number, *arrays, time([step, step + 1], digest=str(step))))
        nest[files[-1].source.url] = place
    wish = combine_spec(concat_dim=dims, combine="nested", nest=nest, data_vars=asked)
    made = combine_eras(facts_of(files), wish)
    return {each.path[1:]: each.schema.dimension_names for each in made.arrays}


def expected(variables, dims, asked):
    """Return the dimensions of each variable by the rules, the obvious way."""
    output = [(f"/{name}", own, attributes) for name, (own, attributes, _) in variables.items()]
    coordinates = {path[1:] for path in coordinates_of(output)}
    found = {}
    for name, (own, _, _) in variables.items():
        more = []
        for dim in dims:
            rule = asked.get(dim) if isinstance(asked, dict) else asked
            if rule is None:
                rule = "minimal" if dim == "time" else "all"
            gets = (
                name in rule
                if isinstance(rule, list)
                else rule == "all" and name not in coordinates
            )
            more += [dim] * (gets and dim not in own)
        found[name] = (*more, *own)
    return {**found, "time": ("time",)}


def attempt(archive, values):
    """Return the dimensions of the plan, or the error that refuses it."""
    try:
        return planned(*archive, values)
    except CombineError as error:
        return error


@pytest.mark.ci
@given(archives(), st.data())
def test_other_values_give_the_same_dimensions_or_a_refusal(archive, data):
    variables, dims, _ = archive
    alike = attempt(archive, lambda name, number: "equal")
    if isinstance(alike, CombineError):
        assert "no variable gets the dimension" in str(alike)
        return
    assert alike == expected(*archive)
    drawn = st.sampled_from(["equal", "other", ""])
    known = {
        (name, number): data.draw(drawn) for name in variables for number in range(2 ** len(dims))
    }
    other = attempt(archive, lambda name, number: known[name, number])
    if isinstance(other, CombineError):
        mine = {value for (name, _), value in known.items() if name == other.facts["variable"][1:]}
        assert mine != {"equal"}
    else:
        assert other == alike
