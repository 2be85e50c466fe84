"""Attributes of many files combine as xarray combines them, for every policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xarray import MergeError
from xarray.structure.merge import merge_attrs

from icevirt.errors import CombineError
from icevirt.model.attributes import Attributes
from icevirt.planning.combine.combine_attrs import combine_attributes

POLICIES = ("override", "drop", "identical", "no_conflicts", "drop_conflicts")
NAMES = st.sampled_from(["units", "title", "history", "scale_factor"])
FILES = st.lists(
    st.dictionaries(NAMES, st.integers(0, 2) | st.sampled_from(["", "K", "m"])),
    min_size=1,
    max_size=4,
)


def combined(files, policy, keep=()):
    found = [Attributes(values=file) for file in files]
    return dict(combine_attributes(found, policy, path="/v", keep=keep).values)


@given(files=FILES, policy=st.sampled_from(POLICIES))
def test_every_policy_is_xarrays(files, policy):
    try:
        wanted = merge_attrs(files, policy)
    except MergeError:
        with pytest.raises(CombineError, match="attributes differ"):
            combined(files, policy)
    else:
        assert combined(files, policy) == wanted


@given(files=FILES, policy=st.sampled_from(POLICIES), keep=st.lists(NAMES, max_size=2, unique=True))
def test_what_is_kept_is_that_of_the_first_file_and_conflicts_with_nothing(files, policy, keep):
    others = [{k: v for k, v in file.items() if k not in keep} for file in files]
    try:
        wanted = combined(files if policy == "override" else others, policy)
    except CombineError:
        with pytest.raises(CombineError):
            combined(files, policy, keep)
    else:
        kept = {name: value for name, value in files[0].items() if name in keep}
        assert combined(files, policy, keep) == kept | wanted


def test_values_of_other_dtypes_conflict():
    one, other = (Attributes(values={"n": 1}, dtypes={"n": kind}) for kind in ("<i4", "<i8"))
    with pytest.raises(CombineError, match="attributes differ"):
        combine_attributes([one, other], "identical", path="/v")
