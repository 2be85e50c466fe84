"""A frame behind a raw start is taken apart into exactly what it was made of, at every size."""

import os

import numpy as np
import pytest
import zstandard

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


@pytest.mark.parametrize("size", [*SIZES[:8], (128 << 10) - 1, 128 << 10, 300_000])
@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("checksum", [True, False])
def test_few_bytes_make_the_frame_that_a_stream_of_them_makes(size, level, checksum):
    """Whichever files the thread compressed before, and however the bytes are cut."""
    body = np.random.default_rng(size).integers(97, 101, size, np.uint8)
    stream = zstandard.ZstdCompressor(level=level, write_checksum=checksum).compressobj(size=size)
    expected = stream.compress(body) + stream.flush()
    for parts in ([body], np.array_split(body, 7)):
        pieces = header.compress(parts, size, level, checksum=checksum)
        assert b"".join(pieces) == expected


def test_parts_may_share_their_memory():
    block = np.zeros(10, np.uint8)

    def parts():
        for number in range(3):
            block[:] = number
            yield block

    frame = b"".join(header.compress(parts(), 30, 1, checksum=True))
    assert zstandard.decompress(frame) == bytes(10) + b"\1" * 10 + b"\2" * 10


@pytest.mark.parametrize("length", range(28))
def test_what_is_cut_short_is_no_error(length):
    body = header.compress([np.frombuffer(b"body", np.uint8)], 4, 1, checksum=False)
    whole = header.with_raw_start(HEAD, b"start", body)
    file = whole[: len(HEAD) + length]
    assert len(file) < len(whole)
    parted = header.without_raw_start(file, len(HEAD))
    assert parted is None or parted[1] != b"".join(body)
