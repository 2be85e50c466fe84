"""Lists of chunk names read back as they were written, and damage to them is noticed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import FormatError
from icevirt.ids import ObjectId12
from icevirt.repo.maintenance import content_names
from icevirt.versioning.id_columns import column

ids = st.sets(st.binary(min_size=12, max_size=12), max_size=6).map(lambda f: column(sorted(f)))


@given(ids)
def test_ids_read_back(found):
    name, raw = content_names.encode(found)
    read = content_names.decode(str(name), raw)
    assert read.tobytes() == found.tobytes()
    assert len(read) == len(found)


@settings(max_examples=20)
@given(ids, st.data())
def test_every_changed_byte_and_every_cut_is_noticed(found, data):
    name, raw = content_names.encode(found)
    at = data.draw(st.integers(0, len(raw) - 1))
    changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
    for damaged in (changed, raw[:at], raw + b"\0"):
        with pytest.raises(FormatError, match="is damaged"):
            content_names.decode(str(name), damaged)


@pytest.mark.parametrize(
    ("raw", "message"),
    [(b"ICVT-NAMES-2" + bytes(12), "does not support the format"), (b"ICVT-NAMES-1x", "damaged")],
    ids=["of a newer icevirt", "half an id"],
)
def test_what_its_name_fits_may_still_be_no_list(raw, message):
    with pytest.raises(FormatError, match=message):
        content_names.decode(str(ObjectId12.of_content(raw)), raw)
