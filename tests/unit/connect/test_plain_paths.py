"""Paths and file URLs in which nothing is special are taken as they are."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icevirt.connect import urls
from icevirt.errors import IcevirtError

SEGMENTS = ["a", ".", "..", ".b", "...", "a.b", "-", "x y", "%41", "é", "", "~", "a:b", "?q", "#f"]


def read(text):
    try:
        return urls.as_local_path(text)
    except IcevirtError as error:
        return type(error), str(error)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["", "/", "file:", "file:/", "file://", "file:///", "FILE:///"]),
    st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=4),
    st.sampled_from(["", "\n", "\0"]),
)
def test_a_plain_path_is_what_it_would_be_if_it_were_looked_at(monkeypatch, begin, names, end):
    """What the short way returns, the long way returns as well."""
    text = begin + "/".join(names) + end
    short = read(text)
    with monkeypatch.context() as patch:
        patch.setattr(urls, "_PLAIN", re.compile("(?!)"))
        assert read(text) == short


@pytest.mark.parametrize("text", ["~\0", "a\0b", "/a\0"])
def test_a_nul_is_in_no_path(text):
    """Python 3.12 fails at some of them, and later ones at others."""
    with pytest.raises(IcevirtError, match="NUL"):
        urls.as_local_path(text)


@pytest.mark.parametrize("text", ["/a/.cache/b.nc", "file:///a/b-1_2.nc"])
def test_a_plain_path_is_neither_spelled_nor_split(text, monkeypatch):
    """Listing and scanning each file of an archive asks for it several times."""
    monkeypatch.setattr(urls, "spell", lambda _: pytest.fail("it was looked at"))
    assert urls.as_local_path(text) == text.removeprefix("file://")
