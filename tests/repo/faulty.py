"""A storage whose process is killed at the n-th call, before or after the call took effect."""


class Killed(BaseException):
    """The process is gone; nothing may catch this."""


class Mortal:
    """Passes calls on and counts them; at the ``at``-th one the process "dies"."""

    VERBS = ("get", "get_range", "get_versioned", "put", "put_if", "list", "delete", "exists")

    def __init__(self, storage, at: int = 0, *, after: bool = False) -> None:
        self.storage, self.at, self.after, self.calls = storage, at, after, 0
        self.url = storage.url

    def __getattr__(self, name):
        real = getattr(self.storage, name)
        if name not in self.VERBS:
            return real

        def call(*args, **kwargs):
            self.calls += 1
            if self.calls == self.at and not self.after:
                raise Killed
            now = self.calls == self.at
            try:
                return real(*args, **kwargs)
            finally:
                if now:
                    raise Killed

        return call


def deaths(action, make):
    """Run ``action(storage)`` on fresh storages, killed at every call; yield what is left.

    ``make()`` returns a prepared storage; the calls are counted first, so that new ones are covered
    unasked.
    """
    probe = Mortal(make())
    action(probe)
    for at in range(1, probe.calls + 1):
        for after in (False, True):
            storage = make()
            try:
                action(Mortal(storage, at, after=after))
            except Killed:
                yield storage
            else:
                raise AssertionError(f"call {at} did not happen this time")
