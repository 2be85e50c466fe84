"""Hold the state of a repository as it was read.

`icevirt.repo.repo_info_file` replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass

from icevirt.model.repo_info import RepoInfo


@dataclass(frozen=True, slots=True)
class RepoState:
    """What is known of the repository; kinds of it know what is needed to replace it."""

    info: RepoInfo
