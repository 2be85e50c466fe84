"""obstore after ``fork``: children start anew instead of waiting for ever."""

import subprocess
import sys
import textwrap

import pytest

PARENT = """
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore")
{first}
from icevirt.connect.library import obstore
{second}

def used(library):
    store = library.store.HTTPStore.from_url(sys.argv[1], client_options={{"allow_http": True}})
    return bytes(store.get("a").bytes())

{third}

def child(act):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, f"the child ended with {{code}}"

def both():
    assert used(obstore()) == b"x"
    child(lambda: used(obstore()))

child(both)
assert used(obstore()) == b"x"
"""
CASES = {
    "unused before": {},
    "used by us": {"third": "used(obstore())"},
    "used by others": {"second": "import obstore as other", "third": "used(other)"},
    "used by others first": {"first": "import obstore as other, obstore.store; other.store.HTTPStore.from_url(sys.argv[1], client_options={'allow_http': True}).get('a')"},
    "while a thread opens it": {"third": "for _ in range(8): threading.Thread(target=lambda: used(obstore())).start()"},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_forked_child_and_its_child_use_it(case, http_server):
    http_server.files.put("a", b"x")
    parts = {"first": "", "second": "", "third": ""} | case
    program = textwrap.dedent(PARENT).format(**parts)
    ran = subprocess.run(
        [sys.executable, "-c", program, http_server.url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
