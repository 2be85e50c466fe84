"""What many tests begin with is made once, and laid down for each of them anew.

It always lies at the same place, with the same times of files: a repository refers to its files by
absolute URLs, and knows how old they were.
"""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

from executors import StagedExecutor
from icevirt.execution.selection import default_executor


class Kept[Made]:
    """A folder that tests may change as they like, and what was said when it was made."""

    def __init__(self, folder: Path, make: Callable[[Path], Made]) -> None:
        self.place, self._kept = folder / "place", folder / "kept"
        self.place.mkdir()
        with default_executor(StagedExecutor()):
            self._made = make(self.place)
        shutil.copytree(self.place, self._kept, symlinks=True)

    def lay_down(self) -> Made:
        """Bring the folder back as it was made."""
        shutil.rmtree(self.place)
        shutil.copytree(self._kept, self.place, symlinks=True)
        return copy.deepcopy(self._made)
