"""Servers of files, some of them trusted, and an array whose chunks lie there."""

from dataclasses import dataclass

import icevirt
from access.remote.objects import refer, values
from icevirt.model.config.containers import ObjectStoreConfig
from servers.faults import Rules
from servers.ranges import Files

VALUES = values(4)
TOKEN = "canary-7f3a"


@dataclass(frozen=True)
class Server:
    url: str
    files: Files
    rules: Rules

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def put(self, path="data/a.bin"):
        self.files.put(path, VALUES.tobytes())


def array(tmp_path, prefix, *, options=None, authorize="the prefix", location=None):
    made = refer(
        tmp_path / "repo",
        prefix,
        store=ObjectStoreConfig("http", options or {}),
        authorize=authorize,
        location=location,
        chunks=4,
    )
    return made.array()


def with_token(server):
    return {server.url + "/data/": icevirt.http_credentials(bearer_token=TOKEN)}
