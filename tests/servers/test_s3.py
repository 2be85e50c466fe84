"""The strict S3 refuses what AWS refuses, and stores nothing of a request that is not whole."""

import base64
import hashlib
import http.client
import socket
import zlib
from urllib.parse import urlsplit

import pytest

from servers.faults import Request, torn
from servers.s3 import checked_body, checksum


def ask(place, method, key, body=b"", **headers):
    parts = urlsplit(place.endpoint)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, f"/b/{key}", body=body, headers=named)
    answer = connection.getresponse()
    found = answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    connection.close()
    return found


def code(found) -> tuple[int, str]:
    status, body, _ = found
    return status, body.partition(b"<Code>")[2].partition(b"</Code>")[0].decode()


DIGESTS = {
    "md5": {"content_md5": base64.b64encode(hashlib.md5(b"other").digest()).decode()},
    "crc32": {"x_amz_checksum_crc32": base64.b64encode(zlib.crc32(b"other").to_bytes(4)).decode()},
    "sha256": {
        "x_amz_checksum_sha256": base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    },
    "payload": {"x_amz_content_sha256": hashlib.sha256(b"other").hexdigest()},
}


@pytest.mark.parametrize("headers", DIGESTS.values(), ids=DIGESTS.keys())
def test_a_wrong_digest_is_refused_and_nothing_stored(strict_s3, headers):
    assert ask(strict_s3.place, "PUT", "k", b"body", **headers)[0] == 400
    assert strict_s3.cloud.bodies() == {}


def test_half_a_body_is_not_stored(strict_s3):
    """Whether the client dies, or the connection."""
    parts = urlsplit(strict_s3.place.endpoint)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as client:
        client.sendall(b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + b"x" * 50)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    strict_s3.rules.add(torn(3), method="PUT")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        ask(strict_s3.place, "PUT", "k", b"x" * 100)
    assert strict_s3.cloud.bodies() == {}


def test_conditions_are_answered_as_aws_does(strict_s3):
    def put(**headers):
        return code(ask(strict_s3.place, "PUT", "k", b"1", **headers))

    assert put(if_match='"x"') == (404, "NoSuchKey")
    assert put(if_none_match="*") == (200, "")
    assert put(if_none_match="*") == (412, "PreconditionFailed")
    assert put(if_match='"x"') == (412, "PreconditionFailed")
    assert put(if_none_match='"x"')[0] == 501
    etag = ask(strict_s3.place, "HEAD", "k")[2]["etag"]
    assert put(if_match=etag) == (200, "")


def test_reads_can_lag(strict_s3):
    for body in (b"1", b"2", b"3"):
        ask(strict_s3.place, "PUT", "k", body)
    strict_s3.cloud.lag("k", 1)
    assert [ask(strict_s3.place, "GET", "k")[1] for _ in range(2)] == [b"2", b"3"]


def test_parts_are_checked(strict_s3):
    def begun():
        body = ask(strict_s3.place, "POST", "k?uploads")[1]
        return body.partition(b"<UploadId>")[2].partition(b"</UploadId>")[0].decode()

    def end(upload, *etags):
        rows = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        body = f"<CompleteMultipartUpload>{rows}</CompleteMultipartUpload>".encode()
        return code(ask(strict_s3.place, "POST", f"k?uploadId={upload}", body))

    def part(upload, number, body):
        target = f"k?partNumber={number}&uploadId={upload}"
        return ask(strict_s3.place, "PUT", target, body)[2]["etag"]

    upload = begun()
    small, other = part(upload, 1, b"small"), part(upload, 2, b"other")
    assert end(upload, small, other) == (400, "EntityTooSmall")
    assert end(upload, '"wrong"') == (400, "InvalidPart")
    assert strict_s3.cloud.bodies() == {}
    assert strict_s3.cloud.uploads == 1
    large = part(upload, 1, bytes(5 << 20))
    assert end(upload, large, other) == (200, "")
    assert len(strict_s3.cloud.bodies()["b/k"]) == (5 << 20) + 5


@pytest.mark.parametrize(
    ("kind", "output"),
    [("crc32c", "e3069283"), ("crc64nvme", "ae8b14860a799888"), ("crc32", "cbf43926")],
)
def test_checksums_have_their_published_check_values(kind, output):
    assert checksum(kind, b"123456789").hex() == output


def test_a_framed_body_is_unpacked_and_its_trailer_compared():
    body = b"4\r\nbody\r\n0\r\nx-amz-checksum-crc32:%s\r\n\r\n"
    good = base64.b64encode(zlib.crc32(b"body").to_bytes(4))
    headers = {
        "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "x-amz-decoded-content-length": "4",
        "content-length": "1",
    }
    request = Request(method="PUT", target="/b/k", headers=headers, body=body % good)
    assert checked_body(request) == b"body"
    wrong = Request(method="PUT", target="/b/k", headers=headers, body=body % b"AAAAAA==")
    with pytest.raises(Exception, match="BadDigest"):
        checked_body(wrong)
