"""Texts of schemas that are remembered are those that would be made."""

from dataclasses import replace

import pytest

from icevirt.archive.scanned import ScannedArray, SchemaTexts
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable

ARRAY = ScannedArray(
    path="/v",
    dimension_names=("time", None),
    shape=(4, 8),
    chunk_shape=(1, 8),
    data_type="float32",
    codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
    fill_value=0,
    attributes=Attributes(values={"units": "K"}),
    references=ChunkTable.empty(2),
)
ALIKE = {
    "zero as a float": {"fill_value": 0.0},
    "negative zero": {"fill_value": -0.0},
    "false": {"fill_value": False},
    "zero as text": {"fill_value": "0"},
    "a list": {"fill_value": [0.0, 0]},
    "no fill value": {"fill_value": None},
    "whole": {"whole": True},
    "other chunks": {"chunk_shape": (2, 8)},
    "contiguous": {"contiguous": True},
    "names": {"dimension_names": ("time", "lat")},
    "another type": {"data_type": "float64"},
    "another codec": {"codecs": ({"name": "bytes", "configuration": {"endian": "big"}},)},
    "no codec": {"codecs": ()},
    "another attribute": {"attributes": Attributes(values={"units": "C"})},
    "an attribute as a number": {"attributes": Attributes(values={"units": 1})},
    "an attribute as a float": {"attributes": Attributes(values={"units": 1.0})},
}


@pytest.mark.parametrize("odd", ALIKE)
def test_schemas_that_compare_alike_have_texts_of_their_own(odd):
    texts, other = SchemaTexts(), replace(ARRAY, **ALIKE[odd])
    for array in (ARRAY, other, ARRAY, other):
        assert texts.of(array) == array.schema.dumps()


def test_more_schemas_than_are_remembered_are_reported_right():
    """Parts that are gone leave their ids to others; what holds their text holds them, too."""
    texts = SchemaTexts()
    for number in range(3000):
        array = replace(ARRAY, attributes=Attributes(values={"number": number % 1700}))
        assert texts.of(array) == array.schema.dumps()
    assert len(texts._known) <= 1024
