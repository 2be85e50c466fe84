"""A scanner for files that say what becomes of the process that scans them: an installed one."""

import textwrap

MODULE = """
    import os, signal, time
    import numpy as np
    from icevirt.archive.scanned import ScannedFile, ScannedGroup

    class StubScanner:
        name, version = "stub", "1"

        def accepts(self, head):
            return head.startswith(b"STUB ")

        def scan(self, source, options):
            deed = source.read(5, 100).decode()
            if deed == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if deed == "exit":
                os._exit(3)
            if deed == "be killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if deed == "hang":
                time.sleep(3600)
            if deed == "eat":
                np.zeros(1 << 34, np.uint8)
            if deed == "bomb":
                np.ones(3 << 30, np.uint8)
            if deed == "want 600 MiB":
                np.ones(600 << 20, np.uint8)
            if deed == "take 3 s":
                time.sleep(3)
            if deed == "talk":
                print("noise", flush=True)
            root = ScannedGroup(path="/")
            return ScannedFile(
                source=source.file, scanner="stub", scanner_version="1", groups=(root,), arrays=()
            )
"""


def install(folder, module=MODULE):
    """Make a directory that, on ``sys.path``, is an installed distribution with a scanner."""
    info = folder / "stub_scanner-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stub-scanner\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[icevirt.scanners]\nstub = stub_scanner_of_tests:StubScanner\n"
    )
    (folder / "stub_scanner_of_tests.py").write_text(textwrap.dedent(module))
    return str(folder)
