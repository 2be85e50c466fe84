"""Read ranges through an fsspec file system that the caller passed.

A repository never decides which file system is made: its URLs could name other protocols, hosts and
files of this machine.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from icevirt.objects import answers
from icevirt.objects.answers import Check, Meta, ObjectBytes

_TIMES = ("mtime", "last_modified", "LastModified", "Last-Modified", "updated")
_ETAGS = ("ETag", "etag", "e_tag")


@dataclass(frozen=True, slots=True, eq=False)
class ForeignReach:
    """The files of a file system, below one prefix."""

    filesystem: Any
    prefix: str

    @property
    def host(self) -> str:
        """Whose limit of requests counts."""
        return self.prefix

    def get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Return bytes ``begin`` to ``end`` of a file.

        What the file system tells about the file does not come with the bytes. It is asked after
        them, so that a file that changes meanwhile does not pass.

        Raises:
            ObjectNotFoundError: There is no such file.
            StorageError: It cannot be read; or ``check`` raises it.
        """
        url = f"{self.prefix.partition('://')[0]}://{key}"
        try:
            (body,) = self.filesystem.cat_ranges(
                paths=[key], starts=[begin], ends=[end], on_error="raise"
            )
            meta = self._meta(key)
        except FileNotFoundError as error:
            raise answers.gone(url) from error
        except PermissionError as error:
            reason = str(error)
            raise answers.denied(url, self.prefix, reason=reason, with_credentials=True) from error
        except Exception as error:  # each file system has its own
            reason = f"{type(error).__name__}: {error}"
            raise answers.unreachable(url, reason=reason, tries=1) from error
        check(meta)
        return ObjectBytes(meta=meta, begin=begin, body=body)

    def _meta(self, key: str) -> Meta:
        info: dict[str, Any] = self.filesystem.info(key)
        size = info.get("size")
        etag = next((str(info[name]) for name in _ETAGS if info.get(name)), "")
        when = next((info[name] for name in _TIMES if info.get(name) is not None), None)
        if when is None:
            with suppress(NotImplementedError, KeyError, TypeError):
                when = self.filesystem.modified(key)
        return Meta(
            size=None if size is None else int(size), etag=etag, last_modified=_seconds(when)
        )


def _seconds(when: object) -> float | None:
    if isinstance(when, datetime):
        return when.timestamp()
    return float(when) if isinstance(when, int | float) else None
