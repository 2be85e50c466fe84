"""A process whose server hangs ends when its user says so, and when another file is in error."""

import signal
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import icevirt
from forking import Parent
from icevirt.objects.web_client import RetryPolicy
from long_forms import cases
from servers.faults import refused, slow

SECOND = 1.0  # in which a process neither runs nor waits for a processor
START = 45.0  # of a process, on a busy machine
HANGING = 600.0

IMPORTS = """
import asyncio, dask.array, h5py, pydantic, xarray, zarr
import icevirt.access.store.zarr_store, icevirt.access.xarray.backend
import icevirt.api.update, icevirt.cli.commands, icevirt.cli.main
import icevirt.display.descriptions, icevirt.display.progress, icevirt.display.render
xarray.backends.list_engines()
"""
BEGIN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & ignores it
url, root = sys.argv[1:3]
"""

OPEN = """
import icevirt
repo = icevirt.Repository.open(root, authorize_virtual_chunk_access=[url + "/"])
"""
OF_DASK = """
import xarray
ds = xarray.open_dataset(
    root, engine="icevirt", chunks={}, authorize_virtual_chunk_access=[url + "/"]
)
ds["v"].values
"""
READ = {
    "xarray": """
import xarray
ds = xarray.open_dataset(root, engine="icevirt", authorize_virtual_chunk_access=[url + "/"])
ds["v"].values
""",
    "xarray in an event loop": """
import asyncio, xarray
ds = xarray.open_dataset(root, engine="icevirt", authorize_virtual_chunk_access=[url + "/"])
asyncio.run(ds.load_async())
""",
    "zarr": OPEN
    + """
import zarr
zarr.open_group(repo.readonly_session("main").store, mode="r")["v"][:]
""",
}
COMMANDS = {
    "scan": ["scan", "URL/data/2.h5"],
    "scan in processes": ["scan", "URL/data/1.h5", "URL/data/2.h5", "--catalog", "ROOT-scans"],
    "build": [*"build URL/data/1.h5 URL/data/2.h5 ROOT-other --executor in-process".split()],
    "plan": ["plan", "URL/data/1.h5", "URL/data/2.h5"],
    "update": ["update", "ROOT", "--authorize", "URL/"],
    "verify": ["verify", "ROOT", "--authorize", "URL/"],
    "verify values": ["verify", "ROOT", "--full", "--authorize", "URL/"],
    "materialize": ["materialize", "ROOT", "v", "--authorize", "URL/"],
    "info": ["info", "URL/repo"],
}
COMMAND = """
from icevirt.cli.main import run
sys.argv[:] = ["icevirt", *sys.argv[3:]]
run()
"""


def ways(table):
    """Return the names; each costs the start of a process, so the first is enough for a change."""
    first, *others = table
    return [first, *(pytest.param(each, marks=pytest.mark.ci) for each in others)]


@pytest.fixture
def root(http_server, tmp_path):
    """A repository of three files on a server, the last of which hangs from now on."""
    for number in range(3):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w") as file:
            file["time"] = np.array([float(number)])
            file["time"].make_scale("time")
            made = file.create_dataset("v", data=np.full((1, 4096), number, "f8"), chunks=(1, 4096))
            made.dims[0].attach_scale(file["time"])
        http_server.files.put(f"data/{number}.h5", path.read_bytes())
    urls = [f"{http_server.url}/data/{number}.h5" for number in range(3)]
    icevirt.build(urls, tmp_path / "repo", concat_dim="time", executor="in-process")
    http_server.rules.add(slow(HANGING), target="/data/2.h5|/repo", times=1000)
    return tmp_path / "repo"


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A process with the imports of all programs of this module."""
    with Parent(IMPORTS, tmp_path_factory.mktemp("output")) as made:
        yield made


@pytest.fixture
def run(parent):
    """Begin a program."""
    return lambda program, *arguments: parent.fork(BEGIN + program, *arguments)


def seconds_of_processors(process):
    """Return how long the main thread ran, and waited for a processor on a busy machine."""
    file = Path(f"/proc/{process.pid}/schedstat")  # of Linux
    return sum(map(int, file.read_text().split()[:2])) / 1e9 if file.exists() else 0.0


def interrupt(process, rules):
    """Interrupt a program once its server hangs; return how long it waited, and what it said."""
    try:
        while not rules.hits:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        time.sleep(0.3)  # until it waits
        begin, used = time.monotonic(), seconds_of_processors(process)
        process.send_signal(signal.SIGINT)
        process.poll(100)
        took = process.ended - begin
        waited = took - (seconds_of_processors(process) - used)
        return waited, *process.communicate()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.ci
@pytest.mark.parametrize("how", ways(READ | {"dask": OF_DASK}))
def test_ctrl_c_ends_a_read_whose_server_hangs(run, how, root, http_server):
    process = run((READ | {"dask": OF_DASK})[how], http_server.url, root)
    waited, _, error = interrupt(process, http_server.rules)
    assert waited < SECOND
    assert error.strip().endswith("KeyboardInterrupt")
    assert "never retrieved" not in error
    assert "was destroyed" not in error


def test_ctrl_c_ends_the_opening_of_a_repository_whose_server_hangs(run, http_server):
    http_server.rules.add(slow(HANGING), times=1000)
    program = 'import icevirt\nicevirt.Repository.open(icevirt.http_storage(url + "/repo"))'
    waited, _, error = interrupt(run(program, http_server.url, ""), http_server.rules)
    assert waited < SECOND
    assert error.strip().endswith("KeyboardInterrupt")


IN_A_BUCKET = {  # and the request that is not answered
    "open": ("icevirt.Repository.open(storage)", "GET", ""),
    "garbage: list": ("collect()", "GET", "list-type"),
    "garbage: delete": ("collect()", "POST", "delete"),
    "read": ("xarray.open_dataset(storage, engine='icevirt')['a'].values", "GET", "/chunks/"),
}


@pytest.mark.ci
@pytest.mark.parametrize("how", IN_A_BUCKET)
def test_ctrl_c_ends_what_waits_for_a_bucket(run, how, strict_s3):
    call, method, target = IN_A_BUCKET[how]
    repo = icevirt.Repository.create(strict_s3.place.icevirt())
    repo.create_branch("gone", repo.lookup_branch("main"))
    for branch in ("main", "gone"):
        session = repo.writable_session(branch)
        zarr.create_array(session.store, name="a", data=np.random.default_rng(1).random(9999))
        session.commit("a")
    repo.delete_branch("gone")
    strict_s3.rules.add(slow(HANGING), method=method, target=target, times=1000)
    program = f"""
import datetime
import xarray
import icevirt
storage = icevirt.s3_storage(**{strict_s3.place.options!r})
def collect():
    icevirt.Repository.open(storage).garbage_collect(datetime.datetime.now(datetime.UTC))
{call}
"""
    waited, _, error = interrupt(run(program, "", ""), strict_s3.rules)
    assert waited < SECOND
    assert error.strip().endswith("KeyboardInterrupt")


@pytest.mark.ci
@pytest.mark.parametrize("command", cases(COMMANDS, *(c for c in COMMANDS if c != "plan")))
def test_ctrl_c_ends_a_command_whose_server_hangs(run, command, root, http_server):
    """A build hangs where a plan does, in its scans."""
    arguments = [
        each.replace("URL", http_server.url).replace("ROOT", str(root))
        for each in COMMANDS[command]
    ]
    process = run(COMMAND, http_server.url, root, *arguments)
    waited, _, error = interrupt(process, http_server.rules)
    assert waited < SECOND
    assert process.returncode == 130
    assert "Traceback" not in error


@pytest.mark.parametrize("how", ways(READ))
def test_an_error_does_not_wait_for_another_file_that_hangs(run, how, root, http_server):
    del http_server.files.objects["data/1.h5"]
    begin = time.monotonic()
    process = run(READ[how], http_server.url, root)
    try:
        _, error = process.communicate(timeout=150)
    finally:
        process.kill()
        process.communicate()
    assert time.monotonic() - begin < START  # two minutes with the file
    assert "data/1.h5" in error.strip().splitlines()[-1]
    assert error.count("Traceback") == 1


@pytest.mark.ci
def test_a_process_that_ends_by_an_error_sends_no_request_again(run, root, http_server):
    http_server.rules.clear()
    http_server.rules.add(refused(500), target="/data/2.h5", times=1000)
    program = """
import time
from concurrent.futures import ThreadPoolExecutor
import xarray
ds = xarray.open_dataset(root, engine="icevirt", authorize_virtual_chunk_access=[url + "/"])
ThreadPoolExecutor().submit(lambda: ds["v"].values)
time.sleep(1)
raise RuntimeError("of the main thread")
"""
    _, error = run(program, http_server.url, root).communicate(timeout=150)
    assert "of the main thread" in error
    assert 0 < http_server.rules.hits < RetryPolicy().tries
