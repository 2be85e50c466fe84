"""Compute the import path of child processes: this process's, without the working directory.

Users work in the directories of their archives, and a file there may have the name of any module.
Python searches the working directory first under ``-m``, ``-c`` or in a notebook, and where
``PYTHONPATH`` has an empty entry. None of these means that the directory is trusted. A script that
lies there does mean it, and so does an absolute path in ``PYTHONPATH``: then the directory stays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

VARIABLE = "ICEVIRT_IMPORT_PATH"
"""Passes the `import_path` on to child processes and to processes that Spark starts.

Python itself ignores it: it would import modules that it needs to start from ``PYTHONPATH``.
"""

_START = f"""\
import os, sys
given = os.environ[{VARIABLE!r}].split(os.pathsep)
sys.path[:] = [*given, *(each for each in sys.path if each not in given)]
import importlib
importlib.import_module(sys.argv[1]).main(*sys.argv[2:])
"""


def import_path() -> list[str]:
    """Return ``sys.path`` for another process: absolute, without the working directory."""
    here = working_directory()
    if here is None:  # it was removed, and names in it mean nothing
        return [each for each in sys.path if os.path.isabs(each)]
    kept = [os.path.abspath(each) for each in sys.path]
    return kept if is_trusted(here) else [each for each in kept if not _is(each, here)]


def working_directory() -> str | None:
    """Return the directory that Python may import from by accident; None if it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return None


def is_trusted(directory: str) -> bool:
    """Return whether the process that started this one listed a directory as a place of code."""
    return any(_is(each, directory) for each in _list_trusted())


def _list_trusted() -> Iterator[str]:
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    if script is not None and getattr(main, "__spec__", None) is None:  # else it was found by -m
        yield os.path.dirname(os.path.realpath(script))
    if not sys.flags.ignore_environment:
        yield from absolute(os.environ.get("PYTHONPATH", ""))
    yield from absolute(os.environ.get(VARIABLE, ""))  # the process that started this one trusts it
    # modules that came with a job lie in the working directory of an executor
    spark: Any = getattr(sys.modules.get("pyspark.core.files"), "SparkFiles", None)
    if spark is not None and spark._is_running_on_worker and spark._root_directory:  # noqa: SLF001
        yield spark._root_directory  # noqa: SLF001


def _is(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def absolute(entries: str) -> list[str]:
    """Return the entries of a variable like ``PYTHONPATH`` that mean the same everywhere."""
    return [each for each in entries.split(os.pathsep) if os.path.isabs(each)]


def command(module: str, *words: str) -> list[str]:
    """Return the command that calls ``main(*words)`` of a module in an `environment`."""
    flags = ["-E"] if sys.flags.ignore_environment else []
    flags += ["-s"] if sys.flags.no_user_site else []
    return [sys.executable, *flags, "-P", "-c", _START, module, *words]


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of another process that imports from `import_path`."""
    path = os.pathsep.join(import_path())
    return {**os.environ, **python_path(os.environ), VARIABLE: path, **variables}


def python_path(variables: Mapping[str, str]) -> dict[str, str]:
    """Return ``PYTHONPATH`` without entries that mean the working directory, or lie in it."""
    if "PYTHONPATH" not in variables:
        return {}
    return {"PYTHONPATH": os.pathsep.join(absolute(variables["PYTHONPATH"]))}


def take_import_path() -> None:
    """Import from where the process that started Spark does, if it is set."""
    given = absolute(os.environ.get(VARIABLE, ""))
    sys.path[:] = [*given, *(each for each in sys.path if each not in given)]
