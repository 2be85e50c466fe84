"""Batch network requests of one event loop, briefly waiting for more to arrive.

When many readers wait for values, each requests the next value as soon as it has decoded its own,
so requests that left together come back one by one. A reader that just got a value is likely to
request another: requests wait until all of them did, or until a fraction of a request's usual time
has passed, and then go out together. A lone reader never waits. Nor does any reader whose chunks
lie so far apart that no two shared a request the last time.
"""

from __future__ import annotations

from asyncio import Task, TimerHandle, get_running_loop
from collections.abc import Sequence

from icevirt.access.store.readahead import ReadAhead, Wanted
from icevirt.objects import remote
from icevirt.objects.answers import Body

_FRACTION = 0.15  # of what a request usually takes
_LONGEST = 0.02  # seconds


class NetworkBatcher:
    """What one event loop fetches from elsewhere. Only in the thread of the loop."""

    def __init__(self) -> None:
        self._ahead = ReadAhead()
        self._held: list[Wanted] = []
        self._timer: TimerHandle | None = None
        self._tasks: set[Task[None]] = set()  # the loop keeps no strong references
        self._usual = 0.0  # seconds that a request takes
        self._due = 0  # how many got a value and did not ask again
        self._given = 0.0  # when the last of them did
        self._shared = True  # whether ranges shared requests, when last there were several

    def fetch(self, wanted: Sequence[Wanted]) -> None:
        """Fetch ranges and give each to its function."""
        wanted = self._ahead.serve(wanted)
        if not wanted:
            return
        self._held += wanted
        self._due -= len(wanted)
        loop = get_running_loop()
        rest = self._given + min(self._usual * _FRACTION, _LONGEST) - loop.time()
        if self._due <= 0 or rest <= 0 or not self._shared:
            self._send()
        elif self._timer is None:
            self._timer = loop.call_later(rest, self._send)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wanted, self._held = self._held, []
        self._due = 0
        task = get_running_loop().create_task(self._fetched(wanted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetched(self, wanted: Sequence[Wanted]) -> None:
        loop = get_running_loop()
        began = loop.time()

        def give(row: int, body: Body | Exception) -> None:
            self._due += 1
            self._given = loop.time()
            wanted[row][1](body)

        try:
            asked = await remote.fetch_async([part for part, _ in wanted], give)
            if len(wanted) > 1:
                self._shared = asked < len(wanted)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            for _, tell in wanted:
                tell(error)
        took = loop.time() - began
        self._usual = 0.8 * self._usual + 0.2 * took if self._usual else took
