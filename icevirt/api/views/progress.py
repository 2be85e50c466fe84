"""Implement `icevirt.ProgressBar`: bars in a terminal or a notebook."""

from __future__ import annotations

from rich.console import Console

from icevirt.display.progress import ProgressDisplay


class ProgressBar(ProgressDisplay):
    """Shows the long phases of a call while it runs, a bar each: pass it as ``progress``.

    On a terminal the bars are on stderr. In a notebook they are below the cell; that needs the
    package ``ipywidgets``, which Jupyter's own distributions have. They go when the block ends.

    ```python
    with icevirt.ProgressBar() as bar:
        report = icevirt.build("archive/*.nc", "repo", progress=bar)
    ```
    """

    def __init__(self) -> None:
        super().__init__(Console(stderr=True, markup=False, emoji=False, highlight=False))
