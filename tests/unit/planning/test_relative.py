"""Locations relative to containers: the vectorised rewriting agrees with a loop over URLs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.strings import Strings
from icevirt.planning.containers import relative, with_names

PARTS = st.text("ab/%é", max_size=6)
URLS = st.lists(PARTS.map("s3://b/{}".format) | st.just("") | PARTS, max_size=20)
NAMED = st.dictionaries(
    PARTS.map(lambda text: f"s3://b/{text}/"), st.text("xyz", min_size=1, max_size=9), max_size=4
)


def obvious(url, named):
    fits = [prefix for prefix in named if url.startswith(prefix)]
    if not fits:
        return url
    prefix = max(fits, key=len)
    return f"vcc://{named[prefix]}/{url.removeprefix(prefix)}"


@given(URLS, NAMED)
def test_it_agrees_with_a_loop(urls, named):
    found = relative(Strings.of(urls), tuple(named.items()))
    assert list(found) == [obvious(url, named) for url in urls]


def test_checksums_and_other_rows_stay():
    table = ChunkTable.virtual(
        index=np.arange(2).reshape(2, 1),
        offset=np.array([0, 4]),
        length=np.array([4, 4]),
        locations=Locations.one("file:///d/x%20y/a.nc", etag='"e"'),
    )
    found = with_names(table, [("file:///d/", "d")])
    assert found.locations == Locations.one("vcc://d/x%20y/a.nc", etag='"e"')
    assert np.array_equal(found.offset, table.offset)
    assert with_names(table, []) is table
