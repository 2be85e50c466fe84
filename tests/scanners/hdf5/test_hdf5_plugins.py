"""What an untrusted file asks for by number is not loaded while it is scanned."""

import os
import shutil
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest
from h5py import h5pl

import icevirt
from icevirt.errors import ScanError, UnsupportedError
from icevirt_scanners.hdf5 import files
from icevirt_scanners.hdf5.files import no_plugins

PLUGIN = """
    #include <stdio.h>
    #include <stdlib.h>
    typedef struct {
        int version; int id; unsigned encoder, decoder; const char *name;
        void *can_apply, *set_local; size_t (*filter)();
    } Class;
    static size_t nothing(unsigned flags, size_t n, const unsigned v[], size_t bytes,
                          size_t *size, void **buffer) { return bytes; }
    static const Class class = {1, 32767, 1, 1, "mark", 0, 0, nothing};
    __attribute__((constructor)) static void mark(void) {
        FILE *file = fopen(getenv("MARK"), "a");
        if (file) { fputs("loaded\\n", file); fclose(file); }
    }
    int H5PLget_plugin_type(void) { return 0; }
    const void *H5PLget_plugin_info(void) { return &class; }
"""
SCAN = "import sys, icevirt; print(icevirt.scan_file(sys.argv[1]).array('d').references.kind[0])"
WRITE = """
    import sys, h5py, numpy as np
    from h5py import h5d, h5p, h5s, h5t
    with h5py.File(sys.argv[1], "w") as file:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(32767, 0, ())
        space = h5s.create_simple((4,))
        made = h5d.create(file.id, b"d", h5t.STD_I32LE, space, plist)
        made.write(h5s.ALL, h5s.ALL, np.arange(4, dtype="i4"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A plugin that leaves a mark when it is loaded, and a file that needs it."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "mark.c").write_text(textwrap.dedent(PLUGIN))
    build = ["cc", "-shared", "-fPIC", "-o", str(folder / "libmark.so"), str(folder / "mark.c")]
    subprocess.run(build, check=True)
    run(folder, textwrap.dedent(WRITE))
    assert (folder / "marks").exists(), "HDF5 does not load the plugin at all"
    return folder


def run(folder, code, **more):
    env = {**os.environ, "HDF5_PLUGIN_PATH": str(folder), "MARK": str(folder / "marks"), **more}
    (folder / "marks").unlink(missing_ok=True)
    return subprocess.run(
        [sys.executable, "-c", code, str(folder / "a.h5")],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )


@pytest.mark.ci
def test_a_scan_loads_no_plugin(folder):
    ran = run(folder, SCAN)
    assert ran.returncode
    assert "mark (filter 32767)" in ran.stderr
    assert "ICEVIRT_HDF5_PLUGINS=1" in ran.stderr
    assert not (folder / "marks").exists()


@pytest.mark.ci
def test_a_scan_loads_plugins_where_a_person_allows_it(folder):
    ran = run(folder, SCAN, ICEVIRT_HDF5_PLUGINS="1")
    assert ran.stdout == "3\n", ran.stderr
    assert (folder / "marks").exists()


@pytest.mark.ci
def test_the_user_of_h5py_keeps_plugins(folder):
    code = SCAN.replace("print(", "\ntry: print(") + "\nexcept icevirt.errors.ScanError: pass"
    code += "\nimport h5py; print(h5py.File(sys.argv[1])['d'][...].tolist())"
    ran = run(folder, code)
    assert ran.stdout == "[0, 1, 2, 3]\n", ran.stderr


@pytest.fixture
def directories():
    """libhdf5's list as it is between scans, with one more, and as it was afterwards."""
    h5pl.append(b"/tmp/plugins")
    yield held()
    h5pl.remove(h5pl.size() - 1)


def held():
    return [h5pl.get(number) for number in range(h5pl.size())]


def test_the_list_of_directories_is_empty_while_a_scan_runs_and_then_as_it_was(
    directories, tmp_path, monkeypatch
):
    seen = []
    with no_plugins():
        seen.append(held())
        with no_plugins():  # scans overlap in threads
            seen.append(held())
        seen.append(held())
    assert seen == [[], [], []]
    assert held() == directories
    (tmp_path / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(ScanError):
        icevirt.scan_file(tmp_path / "a.h5")
    assert held() == directories
    monkeypatch.setenv(files.ALLOW, "1")
    with no_plugins():
        assert held() == directories


def test_filters_that_are_registered_stay(tmp_path):
    """h5py brings LZF itself."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("d", data=np.arange(1000), chunks=(100,), compression="lzf")
    try:
        array = icevirt.scan_file(tmp_path / "a.h5").array("d")
    except UnsupportedError:
        pytest.fail("LZF cannot be read")
    assert len(array.references)
