"""icechunk's annotations of its own."""

from typing import Literal

__all__ = ["CommitMethod"]

CommitMethod = Literal["new_commit", "amend"]
