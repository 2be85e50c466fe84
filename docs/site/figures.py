"""Draw the figures of the documentation: ``python docs/site/figures.py``.

Each is one SVG file below ``docs/figures`` that needs nothing else, and follows the reader's choice
of light or dark.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "figures"
_STYLE = """
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;fill:#1c2330}
.page{fill:#ffffff;stroke:#d9dee8}.box{fill:#f4f6fa;stroke:#b9c2d3}
.h{font-weight:600;font-size:15px}.t{font-size:14px}.s{font-size:12.5px;fill:#586173}
.m{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:12.5px}
.a{fill:#3d6bff}.b{fill:#0f9d7a}.c{fill:#d9822b}.d{fill:#c23b56}.n{fill:#dfe4ee}
.l{stroke:#7a869c;stroke-width:1.6;fill:none}.g{stroke:#b9c2d3;stroke-width:1.2;fill:none}
.k{fill:#7a869c}.w{fill:#ffffff}
@media (prefers-color-scheme:dark){text{fill:#e6e9f0}.page{fill:#151a23;stroke:#2b3342}
.box{fill:#1e2531;stroke:#3d475a}.s{fill:#a3adbf}.n{fill:#323c4e}.l{stroke:#8d99b0}
.g{stroke:#3d475a}.k{fill:#8d99b0}.a{fill:#6f92ff}.b{fill:#35c29c}.c{fill:#eda04f}.d{fill:#ee6f88}}
"""


_ARROW = """
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
 orient="auto"><path class="k" d="M0 0 8 4 0 8z"/></marker></defs>
"""


class Drawing:
    """Shapes and texts on a page of a given size."""

    def __init__(self, width: int, height: int, title: str) -> None:
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        said = f'role="img" aria-label="{escape(title)}"'
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {said}>',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            _ARROW,
        ]
        self.box(1, 1, width - 2, height - 2, "page", round_by=10)

    def box(  # noqa: PLR0917 - a rectangle
        self, x: float, y: float, width: float, height: float, kind: str = "box", round_by: int = 5
    ) -> None:
        """Draw a rectangle."""
        place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        self._parts.append(f'<rect class="{kind}" {place} rx="{round_by}"/>')

    def text(self, x: float, y: float, words: str, kind: str = "t", anchor: str = "start") -> None:
        """Write a line."""
        self._parts.append(
            f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def line(self, path: str, kind: str = "l", arrow: bool = True) -> None:
        """Draw a path."""
        end = ' marker-end="url(#arrow)"' if arrow else ""
        self._parts.append(f'<path class="{kind}" d="{path}"{end}/>')

    def save(self, name: str) -> None:
        """Write the file."""
        (FIGURES / f"{name}.svg").write_text("\n".join([*self._parts, "</svg>", ""]))


def references() -> None:
    """Files, references, one dataset."""
    d = Drawing(920, 318, "Files stay where they are; references to their chunks make one dataset")
    d.text(24, 34, "Your files", "h")
    d.text(24, 54, "stay where they are", "s")
    kinds = ("a", "b", "c")
    for at, kind in enumerate(kinds):
        y = 74 + at * 72
        d.box(24, y, 220, 56)
        d.text(36, y + 21, f"tas_{2001 + at}.nc", "m")
        d.box(36, y + 31, 34, 14, "n", 2)
        for chunk in range(4):
            d.box(76 + chunk * 39, y + 31, 35, 14, kind, 2)
    d.text(36, 306, "header, then compressed chunks", "s")
    d.text(322, 34, "References", "h")
    d.text(322, 54, "file, offset, length: about 14 bytes a chunk", "s")
    d.box(322, 74, 268, 200)
    d.text(344, 96, "time", "s")
    d.text(385, 96, "file", "s")
    d.text(580, 96, "offset, length", "s", "end")
    rows = ("0      tas_2001.nc   9,214 +28,800", "1      tas_2001.nc  38,014 +28,800")
    rows += ("12     tas_2002.nc   9,214 +28,800", "24     tas_2003.nc   9,214 +28,800")
    for at, (row, kind) in enumerate(zip(rows, ("a", "a", "b", "c"), strict=True)):
        y = 124 + at * 34
        d.box(332, y - 13, 5, 18, kind, 1)
        parts = row.split()
        d.text(344, y, parts[0], "m")
        d.text(385, y, parts[1], "m")
        d.text(580, y, " ".join(parts[2:]), "m", "end")
    d.text(336, 262, "…", "m")
    d.line("M252 174 H314")
    d.line("M598 174 H660")
    d.text(668, 34, "One dataset", "h")
    d.text(668, 54, "xarray, zarr, any Icechunk client", "s")
    d.box(668, 74, 228, 200)
    d.text(682, 96, "tas (time: 36, lat, lon)", "m")
    for at in range(12):
        d.box(682 + at * 16.8, 112, 14, 52, kinds[at // 4], 2)
    d.line("M682 176 H884", "l")
    d.text(682, 196, "2001", "s")
    d.text(884, 196, "2003", "s", "end")
    d.text(682, 226, "versions", "s")
    for at in range(4):
        d.box(745 + at * 38, 217, 10, 10, "k", 5)
        if at:
            d.line(f"M{756 + (at - 1) * 38} 222 H{744 + at * 38}", "l", arrow=False)
    d.line("M864 248 V232")
    d.text(884, 264, "main shows this one", "s", "end")
    d.text(322, 300, "A read fetches the byte range from your file, if the file is as it was.", "s")
    d.save("references")


def eras() -> None:
    """Files that decode differently, and the two ways to keep them together."""
    d = Drawing(920, 300, "Files that decode equally form an era; each era is a group")
    d.text(24, 34, "An archive over time", "h")
    d.text(24, 54, "the encoding of its files changes twice, and one file deviates", "s")
    order = "aaaaaaabbbabbbbcccccc"
    for at, kind in enumerate(order):
        d.box(24 + at * 41.6, 70, 37, 34, kind, 3)
    d.text(24, 124, "deflate, scale 0.01", "s")
    d.text(316, 124, "shuffle added", "s")
    d.text(441, 124, "one file as before", "s")
    d.text(648, 124, "scale 0.02", "s")
    d.text(24, 164, "One commit, a group for each era", "h")
    for at, (kind, name, files) in enumerate(
        (("a", "era_0", "8 files"), ("b", "era_1", "7 files"), ("c", "era_2", "6 files"))
    ):
        x = 24 + at * 190
        d.box(x, 180, 174, 92)
        d.box(x + 12, 194, 24, 24, kind, 3)
        d.text(x + 46, 211, name, "m")
        d.text(x + 12, 242, f"{files}, all references", "s")
        d.text(x + 12, 260, "a dataset by itself", "s")
    d.line("M594 226 H640")
    d.box(648, 180, 248, 92)
    d.text(662, 204, 'eras="concat"', "m")
    for at, kind in enumerate(order):
        d.box(662 + at * 10.6, 216, 8.6, 20, kind, 1)
    d.text(662, 260, "in the order of time again", "s")
    d.save("eras")


def windows() -> None:
    """How an array is cut into windows, each of which makes a manifest."""
    d = Drawing(920, 310, "A window is a box of chunks whose references are in one manifest")
    d.text(24, 34, "An array of 1,000,000 chunks", "h")
    d.text(24, 54, "cut along time into windows of at most 500,000 references", "s")
    for at in range(40):
        kind = "a" if at < 20 else "b"
        d.box(24 + at * 13, 70, 11, 60, kind, 1)
    d.line("M284 64 V138", "g", arrow=False)
    d.text(150, 156, "window 0", "t", "middle")
    d.text(414, 156, "window 1", "t", "middle")
    d.text(590, 96, "small arrays share one window:", "s")
    d.text(590, 116, "coordinates, bounds", "s")
    d.box(811, 82, 30, 36, "c", 2)
    d.line("M150 164 V192")
    d.line("M414 164 V192")
    d.line("M826 126 V192")
    for x, name in ((80, "task on a worker"), (344, "task on a worker"), (756, "task on a worker")):
        d.box(x, 196, 140, 34)
        d.text(x + 70, 218, name, "t", "middle")
        d.line(f"M{x + 70} 232 V250")
    for x, name, kind in ((80, "manifest", "a"), (344, "manifest", "b"), (756, "manifest", "c")):
        d.box(x, 254, 140, 34)
        d.box(x + 8, 262, 18, 18, kind, 2)
        d.text(x + 76, 276, name, "t", "middle")
    d.text(520, 218, "A window has the memory of its", "s")
    d.text(520, 236, "references, not of the archive.", "s")
    d.text(520, 268, "The same window gives the same", "s")
    d.text(520, 286, "bytes, however often it runs.", "s")
    d.save("windows")


def commits() -> None:
    """What is written before a commit, and the one write that shows it."""
    d = Drawing(920, 300, "Everything is written first; one conditional write makes it visible")
    d.text(24, 34, "1. Written, and seen by no reader", "h")
    for at, name in enumerate(("native chunks", "manifests", "snapshot", "transaction log")):
        d.box(24 + at * 142, 52, 130, 40)
        d.text(89 + at * 142, 77, name, "t", "middle")
    d.text(24, 116, "A build that is killed here leaves the old version. The next run finds", "s")
    d.text(24, 134, "what is finished, and goes on.", "s")
    d.text(24, 176, "2. One write: replace the object “repo”, if it is still as it was", "h")
    d.box(24, 192, 250, 82)
    d.text(40, 218, "repo", "m")
    d.text(40, 242, "main → snapshot 7", "t")
    d.text(40, 262, "tags, branches, history", "s")
    d.line("M282 232 H356")
    d.text(319, 222, "if equal", "s", "middle")
    d.box(364, 192, 250, 82)
    d.text(380, 218, "repo", "m")
    d.text(380, 242, "main → snapshot 8", "t")
    d.text(380, 262, "all arrays of a build at once", "s")
    d.line("M584 72 H660 V212 H622")
    d.text(680, 66, "Another writer was first?", "h")
    d.text(680, 90, "Nothing is overwritten.", "s")
    d.text(680, 110, "The changes are repeated on theirs", "s")
    d.text(680, 128, "if both changed different things;", "s")
    d.text(680, 146, "else a ConflictError names what", "s")
    d.text(680, 164, "both changed.", "s")
    d.text(680, 212, "Readers", "h")
    d.text(680, 236, "stay on the version that they", "s")
    d.text(680, 254, "opened, until they open again.", "s")
    d.save("commits")


def main() -> int:
    """Write all figures."""
    FIGURES.mkdir(exist_ok=True)
    for draw in (references, eras, windows, commits):
        draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
