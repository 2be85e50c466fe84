"""Batch network requests of one event loop, briefly waiting for more to arrive.

When many readers wait for values, each requests the next value as soon as it has decoded its own,
so requests that left together come back one by one. A reader that just got a value is likely to
request another: requests wait until all of them did, or until a fraction of a request's usual time
has passed, and then go out together. A lone reader never waits. Nor does any reader whose chunks
lie so far apart that no two shared a request the last time.

Objects that are read from front to back are read ahead. zarr requests ten chunks at a time, and the
next ten when it has decoded those. After three such waves in a row in one object, the following
bytes are fetched in advance, twice as many each time. Bytes fetched in vain stay below twice the
bytes requested, and read-ahead stops when the pattern ends.
"""

from __future__ import annotations

from asyncio import Task, TimerHandle, get_running_loop
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from icevirt.objects import remote
from icevirt.objects.answers import Body, ObjectBytes
from icevirt.objects.remote import RemoteRange

_FRACTION = 0.15  # of what a request usually takes
_LONGEST = 0.02  # seconds
_STREAK = 2  # waves that followed another
_LARGE = 4 * 1024 * 1024  # bytes of a wave that needs no help
_MOST = 8 * 1024 * 1024  # bytes of a window
_OBJECTS = 4
_OLD = 30.0  # seconds

type Give = Callable[[Body | Exception], None]

type Wanted = tuple[RemoteRange, Give]

type Start = Callable[[Coroutine[Any, Any, Any], set[Task[Any]]], Task[Any]]
"""Starts a task and keeps it among others until it is done."""


class NetworkBatcher:
    """What one event loop fetches from elsewhere. Only in the thread of the loop."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._ahead = ReadAhead(start)
        self._held: list[Wanted] = []
        self._timer: TimerHandle | None = None
        self._tasks: set[Task[Any]] = set()
        self._usual = 0.0  # seconds that a request takes
        self._due = 0  # readers that got a value and requested no other
        self._given = 0.0  # when the last of them did
        self._shared = True  # whether ranges shared requests, when last there were several

    def fetch(self, wanted: Sequence[Wanted]) -> None:
        """Fetch ranges and give each to its function."""
        # what a cache keeps is not read ahead: it is kept where its own request is answered
        kept = [each for each in wanted if each[0].source.kept is not None]
        others = [each for each in wanted if each[0].source.kept is None]
        wanted = [*kept, *self._ahead.serve(others)]
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
        self._start(self._fetch(wanted), self._tasks)

    async def _fetch(self, wanted: Sequence[Wanted]) -> None:
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
        except Exception as error:  # noqa: BLE001 - each request gets it
            for _, give_back in wanted:
                give_back(error)
        took = loop.time() - began
        self._usual = 0.8 * self._usual + 0.2 * took if self._usual else took


@dataclass(frozen=True, slots=True)
class _Window:
    """A range that is or was fetched before it is requested."""

    begin: int
    end: int
    answer: Task[ObjectBytes]
    until: float

    @property
    def failed(self) -> bool:
        done = self.answer.done()
        return done and (self.answer.cancelled() or self.answer.exception() is not None)


@dataclass(slots=True)
class _Reading:
    """How one object is being read."""

    end: int = -1  # of the last wave
    streak: int = 0
    size: int = 0  # of the last window
    is_over: bool = False  # the object ends in the last window
    windows: list[_Window] = field(default_factory=list)  # one behind the other

    def over(self, part: RemoteRange) -> list[_Window] | None:
        """Return the windows that hold a range together."""
        end = part.offset + part.length
        held = [each for each in self.windows if each.begin < end and each.end > part.offset]
        whole = held and held[0].begin <= part.offset and held[-1].end >= end
        return held if whole else None


class ReadAhead:
    """What was fetched ahead in one event loop. Only in the thread of the loop."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._readings: OrderedDict[object, _Reading] = OrderedDict()
        self._tasks: set[Task[Any]] = set()

    def serve(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Give what was fetched ahead, or when it arrives; return the others."""
        rest = []
        for part, give in wanted:
            reading = self._readings.get(part.source.identity)
            windows = None if reading is None else reading.over(part)
            if windows is None or any(each.failed for each in windows):
                rest.append((part, give))
            elif not all(each.answer.done() for each in windows):
                self._start(_give_fetched(part, give, windows), self._tasks)
            elif isinstance(body := _within(part, windows), Exception):
                rest.append((part, give))
            else:
                give(body)
        waves: dict[object, list[RemoteRange]] = defaultdict(list)
        for part, _ in wanted:
            waves[part.source.identity].append(part)
        for identity, wave in waves.items():
            self._follow(self._readings.setdefault(identity, _Reading()), wave)
            self._readings.move_to_end(identity)
        while len(self._readings) > _OBJECTS:
            self._readings.popitem(last=False)
        return rest

    def _follow(self, reading: _Reading, wave: Sequence[RemoteRange]) -> None:
        """Note a wave; fetch what comes behind it, if it is likely to be requested."""
        wanted = sum(part.length for part in wave)
        begin = min(part.offset for part in wave)
        end = max(part.offset + part.length for part in wave)
        # parts that one turn of the loop requests may overlap
        follows = reading.end >= 0 and abs(begin - reading.end) <= wanted
        goes_on = follows and end - begin <= 2 * wanted
        if not goes_on:  # it is read somewhere else
            reading.streak = reading.size = 0
            reading.is_over = False
            reading.windows = []
        reading.streak += goes_on
        reading.end = end
        now = get_running_loop().time()
        reading.windows = [each for each in reading.windows if each.until > now and not each.failed]
        if reading.streak < _STREAK or wanted > _LARGE or reading.is_over:
            return
        start = max(end, reading.windows[-1].end if reading.windows else 0)
        if start - end <= reading.size // 2:
            reading.size = min(max(2 * wanted, 2 * reading.size), _MOST)
            self._fetch(reading, wave[0], start)

    def _fetch(self, reading: _Reading, part: RemoteRange, start: int) -> None:
        stop = start + reading.size

        def check_length(task: Task[ObjectBytes]) -> None:
            if not task.cancelled() and task.exception() is None:
                reading.is_over |= len(task.result().body) < stop - start

        task = self._start(part.source.get_async(start, stop), self._tasks)
        task.add_done_callback(check_length)
        window = _Window(start, stop, task, get_running_loop().time() + _OLD)
        reading.windows = [*reading.windows[-1:], window]


async def _give_fetched(part: RemoteRange, give: Give, windows: Sequence[_Window]) -> None:
    """Give a range when its windows arrived; fetch it by itself if one of them fails."""
    with suppress(Exception):  # any error is raised where this range is read
        for each in windows:
            await each.answer
        if not isinstance(body := _within(part, windows), Exception):
            give(body)
            return
    await remote.fetch_async([part], lambda _row, body: give(body))


def _within(part: RemoteRange, windows: Sequence[_Window]) -> Body | Exception:
    """Return a range out of windows that arrived."""
    return remote.assemble(part, [each.answer.result() for each in windows])
