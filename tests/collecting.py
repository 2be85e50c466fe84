"""Saves work of collecting the tests, which each process does for itself.

Files that have no tests of this tier are not read: a collection records which they are.
"""

import json
import os
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

_RECORD = "icevirt/tiers"
_VARIABLES = ("ICEVIRT_", "HYPOTHESIS_", "CI")


class Collecting:
    """What the last collections found in each file, for as long as nothing changes."""

    def __init__(self, config: pytest.Config, *, complete: bool) -> None:
        self._config, self.complete = config, complete
        self._root = config.rootpath
        self._tests = [config.rootpath / each for each in config.getini("testpaths")]
        self._ignored: set[str] = set()

    @cached_property
    def _files(self) -> dict[str, list[int]]:
        """What tells apart two versions of each Python file of the tests."""
        found = {}
        for path in (each for folder in self._tests for each in folder.rglob("*.py")):
            state = path.stat()
            found[str(path.relative_to(self._root))] = [state.st_mtime_ns, state.st_size]
        return found

    @cached_property
    def _common(self) -> str:
        """What each file's marks and parameters may come from: helpers, variables."""
        helpers = {name: state for name, state in self._files.items() if not _is_test(name)}
        given = {name: text for name, text in os.environ.items() if name.startswith(_VARIABLES)}
        return json.dumps([helpers, given], sort_keys=True)

    @cached_property
    def _record(self) -> dict[str, dict[str, Any]]:
        """What is known of each file: its state, and how many tests of each tier it has."""
        cache = getattr(self._config, "cache", None)
        kept = cache.get(_RECORD, {}) if cache else {}
        return kept.get("files", {}) if kept.get("common") == self._common else {}

    @cached_property
    def _unneeded(self) -> set[str]:
        tier = self._config.option.tier
        return {
            name
            for name, known in self._record.items()
            if tier in known and not known[tier] and known["state"] == self._files.get(name)
        }

    @property
    def left_out(self) -> int:
        """How many tests the files have that were not read."""
        known = (self._record[name] for name in self._ignored)
        return sum(each["fast"] + each["rest"] for each in known)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        name = str(collection_path.relative_to(self._root))
        if name not in self._unneeded:
            return None
        self._ignored.add(name)
        return True

    def remember(self, tiers: dict[str, list[pytest.Item]]) -> None:
        """Record what was found, once."""
        cache = getattr(self._config, "cache", None)
        worker = getattr(self._config, "workerinput", {"workerid": "gw0"})["workerid"]
        if not (cache and self.complete and worker == "gw0"):
            return
        counts = {
            tier: Counter(str(item.path.relative_to(self._root)) for item in items)
            for tier, items in tiers.items()
        }
        found = {
            name: {"state": self._files[name]}
            | {tier: counted[name] for tier, counted in counts.items()}
            for name in set().union(*counts.values())
        }
        files = {**{name: self._record[name] for name in self._ignored}, **found}
        cache.set(_RECORD, {"common": self._common, "files": files})


def _is_test(name: str) -> bool:
    return os.path.basename(name).startswith("test_")
