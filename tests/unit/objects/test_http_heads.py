"""Heads of answers are read by the standard library, and refused where they are read in two ways."""

import http.client
import io

import pytest

from icevirt.objects.answers import fields_of, is_encoded, range_of, refuse_unclear_framing


def parsed(*lines, first="HTTP/1.1 206 Partial Content"):
    raw = "".join(f"{line}\r\n" for line in (first, *lines, "")).encode("latin-1")

    class Socket:
        def makefile(self, _mode):
            return io.BytesIO(raw)

    answer = http.client.HTTPResponse(Socket())
    answer.begin()
    return answer


CLEAR = {
    "a length": ["Content-Length: 4"],
    "a length with spaces": ["Content-Length:  4 "],
    "the same length twice": ["Content-Length: 4", "Content-Length: 4"],
    "chunked": ["Transfer-Encoding: chunked"],
    "chunked, spelled otherwise": ["tRANSFER-eNCODING: Chunked"],
    "neither": [],
    "a type that libraries of mail look into": [
        "Content-Type: multipart/form-data; boundary=x",
        "Content-Length: 4",
    ],
}
UNCLEAR = {
    "identity": ["Transfer-Encoding: identity"],
    "a coding before": ["Transfer-Encoding: identity, chunked"],
    "a coding after": ["Transfer-Encoding: chunked, gzip"],
    "an empty list": ["Transfer-Encoding: "],
    "a comma": ["Transfer-Encoding: chunked,"],
    "a space that the library keeps": ["Transfer-Encoding: chunked "],
    "two lines": ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
    "beside a length": ["Transfer-Encoding: chunked", "Content-Length: 4"],
    "other digits": ["Content-Length: \xb2"],
    "a hexadecimal length": ["Content-Length: 0x4"],
    "an underscore": ["Content-Length: 1_0"],
    "a sign": ["Content-Length: +4"],
    "no number": ["Content-Length: "],
    "two lengths": ["Content-Length: 4", "Content-Length: 5"],
    "a list": ["Content-Length: 4, 4"],
    "a line without colon": ["Content-Length: 4", "x", "Transfer-Encoding: chunked"],
    "a space before the colon": ["Transfer-Encoding : chunked", "Content-Length: 4"],
    "a first line that goes on": [" x: y", "Content-Length: 4"],
}


def refuse(response):
    refuse_unclear_framing(response, fields_of(response.headers))


@pytest.mark.parametrize("lines", CLEAR.values(), ids=CLEAR.keys())
def test_one_length_or_chunked_alone_says_where_an_answer_ends(lines):
    refuse(parsed(*lines))


@pytest.mark.parametrize("lines", UNCLEAR.values(), ids=UNCLEAR.keys())
def test_any_other_framing_is_refused(lines):
    with pytest.raises(ValueError, match=r"(?i)length|encoding|header"):
        refuse(parsed(*lines))


def test_chunks_by_http_1_0_are_refused():
    with pytest.raises(ValueError, match="chunked"):
        refuse(parsed("Transfer-Encoding: chunked", first="HTTP/1.0 206 OK"))


def test_of_a_header_with_several_values_none_is_taken():
    fields = fields_of(parsed("ETag: a", "etag: b ", "X-A: c ", "x-a:c").headers)
    assert fields == {"etag": "a, b", "x-a": "c"}
    two_ranges = parsed("Content-Range: bytes 0-1/4", "Content-Range: bytes 0-2/4")
    assert range_of(two_ranges, fields_of(two_ranges.headers)) is None
    codings = parsed("Content-Encoding: identity", "Content-Encoding: gzip")
    assert is_encoded(fields_of(codings.headers))
