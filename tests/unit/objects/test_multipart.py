"""Answers with several ranges are cut into them, in whatever form, or refused; never more than that."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.objects.http.multipart import (
    MultipartError,
    bodies_of,
    boundary_of,
    longest_body,
    parts_of,
)

FILE = bytes(range(256)) * 16
SIZE = len(FILE)
RANGES = [(16, 48), (100, 101), (1000, 1300)]
BOUNDARY = b"x1"
CLOSE = b"\r\n--x1--\r\n"


def part(begin, end, body=None, *, size=SIZE, head=b"Content-Type: a/b\r\n"):
    """Return a part, its delimiter before it."""
    said = f"Content-Range: bytes {begin}-{end - 1}/{size}\r\n\r\n".encode()
    return b"\r\n--x1\r\n" + head + said + (FILE[begin:end] if body is None else body)


def answer(ranges=RANGES):
    return b"".join(part(*each) for each in ranges) + CLOSE


def read(body, ranges=RANGES, boundary=BOUNDARY, size=SIZE):
    return [bytes(found) for found in bodies_of(parts_of(body, boundary), ranges, size)]


WANTED = [FILE[begin:end] for begin, end in RANGES]
GOOD = {
    "in order": answer(),
    "in another order": answer(RANGES[::-1]),
    "without an empty line before": answer()[2:],
    "without a line end behind": answer()[:-2],
    "white space behind a delimiter": answer().replace(b"--x1\r\n", b"--x1 \t\r\n"),
    "no type": answer().replace(b"Content-Type: a/b\r\n", b""),
    "names in lower case": answer().replace(b"Content-Range", b"content-range"),
    "more headers": answer().replace(b"Content-Range", b'ETag: "a"\r\nContent-Range'),
    "a range that is cut": answer([(16, 30), (30, 48), (100, 101), (1000, 1300)]),
    "ranges that are joined, the bytes between included": answer([(16, 101), (1000, 1300)]),
    "all in one part": answer([(16, 1300)]),
    "bytes between, on both sides": answer([(16, 60), (90, 200), (900, 1300)]),
}


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD.keys())
def test_an_answer_that_has_every_byte_is_read(body):
    assert read(body) == WANTED


def test_what_looks_like_a_delimiter_in_a_file_is_bytes_of_the_file():
    inner = b"\r\n--x1--\r\n" + part(0, 4)
    body = part(16, 16 + len(inner), inner) + CLOSE
    assert read(body, [(16, 16 + len(inner))]) == [inner]


BAD = {
    "nothing": b"",
    "no delimiter": FILE,
    "another delimiter": answer().replace(b"--x1", b"--x2"),
    "a longer delimiter": answer().replace(b"--x1\r\n", b"--x12\r\n"),
    "no line end before a delimiter": part(16, 48) + b"xx" + answer(RANGES[1:])[2:],
    "no part": CLOSE,
    "a preamble": b"This is a message" + answer(),
    "something behind": answer() + b"x",
    "another answer behind": answer() + answer(),
    "no last delimiter": answer().removesuffix(CLOSE),
    "a last delimiter that does not close": answer().removesuffix(b"--\r\n"),
    "a part is missing": answer(RANGES[1:]),
    "a part is there twice": answer([*RANGES, RANGES[0]]),
    "a part is there twice, with other bytes": (
        answer().removesuffix(CLOSE) + part(16, 48, bytes(32)) + CLOSE
    ),
    "parts overlap": answer([(16, 40), (30, 48), *RANGES[1:]]),
    "a part more": answer([*RANGES, (500, 510)]),
    "a part before": answer([(0, 4), *RANGES]),
    "a part behind": answer([*RANGES, (1300, 1301)]),
    "a part that begins earlier": answer([(15, 48), *RANGES[1:]]),
    "a part that ends later": answer([*RANGES[:2], (1000, 1301)]),
    "a byte is missing": answer([(16, 30), (31, 48), *RANGES[1:]]),
    "the last byte is missing": answer([*RANGES[:2], (1000, 1299)]),
    "a part is shorter than it says": part(16, 48, FILE[16:47]) + answer(RANGES[1:]),
    "a part is longer than it says": part(16, 48, FILE[16:49]) + answer(RANGES[1:]),
    "a part has no bytes": part(16, 48, b"") + answer(RANGES[1:]),
    "a part of another file": part(16, 48, size=5000) + answer(RANGES[1:]),
    "a part of a file of unknown size": part(16, 48, size="*") + answer(RANGES[1:]),
    "a part beyond its file": part(16, 48, size=40) + answer(RANGES[1:]),
    "a part that ends before it begins": part(48, 16, b"") + answer(RANGES[1:]),
    "no range": answer().replace(b"Content-Range", b"Content-Rang"),
    "two ranges of a part": answer().replace(
        b"bytes 16-47/4096", b"bytes 16-47/4096\r\nContent-Range: bytes 0-1/9"
    ),
    "other units": answer().replace(b"bytes ", b"lines "),
    "numbers too large": answer().replace(b"bytes 16-", b"bytes %b-" % (b"9" * 30)),
    "numbers that are none": answer().replace(b"bytes 16-", b"bytes +16-"),
    "an encoded part": part(16, 48, head=b"Content-Encoding: gzip\r\n") + answer(RANGES[1:]),
    "an encoded part of a mail": (
        part(16, 48, head=b"Content-Transfer-Encoding: base64\r\n") + answer(RANGES[1:])
    ),
    "a part that has parts": (
        part(16, 48, head=b"Content-Type: multipart/byteranges; boundary=x1\r\n")
        + answer(RANGES[1:])
    ),
    "parts of a part, which itself is no range": (
        b"\r\n--x1\r\nContent-Type: multipart/byteranges; boundary=x2\r\n\r\n"
        + answer().replace(b"--x1", b"--x2")
        + CLOSE
    ),
    "a header that goes on": answer().replace(b"a/b\r\n", b"a/b\r\n c\r\n"),
    "a header without a name": answer().replace(b"a/b\r\n", b"a/b\r\n: c\r\n"),
    "a header with a zero": answer().replace(b"a/b", b"a\0b"),
    "line ends of Unix": answer().replace(b"\r\n", b"\n"),
    "a line end within a header": answer().replace(b"a/b", b"a\nb"),
    "a head that does not end": (
        part(16, 48, head=b"X: %b\r\n" % (b"x" * 2000)) + answer(RANGES[1:])
    ),
    "a head without end": b"\r\n--x1\r\n" + b"x: y\r\n" * 1000,
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_any_other_answer_is_refused(body):
    with pytest.raises(MultipartError):
        read(body)


def test_a_range_is_cut_into_so_many_parts_and_no_more():
    cuts = [(at, at + 1) for at in range(257)]
    assert read(answer(cuts[:256]), [(0, 256)]) == [FILE[:256]]
    with pytest.raises(MultipartError, match="too many"):
        read(answer(cuts), [(0, 257)])


def test_an_answer_that_is_cut_anywhere_is_refused():
    body = answer()
    for end in range(len(body) - 2):
        with pytest.raises(MultipartError):
            read(body[:end])


BOUNDARIES = {
    "plain": ("multipart/byteranges; boundary=x1", b"x1"),
    "quoted": ('multipart/byteranges; boundary="x 1"', b"x 1"),
    "in any case": ("Multipart/ByteRanges;Boundary=X1", b"X1"),
    "with others": ("multipart/byteranges; charset=utf-8; boundary=x1; a=b", b"x1"),
    "of IIS": ("multipart/byteranges; boundary=<q1w2e3r4t5y6u7i8o9p0>", b"<q1w2e3r4t5y6u7i8o9p0>"),
    "the longest": (f"multipart/byteranges; boundary={'b' * 70}", b"b" * 70),
    "too long": (f"multipart/byteranges; boundary={'b' * 71}", None),
    "too long, quoted": (f'multipart/byteranges; boundary="{"b" * 71}"', None),
    "empty": ("multipart/byteranges; boundary=", None),
    "empty, quoted": ('multipart/byteranges; boundary=""', None),
    "half quoted": ('multipart/byteranges; boundary="x1', None),
    "quoted, a space at its end": ('multipart/byteranges; boundary="x1 "', None),
    "a quote within": ('multipart/byteranges; boundary="x\\"1"', None),
    "two of them": ("multipart/byteranges; boundary=x1; boundary=x2", None),
    "none": ("multipart/byteranges", None),
    "not ASCII": ("multipart/byteranges; boundary=\xe9", None),
    "a line end": ("multipart/byteranges; boundary=x\r1", None),
    "another type": ("multipart/mixed; boundary=x1", None),
    "a longer type": ("multipart/byterangesx; boundary=x1", None),
    "no type": ("", None),
}


@pytest.mark.parametrize(("text", "found"), BOUNDARIES.values(), ids=BOUNDARIES.keys())
def test_the_boundary_is_read_or_refused(text, found):
    if found is not None:
        assert boundary_of(text) == found
        return
    with pytest.raises(MultipartError):
        boundary_of(text)


@st.composite
def answers(draw):
    """Draw ranges of the file, and the parts of an answer that has each of them."""
    ends = draw(st.lists(st.integers(0, SIZE), min_size=2, max_size=24, unique=True))
    ends = sorted(ends)[: len(ends) // 2 * 2]
    ranges = list(zip(ends[::2], ends[1::2], strict=True))
    joined = [ranges[0]]
    for begin, end in ranges[1:]:
        comes_along = draw(st.booleans())  # what is between
        joined.append((joined.pop()[0] if comes_along else begin, end))
    parts = []
    for begin, end in joined:
        cuts = {begin, end, *draw(st.lists(st.integers(begin, end), max_size=2))}
        parts += pairwise(sorted(cuts))
    return ranges, draw(st.permutations(parts))


def has(part, ranges):
    return any(part[0] < end and begin < part[1] for begin, end in ranges)


@given(answers())
def test_parts_come_in_any_order_joined_or_cut(drawn):
    ranges, parts = drawn
    if all(has(part, ranges) for part in parts):
        assert read(answer(parts), ranges) == [FILE[begin:end] for begin, end in ranges]
    else:
        with pytest.raises(MultipartError, match="more than"):
            read(answer(parts), ranges)


@given(answers(), st.data())
def test_a_damaged_answer_is_refused_or_has_the_ranges(drawn, data):
    """Where the damage is in the bytes of the file nobody can see it; lengths are right."""
    ranges, parts = drawn
    body = bytearray(answer(parts))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body)))
        stop = data.draw(st.integers(at, min(at + 8, len(body))))
        body[at:stop] = data.draw(st.binary(max_size=8) | st.sampled_from([b"\r\n", b"--x1", b"9"]))
    try:
        found = read(bytes(body), ranges)
    except MultipartError:
        return
    assert [len(each) for each in found] == [end - begin for begin, end in ranges]


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=5))
def test_random_bytes_are_refused(body, boundary):
    for text in (body, b"--" + boundary + b"\r\n" + body):
        with pytest.raises(MultipartError):
            read(text, boundary=boundary)


@given(answers())
def test_an_answer_of_plain_parts_fits_what_is_read_of_it(drawn):
    ranges, _ = drawn
    assert len(answer(ranges)) <= longest_body(ranges)
    assert longest_body(ranges) - sum(end - begin for begin, end in ranges) <= 1024 * 13
