"""A scanner that waits at files with a note beside them, on workers of the suite's session."""

import os
import time

from icevirt_scanners.hdf5.scanner import Hdf5Scanner


class WaitingScanner(Hdf5Scanner):
    """Scans a file once its note is gone."""

    name = "waiting"

    def scan(self, source, options):
        while os.path.exists(f"{source.local_path}.wait"):
            time.sleep(0.05)
        return super().scan(source, options)
