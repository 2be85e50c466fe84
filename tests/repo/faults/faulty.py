"""A storage on which the n-th call goes wrong, in each of the ways that a call can go wrong."""

from enum import Enum, auto

from icevirt.errors import IcevirtError, StorageError
from icevirt.storage.protocol import Storage
from long_forms import IS_LONG

VERBS = tuple(
    name for name, found in vars(Storage).items() if callable(found) and name[0] != "_"
)  # a new verb is covered unasked
READS = {"exists", "get", "get_range", "get_versioned", "list"}


class Killed(BaseException):
    """The process is gone; nothing may catch this."""


class End(Enum):
    """What becomes of the call, and of the process that made it."""

    killed_before = auto()
    killed_after = auto()
    failed = auto()  # nothing was done, and the caller hears of it
    answer_lost = auto()  # it was done, and the caller hears of a failure

    @property
    def applied(self) -> bool:
        return self in (End.killed_after, End.answer_lost)

    @property
    def kills(self) -> bool:
        return self in (End.killed_before, End.killed_after)

    def exception(self) -> BaseException:
        if self.kills:
            return Killed()
        return StorageError("the connection broke", do="Try again.")


class Faulty:
    """Passes calls on and counts them; the ``at``-th one ends otherwise."""

    def __init__(self, storage, at: int = 0, end: End = End.killed_before) -> None:
        self.storage, self.at, self.end, self.calls = storage, at, end, 0
        self.url, self.names = storage.url, []

    def __getattr__(self, name):
        real = getattr(self.storage, name)
        if name not in VERBS:
            return real

        def call(*args, **kwargs):
            if name != "list":  # where it says with which object to begin
                for path, body in kwargs.pop("after", {}).items():  # each of them may go wrong too
                    self.put(path, body)
            self.calls += 1
            self.names.append(name)
            if self.calls != self.at:
                return real(*args, **kwargs)
            try:
                if self.end.applied:
                    real(*args, **kwargs)
            finally:
                raise self.end.exception()  # whatever it would have said is lost

        return call


def deaths(action, make):
    """Run ``action(storage)`` on fresh storages, with each call going wrong; yield what is left."""
    for storage, _ in endings(action, make):
        yield storage


def endings(action, make, verbs=VERBS):
    """As `deaths`, and yield also how the call ended.

    ``make()`` returns a prepared storage; the calls are counted first, so that new ones are covered
    unasked, those of some ``verbs`` if these are named. Of an error the action may tell its caller, or
    get over it; of its death it may not. What leaves the same is tried once, and at night each time.
    """
    probe = Faulty(make())
    action(probe)
    assert probe.calls
    for at, end in _ends([(at, name) for at, name in enumerate(probe.names, 1) if name in verbs]):
        storage = make()
        try:
            action(Faulty(storage, at, end))
        except Killed:
            assert end.kills
        except IcevirtError:
            assert not end.kills
        else:
            assert not end.kills, f"call {at} did not happen this time"
        yield storage, end


def _ends(calls):
    """Yield which calls end how.

    A read that is killed leaves what a kill before the next write leaves, and so does a write that
    was done; whether a read whose answer is lost was done, nobody can tell.
    """
    last = max((at for at, name in calls if name not in READS), default=0)
    for at, name in calls:
        if name in READS:
            few = {End.failed}
        elif at == last:
            few = {*End}
        else:
            few = {*End} - {End.killed_after}
        yield from ((at, end) for end in End if IS_LONG or end in few)
