"""Scan DMR++ documents in place of the files that they describe: one request of a granule.

The file is the one beside the document, of the same name without ``.dmrpp``: what a document says
of other places is not followed.
"""

from __future__ import annotations

from functools import partial

from icevirt.archive.scanned import ScannedFile
from icevirt.errors import ScanError
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import ScanContext
from icevirt_scanners.dmrpp.compared import GranuleFile
from icevirt_scanners.dmrpp.document import read_document
from icevirt_scanners.dmrpp.granule import SUFFIX, Granule
from icevirt_scanners.hdf5.scanner import Hdf5Scanner


class DmrppScanner:
    """Describes files by their DMR++ documents."""

    name = "dmrpp"
    version = "2"

    def accepts(self, head: bytes) -> bool:
        """Look for the name space of DMR++, which the root element declares."""
        return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<" and b"opendap.org/dap/dmrpp" in head

    def scan(self, source: ByteSource, options: ScannerOptions) -> ScannedFile:
        """Describe the file beside the document.

        Raises:
            ScanError: The document is damaged, contradicts its file, or has none beside it.
            UnsupportedError: A variable cannot be represented.
        """
        url = source.file.url
        target, suffix = url[: -len(SUFFIX)], url[-len(SUFFIX) :]
        if suffix != SUFFIX:
            raise ScanError(
                "a DMR++ document whose name does not say which file it describes",
                do=f"Name it as its file, with {SUFFIX} at the end, and lay it beside the file.",
                file=url,
            )
        document = read_document(source.read(0, source.file.size), url)
        context = ScanContext.of(source, options)
        with Elsewhere(source, options.allow_references_to, reads_servers=True) as elsewhere:
            granule = Granule(
                document=document,
                written=source.file,
                described=GranuleFile(
                    url=target,
                    document=url,
                    open=partial(elsewhere.source, target),
                    scanning=Hdf5Scanner().scan,
                ),
                context=context,
                elsewhere=elsewhere,
            )
            groups, arrays = granule.describe()
        return context.describe(self, groups, arrays)
