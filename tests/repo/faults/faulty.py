"""A storage on which the n-th call goes wrong, in each of the ways that a call can go wrong."""

from enum import Enum, auto

from icevirt.errors import IcevirtError, StorageError
from icevirt.storage.protocol import Storage

VERBS = tuple(
    name for name, found in vars(Storage).items() if callable(found) and name[0] != "_"
)  # a new verb is covered unasked


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
        self.url = storage.url

    def __getattr__(self, name):
        real = getattr(self.storage, name)
        if name not in VERBS:
            return real

        def call(*args, **kwargs):
            self.calls += 1
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


def endings(action, make):
    """As `deaths`, and yield also how the call ended.

    ``make()`` returns a prepared storage; the calls are counted first, so that new ones are covered
    unasked. Of an error the action may tell its caller, or get over it; of its death it may not.
    """
    probe = Faulty(make())
    action(probe)
    assert probe.calls
    for at in range(1, probe.calls + 1):
        for end in End:
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
