"""Load obstore so that it works in this process, also after a fork.

obstore has one runtime per process, and its threads do not survive ``fork``: in a child, every call
would wait forever, also on new stores. So a child that needs obstore loads the library again, from
a copy that the system treats as another file.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

_EXTENSION = "obstore._obstore"


class _Library:
    """Which instance this process uses."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.module: ModuleType | None = None
        self.file = ""  # of the extension, as it is installed
        self.inherited = False

    def get(self) -> ModuleType:
        """Return it, loaded when it is first asked for."""
        with self.lock:
            if self.module is None:
                if self.inherited:
                    _load_copy(self.file)
                importlib.import_module("datetime")  # else its first store would, beyond this lock
                self.module = importlib.import_module("obstore")
                self.file = self.file or str(sys.modules[_EXTENSION].__file__)
                self.inherited = False
            return self.module

    def hold(self) -> None:
        """Wait until nobody is loading it, and let nobody begin."""
        self.lock.acquire()

    def let_go(self) -> None:
        """End what `hold` began."""
        self.lock.release()

    def disown(self) -> None:
        """Remember in a forked child that what is loaded here, by whomever, is the parent's."""
        self.lock = threading.RLock()
        if (loaded := sys.modules.get(_EXTENSION)) is not None:
            self.inherited = True
            self.file = self.file or str(loaded.__file__)
        self.module = None


_library = _Library()
# a fork waits for a thread that is just loading: half of a module would be all the child ever has
os.register_at_fork(
    before=_library.hold, after_in_parent=_library.let_go, after_in_child=_library.disown
)


def obstore() -> ModuleType:
    """Return the library; do not keep it or its stores where a forked child could find them."""
    return _library.module or _library.get()


def _load_copy(file: str) -> None:
    """Put a second instance of the extension where ``import obstore`` finds it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        del sys.modules[name]
    with _copied(file) as copy:
        loader = ExtensionFileLoader(_EXTENSION, copy)
        spec = spec_from_file_location(_EXTENSION, copy, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        sys.modules[_EXTENSION] = module
        loader.exec_module(module)


@contextmanager
def _copied(file: str) -> Iterator[str]:
    """Return the path of a copy; in memory where possible, as /tmp may forbid to execute."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("obstore")
        path = f"/proc/{os.getpid()}/fd/{descriptor}"  # a name that no ancestor loaded
    else:
        descriptor, path = tempfile.mkstemp(prefix="icevirt-", suffix=".so")
    try:
        with open(file, "rb") as original, open(descriptor, "wb", closefd=False) as copy:
            shutil.copyfileobj(original, copy, 1 << 20)
        yield path
    finally:
        os.close(descriptor)
        if os.path.exists(path):
            os.unlink(path)
