"""A repository into which a test puts documents that nobody sound wrote, and all that users do."""

import contextlib
import io
import sys
import tempfile
import warnings
from dataclasses import replace
from datetime import UTC, datetime

import xarray as xr

import icevirt
from access.virtual import make
from icevirt.display.render import console, render
from icevirt.errors import IcevirtError
from icevirt.repo import layout
from icevirt.repo.maintenance.check import check
from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from icevirt.storage.local import LocalStorage
from icevirt.storage.memory import MemoryStorage
from icevirt.wire import snapshot
from icevirt.wire.repo_info import file

LATER = datetime(2100, 1, 1, tzinfo=UTC)


class Held(MemoryStorage):
    """A repository in memory that refers to files on disk."""

    prefix = ""  # of the files


def made(path):
    """Return a small repository with references, inline and native chunks."""
    at, held = make(path), Held()
    disk = LocalStorage(at.root)
    held.prefix = at.prefix
    restored(held, kept(disk))
    return held


def tip(storage):
    info = file.decode(storage.get(layout.REPO))
    return info.branches["main"]


def with_metadata(storage, path, document):
    """Put a document in the place of a node's zarr.json, in the newest snapshot."""
    key = tip(storage)
    held = snapshot.decode(storage.get(layout.snapshot(key)))
    nodes = tuple(
        node._replace(user_data=document) if node.path == path else node for node in held.nodes
    )
    storage.put(layout.snapshot(key), snapshot.encode(replace(held, nodes=nodes)))


def with_config(storage, config):
    """Put a document in the place of the persisted configuration."""
    info = file.decode(storage.get(layout.REPO))
    storage.put(layout.REPO, file.encode(info._replace(config=config)))


def authorized(storage):
    return {"authorize_virtual_chunk_access": [storage.prefix]}


def decoded(storage):
    """Open only: what fails when values are decoded lazily fails in xarray."""
    xr.open_dataset(storage, engine="icevirt", **authorized(storage))


def engine(storage):
    options = {"decode_cf": False, **authorized(storage)}
    with xr.open_dataset(storage, engine="icevirt", **options) as opened:
        for name in opened.variables:
            opened[name].isel(dict.fromkeys(opened[name].dims, slice(0, 2))).load()


def tree(storage):
    options = {"decode_cf": False, "eras": "concat", **authorized(storage)}
    xr.open_datatree(storage, engine="icevirt", **options)


def session(storage):
    return Repository.open(storage, **authorized(storage)).readonly_session("main")


def shown(storage):
    repo = Repository.open(storage)
    repr(repo), repr(repo.config), repr(repo.config.virtual_chunk_containers)
    console(sys.stdout).print(render(summary(repo)))
    repr(repo.metadata), repr([*repo.ancestry(branch="main")]), repr(repo.list_branches())


def settings(storage):
    """Ask for every setting."""
    config = Repository.open(storage).config
    for name in (*CONFIG, "virtual_chunk_containers"):
        with contextlib.suppress(IcevirtError):
            repr(getattr(config, name))
    Repository.open(storage).save_config()


CONFIG = (
    *("inline_chunk_threshold_bytes", "compression", "caching", "storage", "manifest"),
    *("repo_update_retries", "num_updates_per_repo_info_file", "max_concurrent_requests"),
    *("inline_threshold", "compression_level", "ops_log_limit", "splitting_document"),
)


def commit(storage):
    changed = Repository.open(storage).writable_session("main")
    changed.set_chunk("/native", (1, 0), bytes(4000))
    changed.commit("more", allow_empty=True)


def rearranged(storage):
    changed = Repository.open(storage).writable_session("main")
    changed.shift_array("/native", (1, 0))


def traced(storage):
    session(storage).source_of("/v", (0, 0))


def exported(storage):
    with tempfile.TemporaryDirectory() as folder:
        icevirt.to_kerchunk(session(storage), "/", f"{folder}/references.json")


def virtual(storage):
    icevirt.to_virtualizarr(session(storage))


def read_all(storage):
    store = session(storage).store
    for key in ("v/c/0/0", "inline/c/1/0", "native/c/0/0", "native/c/7/7"):
        store.get_sync(key)


def diffed(storage):
    repo = Repository.open(storage)
    ids = [each.id for each in repo.ancestry(branch="main")]
    repo.diff(from_snapshot_id=ids[-1], to_snapshot_id=ids[0])


def stats(storage):
    repo = Repository.open(storage)
    repo.chunk_storage_stats()
    repo.inspect_repo_info()
    repo.inspect_snapshot(str(tip(storage)))


def upkeep(storage):
    repo = Repository.open(storage)
    repo.rewrite_manifests("again", branch="main")
    repo.expire_snapshots(datetime.now(UTC))
    repo.garbage_collect(datetime.now(UTC))


def verified(storage):
    icevirt.verify(storage, full=True, **authorized(storage))


def checked(storage):
    console(sys.stdout).print(render(check(storage)))


USES = {
    "open_dataset": engine,
    "open_dataset, decoded": decoded,
    "open_datatree": tree,
    "info": shown,
    "settings": settings,
    "check": checked,
    "the store": read_all,
    "where a value lies": traced,
    "diff": diffed,
    "statistics": stats,
    "kerchunk": exported,
    "commit": commit,
    "rearranging": rearranged,
    "upkeep": upkeep,
}
COSTLY = {"verify": verified, "virtualizarr": virtual}


def kept(storage):
    """Return the objects of a repository, to be put back with `restored`."""
    return {info.path: storage.get(info.path) for info in storage.list()}


def restored(storage, objects):
    """Put objects back, and remove all others."""
    storage.delete_many([info.path for info in storage.list() if info.path not in objects])
    for path, body in objects.items():
        storage.put(path, body)


def used(storage, uses=USES):
    """Do all that users do; return what was refused, by what they did.

    Anything but an error of icevirt's falls through, with a note.
    """
    refused = {}
    for name, use in uses.items():
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                use(storage)
        except IcevirtError as error:
            str(error), repr(error)
            refused[name] = error
        except BaseException as error:
            error.add_note(f"while using: {name}")
            raise
    return refused
