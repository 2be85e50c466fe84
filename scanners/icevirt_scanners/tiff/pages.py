"""Arrange the directories of a file: images, their smaller copies (overviews) and their masks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from icevirt.model import paths
from icevirt_scanners.tiff.directories import Directory, TiffDamageError

SUBFILE_TYPE = 254
_REDUCED, _MASK = 1, 4


@dataclass(slots=True)
class Page:
    """An image of full size; ``group`` is where its arrays are."""

    group: str
    image: Directory
    overviews: list[Directory] = field(default_factory=list)
    masks: list[Directory] = field(default_factory=list)  # of the image and of its overviews

    def levels(self) -> Iterable[tuple[str, Directory]]:
        """Yield the groups of this page with the directory of each, the full size first."""
        yield self.group, self.image
        for number, each in enumerate(self.overviews, 1):
            yield paths.join(self.group, f"overview_{number}"), each

    def mask_of(self, directory: Directory) -> Directory | None:
        """Return the mask of one of its levels: the one of the same lengths."""
        wanted = describe_lengths(directory)[1:]
        return next((each for each in self.masks if describe_lengths(each)[1:] == wanted), None)

    def masks_of_others(self) -> list[Directory]:
        """Return masks that are as long as none of its levels."""
        lengths = {describe_lengths(each)[1:] for _, each in self.levels()}
        return [each for each in self.masks if describe_lengths(each)[1:] not in lengths]


def describe_lengths(directory: Directory) -> tuple[int, int, int]:
    """Return bands, rows and columns of a directory, whatever else its image is."""
    samples, height, width = (directory.integer(tag, 1) for tag in (277, 257, 256))
    if min(samples, height, width) < 1:
        raise TiffDamageError(f"an image of {width} × {height} pixels with {samples} samples")
    return samples, height, width


def arrange(directories: Iterable[Directory]) -> list[Page]:
    """Return the images of full size in the order of the file, each with what belongs to it.

    The first is at the root, as GDAL opens it, and each other one in a group by its number among
    the images. Overviews and masks belong to the last image before them.
    """
    pages: list[Page] = []
    for one in directories:
        kind = one.integer(SUBFILE_TYPE, 0)
        if pages and kind & _MASK:
            pages[-1].masks.append(one)
        elif pages and kind & _REDUCED:
            pages[-1].overviews.append(one)
        else:
            group = paths.join(paths.ROOT, f"image_{len(pages) + 1}") if pages else paths.ROOT
            pages.append(Page(group, one))
    return pages
