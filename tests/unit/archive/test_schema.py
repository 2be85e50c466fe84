"""Texts of schemas that are remembered are those that would be made."""

from dataclasses import replace

import pytest

from icevirt.archive.schema import ArraySchema, SchemaTexts
from icevirt.model.attributes import Attributes

SCHEMA = ArraySchema(
    dimension_names=("time", None),
    chunk_shape=(1, 8),
    data_type="float32",
    codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
    fill_value=0,
    attributes=Attributes(values={"units": "K"}),
)
ALIKE = {
    "zero as a float": {"fill_value": 0.0},
    "negative zero": {"fill_value": -0.0},
    "false": {"fill_value": False},
    "zero as text": {"fill_value": "0"},
    "a list": {"fill_value": [0.0, 0]},
    "no fill value": {"fill_value": None},
    "whole": {"chunk_shape": None},
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
    texts, other = SchemaTexts(), replace(SCHEMA, **ALIKE[odd])
    for schema in (SCHEMA, other, SCHEMA, other):
        assert texts.of(schema) == schema.dumps()


def test_more_schemas_than_are_remembered_are_reported_right():
    """Parts that are gone leave their ids to others; what holds their text holds them, too."""
    texts = SchemaTexts()
    for number in range(3000):
        schema = replace(SCHEMA, attributes=Attributes(values={"number": number % 1700}))
        assert texts.of(schema) == schema.dumps()
    assert len(texts._known) <= 1024
