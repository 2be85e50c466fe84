"""Numbers read well, and hostile words are shown and never obeyed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.reports.build import ReferenceCounts
from icevirt.display import blocks


@given(st.text(), st.integers(4, 80))
def test_shortened_text_keeps_its_width(raw, width):
    assert len(blocks.shorten(raw, width)) <= width


def test_markup_stays_text():
    assert blocks.words("[red]x[/red]").plain == "[red]x[/red]"


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (9 << 50, "9.0 PiB")],
)
def test_sizes_have_the_unit_that_fits(number, shown):
    assert blocks.size(number) == shown


@pytest.mark.parametrize(
    ("duration", "shown"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (125, "2 min 05 s")]
)
def test_durations_have_the_unit_that_fits(duration, shown):
    assert blocks.seconds(duration) == shown


def test_counts_shapes_and_references_are_words():
    assert blocks.count(1, "file") == "1 file"
    assert blocks.count(1200, "file") == "1,200 files"
    assert blocks.box(()) == "scalar"
    assert blocks.box((3, 4)) == "3 × 4"
    assert blocks.references(ReferenceCounts()) == "none"
    assert blocks.references(ReferenceCounts(virtual=1000, inline=2)) == "1,000 virtual, 2 inline"
