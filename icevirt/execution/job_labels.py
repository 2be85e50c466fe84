"""Say what the jobs of a call are, for the Spark UI and for who wants to cancel them.

A call marks all that it runs with `job_tags`, and each stage says what it does with `described`.
Executors that are not Spark's take no notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from icevirt.redaction import without_secrets

EVERY = "icevirt"
"""The tag of every job."""


@dataclass(slots=True)
class JobLabel:
    """What the jobs of a call are, and where it writes."""

    place: str = ""
    tags: list[str] = field(default_factory=lambda: [EVERY])
    stage: str = ""

    @property
    def text(self) -> str:
        """The description of a job: ``icevirt scan: 300 files → s3://bucket/repo``."""
        what = f"icevirt {self.stage or 'tasks'}"
        return without_secrets(f"{what} → {self.place}" if self.place else what)

    @property
    def name(self) -> str:
        """The name of a job and its stages: ``icevirt scan``."""
        return f"icevirt {self.stage.partition(':')[0] or 'tasks'}"

    def tag(self, build_id: str) -> None:
        """Mark all further jobs as those of a build; it may have several ids."""
        if (tag := tag_of(build_id)) not in self.tags:
            self.tags.append(tag)


_label: ContextVar[JobLabel | None] = ContextVar("icevirt-jobs", default=None)


def tag_of(build_id: str) -> str:
    """Return the tag of the jobs of a build."""
    return f"{EVERY}:{build_id}"


def current() -> JobLabel:
    """Return what the jobs are that are begun now."""
    return _label.get() or JobLabel()


@contextmanager
def job_tags(place: str, build_id: str | None = None) -> Iterator[JobLabel]:
    """Mark the jobs of the block.

    Args:
        place: The URL of what the call writes to, or looks at.
        build_id: Of a build.
    """
    label = JobLabel(place=place)
    if build_id is not None:
        label.tag(build_id)
    token = _label.set(label)
    try:
        yield label
    finally:
        _label.reset(token)


@contextmanager
def described(stage: str, place: str = "") -> Iterator[None]:
    """Say what the jobs of the block do.

    Args:
        stage: A word, a colon, and what of: ``scan: 300 files``.
        place: Where to, if the call did not say.
    """
    label = current()
    mine = JobLabel(place=label.place or place, tags=label.tags, stage=stage)
    token = _label.set(mine)
    try:
        yield
    finally:
        _label.reset(token)
