"""A frame behind a raw start is taken apart into exactly what it was made of, at every size."""

import os

import numpy as np
import pytest

from icevirt.wire import header

HEAD = b"head"
SIZES = (0, 1, 255, 256, 257, 65_791, 65_792, 65_793, 1 << 20, (1 << 21) + 5, 9 << 20)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("level", [1, 3, 19])
@pytest.mark.parametrize("made", [os.urandom, bytes], ids=["noise", "zeros"])
def test_it_is_taken_apart_again(size, level, made):
    if level == 19 and size > 1 << 20:
        pytest.skip("level 19 takes seconds for what level 3 shows too")
    start = os.urandom(100)
    body = header.compress([np.frombuffer(made(size), np.uint8)], size, level, checksum=False)
    file = header.with_raw_start(HEAD, start, body)
    assert header.without_raw_start(file, len(HEAD)) == (start, b"".join(body))


@pytest.mark.parametrize("length", range(28))
def test_what_is_cut_short_is_no_error(length):
    body = header.compress([np.frombuffer(b"body", np.uint8)], 4, 1, checksum=False)
    whole = header.with_raw_start(HEAD, b"start", body)
    file = whole[: len(HEAD) + length]
    assert len(file) < len(whole)
    parted = header.without_raw_start(file, len(HEAD))
    assert parted is None or parted[1] != b"".join(body)
