"""Keep two updates of one dataset apart, so that they do no work twice.

The lease is an object of the repository that the one who runs renews. It is advice, and no lock:
commits alone decide what is lost and what is kept. Whoever finds a lease that was not renewed takes
it over, so that an update that was killed holds up nobody for longer than `SECONDS`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal
from uuid import uuid4

from icevirt.api.pipeline.target import digest_of
from icevirt.errors import IcevirtError, ObjectNotFoundError
from icevirt.model.json import loads
from icevirt.repo.layout import WORK
from icevirt.storage.protocol import Storage, Version, Written

type IfRunning = Literal["wait", "skip"]

SECONDS = 120.0
"""For which a lease holds after it was last renewed."""

_POLL = 2.0  # seconds between looks at the lease of another


@dataclass(slots=True, kw_only=True)
class Lease:
    """A lease of a dataset's updates, while it is held."""

    storage: Storage
    path: str
    seconds: float = SECONDS
    _mine: str = field(default_factory=lambda: uuid4().hex)
    _version: Version | None = None
    _done: threading.Event = field(default_factory=threading.Event)

    def taken(self) -> str:
        """Take the lease if it is free; else return who holds it."""
        try:
            raw, version = self.storage.get_versioned(self.path)
        except ObjectNotFoundError:
            raw, version = b"", None
        if holder := _holder(raw):
            return holder
        written = self.storage.put_if(self.path, self._body(self.seconds), was=version)
        if isinstance(written, Written):
            self._version = written.version
            return ""
        return "another update that began at the same moment"

    def renew(self) -> None:
        """Renew the lease until it is given back, or another one took it over."""
        while not self._done.wait(self.seconds / 4):
            try:
                written = self.storage.put_if(
                    self.path, self._body(self.seconds), was=self._version
                )
            except IcevirtError:
                continue  # the storage may answer the next time
            if not isinstance(written, Written):
                return
            self._version = written.version

    def give_back(self) -> None:
        """Let the next update begin at once."""
        with contextlib.suppress(IcevirtError):  # it ends by itself
            self.storage.put_if(self.path, self._body(0), was=self._version)

    def _body(self, seconds: float) -> bytes:
        content = {
            "id": self._mine,
            "holder": f"{socket.gethostname()}, process {os.getpid()}",
            "until": time.time() + seconds if seconds else 0,
        }
        return json.dumps(content).encode()


@contextlib.contextmanager
def leased(
    storage: Storage, *, branch: str, group: str, if_running: IfRunning, seconds: float = SECONDS
) -> Iterator[str]:
    """Hold the lease of a dataset in the block; yield "" then, else who holds it.

    Args:
        storage: The repository.
        branch: Of the dataset.
        group: Of the dataset.
        if_running: Whether to wait for another update, or to yield its holder.
        seconds: For which the lease holds after it was last renewed.
    """
    path = f"{WORK[0]}/leases/{digest_of(branch, group)}.json"
    lease = Lease(storage=storage, path=path, seconds=seconds)
    while other := lease.taken():
        if if_running == "skip":
            yield other
            return
        time.sleep(min(_POLL, seconds / 4))
    thread = threading.Thread(target=lease.renew, name="icevirt-lease", daemon=True)
    thread.start()
    try:
        yield ""
    finally:
        lease._done.set()  # noqa: SLF001  # of this module
        thread.join()
        lease.give_back()


def _holder(raw: bytes) -> str:
    """Return who holds a lease; "" where nobody does any more."""
    try:
        content = loads(raw)
        until, holder = float(content["until"]), str(content["holder"])
    except (ValueError, KeyError, TypeError):
        return ""
    # one that ends later than any that is written is of a clock that is wrong
    is_held = time.time() < until < time.time() + 10 * SECONDS
    return holder if is_held else ""
