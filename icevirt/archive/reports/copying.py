"""Define what `icevirt.materialize` stored, or would store, for text, JSON and tests."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeReport:
    """The outcome of `icevirt.materialize`, or its plan."""

    repo: str  # URL
    branch: str
    variable: str  # path
    is_plan: bool  # nothing was changed
    snapshot_id: str | None  # of the commit; None: everything was stored already, or it is a plan
    region: tuple[tuple[int, int], ...]  # (first, last + 1) element along each dimension
    is_widened: bool  # the region was extended to whole chunks
    chunk_shape: tuple[int, ...]  # elements; () where chunks differ in length
    is_reencoded: bool  # chunks or codecs are others than before
    chunks: int  # stored, or to be stored
    bytes_read: int  # of source files
    bytes_stored: int  # in a plan of other chunks or codecs: before compression
    tasks: int
    executor: str = ""  # that ran tasks: "spark", "processes" or "in-process"
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, in order
