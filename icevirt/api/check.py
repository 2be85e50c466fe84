"""Implement `icevirt.check`: check every invariant of a repository."""

from __future__ import annotations

from icevirt.repo.maintenance.check import CheckReport, check

__all__ = ["CheckReport", "check"]
