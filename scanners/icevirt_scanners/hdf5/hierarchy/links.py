"""Follow soft links within a file, never out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from h5py import h5g, h5l, h5o

from icevirt.model import names

_MOST = 64  # soft links on the way of one, as operating systems limit symbolic links


def follow(gid: Any, name: bytes) -> tuple[Any, bytes] | None:
    """Find what a soft link leads to: the group and the name of the hard link at its end.

    Returns None where it leads to nothing, in circles or to another file. Paths are walked part by
    part, because libhdf5 would open an external link on the way.
    """
    return _Follower(_MOST).end_of(gid, name)


def object_at(fid: Any, path: bytes) -> Any | None:
    """Open the object at a path of a file, None where there is none in this very file."""
    root = h5g.open(fid, b"/")
    if not path.strip(b"/"):
        return root
    end = _Follower(_MOST).end_of_path(root, path)
    return h5o.open(*end) if end is not None else None


@dataclass(slots=True)
class _Follower:
    left: int

    def end_of(self, gid: Any, name: bytes) -> tuple[Any, bytes] | None:
        """Return the hard link that a link is, or leads to."""
        while gid.links.exists(name):
            kind = gid.links.get_info(name).type
            if kind == h5l.TYPE_HARD:
                return gid, name
            self.left -= 1
            if kind != h5l.TYPE_SOFT or self.left < 0:
                return None
            last = self._last_part(gid, gid.links.get_val(name))
            if last is None:
                return None
            gid, name = last
        return None

    def end_of_path(self, gid: Any, path: bytes) -> tuple[Any, bytes] | None:
        """Return the hard link at the end of a path."""
        last = self._last_part(gid, path)
        return self.end_of(*last) if last is not None else None

    def _last_part(self, gid: Any, target: bytes) -> tuple[Any, bytes] | None:
        """Walk a path up to its last part."""
        here = h5g.open(gid, b"/") if target.startswith(b"/") else gid
        parts = [part for part in target.split(b"/") if part not in (b"", b".")]
        for part in parts[:-1]:
            end = self.end_of(here, part)
            opened = h5o.open(*end) if end is not None else None
            if not isinstance(opened, h5g.GroupID):
                return None
            here = opened
        return (here, parts[-1]) if parts else None


PREFIX = "_nc4_non_coord_"
_PREFIX = PREFIX.encode()


def variable_name(raw: bytes) -> tuple[str, bool]:
    """Return the node name of the link to a variable, and whether it had to be escaped.

    netCDF-4 prepends ``_nc4_non_coord_`` to a variable that shares its name with a dimension it
    lacks.
    """
    return names.node_name(raw.removeprefix(_PREFIX) or raw)
