"""Compare what an executor has installed with what the driver has, before it unpickles ours.

Values are pickled by the position of their fields, so that another icevirt would read a size where
an etag is, and say nothing.
"""

from __future__ import annotations

import importlib.util
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from icevirt.execution import installed

NEEDED: Mapping[str, str] = {
    "numpy": "numpy>=2.1",
    "pyarrow": "pyarrow>=18",
    "pandas": "pandas>=2.2,<3",
    "zarr": "zarr>=3.4.1,<4",
    "zstandard": "zstandard>=0.23",
    "msgpack": "msgpack>=1.1",
    "fsspec": "fsspec>=2025.2",
    "obstore": "obstore>=0.12,<0.13",
    "re2": "google-re2>=1.1.20240702",
    "yaml": "pyyaml>=6.0.1",
    "cftime": "cftime>=1.6.4",
    "h5py": "h5py>=3.12",
}
"""What tasks import, and what brings it."""

REFUSED = "icevirt refuses this executor"
"""Begins the message of the error that a task raises whose executor does not suit."""

RAISED_ON = "icevirt ran on executor"
"""Begins the note on an error that a task raised, before the host."""

_OPTIONAL = "h5py"  # needed where the driver has it

_REGISTERING = threading.Lock()  # cloudpickle knows modules, not calls

type Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark runs on the rows of a partition."""


@cache
def by_value(function: Callable[..., Any]) -> bytes:
    """Return a function of `installed`, pickled with all that it calls there."""
    return _pickle_with_functions(function)


def _pickle_with_functions(thing: Any) -> bytes:
    from pyspark import cloudpickle

    tool: Any = cloudpickle
    with _REGISTERING:
        tool.register_pickle_by_value(installed)
        try:
            raw: bytes = tool.dumps(thing)
        finally:
            tool.unregister_pickle_by_value(installed)
    return raw


def requirements() -> dict[str, str]:
    """Return the requirements of tasks, by the names under which packages are imported."""
    has_optional = importlib.util.find_spec(_OPTIONAL) is not None
    return {name: text for name, text in NEEDED.items() if has_optional or name != _OPTIONAL}


@cache
def of_driver() -> Mapping[str, Any]:
    """Return what this process has installed, as it is when this is first called."""
    return installed.look({}, reads_code=True)


def expect(*, is_local: bool) -> dict[str, Any]:
    """Return what executors should have.

    Args:
        is_local: Whether they import what the driver does: its code is not summed up again.
    """
    kept = {name: of_driver()[name] for name in ("python", "icevirt", "code", "scanners")}
    return kept | ({"code": ""} if is_local else {})


def guard(work: Batches, *, is_local: bool) -> Batches:
    """Return what refuses an executor that does not suit, and else unpickles and does the work.

    The task that this is raised in fails, and Spark tries it again, perhaps on another executor.

    Args:
        work: What is to run there.
        is_local: As for `expected_of`.
    """
    from pyspark import cloudpickle

    tool: Any = cloudpickle
    payload: bytes = tool.dumps(work)
    refuse, expected = by_value(installed.refuse), expect(is_local=is_local)
    refused, raised_on = REFUSED, RAISED_ON

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle
        import socket

        try:
            pickle.loads(refuse)(expected, refused)  # noqa: S301  # made above
            yield from pickle.loads(payload)(batches)  # noqa: S301
        except Exception as error:
            if not is_local:
                error.add_note(f"{raised_on} {socket.gethostname()}")
            raise

    return run


class SentBySpark:
    """Base of what Spark pickles by itself, as the parts of a data source.

    Who unpickles such an object has to have what this process has, and is asked by functions that
    come with it: nothing of ours is imported or unpickled before.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        payload = pickle.dumps((type(self), self.__getstate__() or {}))
        return pickle.loads, (_pickle_with_functions(_Loading(payload)),)


class _Loading:
    """Pickles as a call of `installed.loaded`."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def __reduce__(self) -> tuple[Any, ...]:
        return installed.load, (expect(is_local=False), REFUSED, self._payload)
