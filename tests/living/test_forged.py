"""Whatever a repository says, no command opens a file or asks a server that nobody named.

Lists of files, recipes, records, scans, containers and references are forged, as anybody can who may
write the repository. Each command is called by the owner, whose state is there, and by somebody who
authorizes the archive. What Python opens or looks at is seen by an audit hook, what libraries ask
by a server.
"""

import json
import os
import shutil
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import netCDF4
import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import icevirt
from builds.support import write_day, write_days
from executors import StagedExecutor
from icevirt.api.dataset import left_out
from icevirt.api.dataset.files_held import CATALOG, WORK_FOLDER
from icevirt.api.dataset.records import (
    KeptRecipe,
    digest_of,
    identify_files,
    keep_recipe,
    provenance_of,
    recipe_named,
)
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.trial import file_held_back
from icevirt.api.recipe import toml
from icevirt.archive import catalog as schema
from icevirt.archive.sources import SourceFile
from icevirt.catalog.listings import read_listing, write_listing
from icevirt.catalog.parquet import encode_table, read_table
from icevirt.catalog.part_copies import rename_files
from icevirt.execution.selection import default_executor
from icevirt.planning.records import METADATA
from icevirt.spark.foreach_batch import FilesAppender
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import Below
from icevirt.tasks.table_query import TableQuery
from icevirt.tasks.table_rows import plan_shares, rows_of
from living.watching import watching
from servers.listeners import Listener, listening

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]

CANARY = 77  # a value of the private file alone


@dataclass(frozen=True)
class World:
    """An archive, its repository, what nobody may read, and who asks."""

    root: Path
    listener: Listener  # a server that nobody named

    @property
    def server(self):
        return self.listener.url

    @property
    def archive(self):
        return self.root / "archive"

    @property
    def repo(self):
        return str(self.root / "repo")

    @property
    def private(self):
        return self.root / "private"

    @property
    def secret(self):
        return self.private / "secret.nc"

    def reset(self):
        """Put the repository, the archive and what the owner knows back."""
        shutil.rmtree(self.root / "moved", ignore_errors=True)
        for name, kept in KEPT.items():
            shutil.rmtree(self.root / name, ignore_errors=True)
            shutil.copytree(self.root / kept, self.root / name, symlinks=True)
        shutil.copytree(self.root / "days", self.root / "moved", symlinks=True)


KEPT = {"repo": "kept", "archive": "days", "owner": "known"}  # what tests change, and copies of it


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Build the repository once: it lies at one place, where each test finds it anew."""
    with listening() as server, pytest.MonkeyPatch.context() as patch:
        made = World(tmp_path_factory.mktemp("world"), server)
        patch.setenv("XDG_STATE_HOME", str(made.root / "owner"))
        write_days(made.archive, 2)
        with default_executor(StagedExecutor()):
            icevirt.build(str(made.archive), made.repo, concat_dim="time")
        made.private.mkdir()
        write_day(made.secret, 9)
        with netCDF4.Dataset(made.secret, "r+") as file:
            file["mask"][:] = CANARY
        (made.archive / "link.dat").symlink_to(made.secret)  # no file that a listing takes
        for name, kept in KEPT.items():
            shutil.copytree(made.root / name, made.root / kept, symlinks=True)
        yield made


@pytest.fixture
def world(made, monkeypatch):
    for name, value in {
        "XDG_STATE_HOME": str(made.root / "owner"),
        "AWS_ENDPOINT_URL": made.listener.url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ICEVIRT_REMEMBER", raising=False)
    return made


# -- what is forged ------------------------------------------------------------------------------


def spelled(world):
    """Return URLs of what nobody may read, in the spellings that a list can hold."""
    return {
        "a private file": world.secret.as_uri(),
        "a web server": f"{world.server}/x/h.nc",
        "a bucket": "s3://bucket/x/h.nc",
        "dots": f"{world.archive.as_uri()}/../private/secret.nc",
        "encoded dots": f"{world.archive.as_uri()}/%2e%2e/private/secret.nc",
        "encoded slash": f"{world.archive.as_uri()}/..%2fprivate%2fsecret.nc",
        "a link of the archive": f"{world.archive.as_uri()}/link.dat",
        "localhost": world.secret.as_uri().replace("file://", "file://localhost"),
        "a name that begins alike": f"{world.archive.as_uri()}../private/secret.nc",
        "a pattern": f"{world.private.as_uri()}/*.nc",
        "a list": f"@{world.private.as_uri()}/list.txt",
        "a path": str(world.secret),
    }


SPELLINGS = (
    *("a private file", "a web server", "a bucket", "dots", "encoded dots", "encoded slash"),
    *("a link of the archive", "localhost", "a name that begins alike", "a pattern", "a list"),
    "a path",
)
PARTS = ("list", "recipe", "record", "scans", "places", "container", "references", "held")


@dataclass(frozen=True)
class Forgery:
    """What of a repository names what, and whether files are said to have changed."""

    parts: frozenset
    spelling: str
    is_last: bool = True
    stamps: bool = True  # as the file has them, which anybody may know


def forge(world, forgery):
    """Write what an attacker writes; all digests agree."""
    storage, url = LocalStorage(world.repo), spelled(world)[forgery.spelling]
    target = Target.look(storage, branch="main", group="/", mode="w")
    record = dict(provenance_of(target.last_build(), "/"))
    work = Below(storage, WORK_FOLDER)
    facts = world.secret.stat()
    time = facts.st_mtime_ns if forgery.stamps else 10**18
    file = SourceFile(url=url, size=facts.st_size, last_modified=time)
    if "list" in forgery.parts:
        known = [*read_listing(work, record["listing"]).files]
        files = [*known, file] if forgery.is_last else [file, *known]
        record["listing"] = digest_of(identify_files(files))
        write_listing(work, record["listing"], files)
        record |= {"files": len(files), "tail": ""}
    if "recipe" in forgery.parts:
        recipe = tomllib.loads(recipe_named(storage, record["recipe"]).text)
        kept = KeptRecipe(toml({**recipe, "sources": [str(world.archive), url]}))
        keep_recipe(storage, kept)
        record["recipe"] = kept.digest
    if "record" in forgery.parts:
        record |= {
            "bad_files": [[url, "damaged", "x"]],
            "left_out": [[url, url]],
            "catalog": f"{world.private.as_uri()}/catalog/",
            "combine": {**record.get("combine", {}), "containers": [[url, "theirs"]]},
        }
    if "held" in forgery.parts:
        record["held"] = left_out.keep_held(storage, [file_held_back(file, "x", "y")])
    if "scans" in forgery.parts:  # a file of the archive is described as another one
        scans = Below(storage, CATALOG)
        mine = world.archive / "day2.nc"
        here = SourceFile(
            url=mine.as_uri(), size=mine.stat().st_size, last_modified=mine.stat().st_mtime_ns
        )
        rename_files(scans, lambda _: url, {here: file})
    if "places" in forgery.parts:
        lead_elsewhere(Below(storage, CATALOG), url.rpartition("/")[0] + "/")
    repo = icevirt.Repository.open(world.repo)
    if "container" in forgery.parts:
        prefix = f"{world.private.as_uri()}/"
        store = icevirt.local_filesystem_store(str(world.private))
        repo.config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
        served = f"{world.server}/"
        repo.config.set_virtual_chunk_container(
            icevirt.VirtualChunkContainer(served, icevirt.http_store({}))
        )
        repo.save_config()
    session = repo.writable_session("main")
    if "references" in forgery.parts and "container" in forgery.parts:
        group = zarr.open_group(session.store, mode="r+")
        group.create_array("theirs", shape=(8,), chunks=(8,), dtype="u1", compressors=None)
        there = world.secret.as_uri() if "file" in url else f"{world.server}/x/h.nc"
        spec = icevirt.VirtualChunkSpec([0], there, 0, 8, '"e"')
        session.store.set_virtual_refs("/theirs", [spec])
    session.commit("forged", metadata={METADATA: record}, allow_empty=True)


def lead_elsewhere(storage, place):
    """Let the scans say that files refer to others in a directory."""
    for info in storage.list("files"):
        table = read_table(storage, info.path, [name for name, _ in schema.FILES])
        columns = {name: table[name] for name in table.column_names}
        columns["places"] = pa.array([json.dumps([place])] * len(table))
        run = schema.run_of(info.path.removeprefix("files/").removesuffix(".parquet"))
        storage.put(info.path, encode_table(columns, schema.FILES, run))


forgeries = st.builds(
    Forgery,
    parts=st.frozensets(st.sampled_from(PARTS), min_size=1),
    spelling=st.sampled_from(SPELLINGS),
    is_last=st.booleans(),
    stamps=st.booleans(),
)


# -- what is called ------------------------------------------------------------------------------


def authorized(world):
    return {"authorize_virtual_chunk_access": [world.archive.as_uri()]}


def late(world):
    return write_day(world.archive / "day4.nc", 4)


def corrected(world):
    return write_day(world.archive / "day2.nc", 2, scale=0.01)


def tables(world):
    storage = LocalStorage(world.repo)
    for table in ("references", "arrays", "snapshots"):
        for share in plan_shares(storage, TableQuery.of(table), at_most=4):
            list(rows_of(share))


class Batch:
    """The rows of a stream's batch, which name one new file."""

    sparkSession = None
    dtypes = (("path", "string"),)

    def __init__(self, *paths):
        self._rows = [(path,) for path in paths]

    def select(self, _):
        return self

    def distinct(self):
        return self

    def collect(self):
        return self._rows


def stream(world, **how):
    options = {"concat_dim": None, **how}
    FilesAppender(repo=world.repo, options=options, runs_on="in-process")(Batch(late(world)), 1)


def looks(world):
    for look in (
        lambda: icevirt.log(world.repo),
        lambda: icevirt.info(world.repo),
        lambda: icevirt.check(world.repo, chunks=True),
        lambda: icevirt.diff(world.repo, "main~1", "main"),
        lambda: icevirt.ops_log(world.repo),
        lambda: icevirt.export(world.repo, world.root / "moved" / "references.json"),
        lambda: icevirt.to_html(world.repo, world.root / "moved" / "page.html"),
    ):
        with suppress(icevirt.IcevirtError):
            look()


CALLS = {
    "update": lambda world, **how: icevirt.update(world.repo, **how),
    "update, a new file": lambda world, **how: (late(world), icevirt.update(world.repo, **how)),
    "update, corrections": lambda w, **how: (corrected(w), icevirt.update(w.repo, **how)),
    "update, a dry run": lambda w, **how: (
        late(w),
        icevirt.update(w.repo, dry_run=True, **how),
    ),
    "update, files scanned again": lambda w, **how: icevirt.update(w.repo, rescan="*", **how),
    "update, variables": lambda w, **how: icevirt.update(w.repo, variables="packed", **how),
    "update, files gone": lambda w, **how: (
        os.remove(w.archive / "day2.nc"),
        icevirt.update(w.repo, vanished="remove", max_vanished="90%", **how),
    ),
    "append": lambda world, **how: icevirt.append(late(world), world.repo, **how),
    "append in between": lambda world, **how: icevirt.append(
        write_day(world.archive / "day0.nc", 0), world.repo, **how
    ),
    "append, what changed": lambda world, **how: icevirt.append(
        corrected(world), world.repo, on_changed="replace", **how
    ),
    "append nothing": lambda world, **how: icevirt.append([], world.repo, **how),
    "a window": lambda world, **_: icevirt.maintain(
        world.repo, window="1D", authorize=str(world.archive)
    ),
    "withdraw": lambda world, **_: icevirt.withdraw(
        str(world.archive / "day1.nc"), world.repo, authorize=str(world.archive)
    ),
    "relocate": lambda world, **_: icevirt.relocate(
        world.repo,
        world.archive,
        world.root / "moved",
        authorize_virtual_chunk_access=[world.archive.as_uri(), (world.root / "moved").as_uri()],
    ),
    "materialize": lambda world, **_: icevirt.materialize(
        world.repo, "packed", **authorized(world)
    ),
    "verify": lambda world, **_: icevirt.verify(world.repo, **authorized(world)),
    "status": lambda world, **_: icevirt.status(world.repo, **authorized(world)),
    "undo": lambda world, **_: icevirt.undo(world.repo, exclude=True),
    "maintain": lambda world, **_: icevirt.maintain(world.repo),
    "source": lambda world, **_: icevirt.source(world.repo, "packed", {}),
    "tables": lambda world, **_: tables(world),
    "a stream": stream,
    "looks": lambda world, **_: looks(world),
    "open": lambda world, **_: icevirt.open(world.repo).load().close(),
    "what a report opens": lambda world, **how: icevirt.update(world.repo, **how).open().load(),
    "build again": lambda world, **_: icevirt.build(
        str(world.archive), world.repo, concat_dim="time", mode="w"
    ).open(),
}


@pytest.mark.parametrize("is_owner", [True, False], ids=["the owner", "somebody else"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@settings(
    max_examples=2,
    phases=[Phase.explicit, Phase.generate],  # a forgery is short, and takes a second
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(forgery=forgeries)
def test_nothing_is_read_that_only_a_repository_names(call, is_owner, forgery, world, monkeypatch):
    assert_nothing_is_read(call, forgery, world, monkeypatch, is_owner=is_owner)


@pytest.mark.parametrize("call", [name for name in CALLS if name != "verify"])
def test_a_link_of_the_archive_is_not_followed(call, world, monkeypatch):
    """Verification looks at each file of a list below what was authorized, links included."""
    forgery = Forgery(parts=frozenset({"list"}), spelling="a link of the archive")
    assert_nothing_is_read(CALLS[call], forgery, world, monkeypatch, is_owner=True)


def assert_nothing_is_read(call, forgery, world, monkeypatch, *, is_owner):
    world.reset()
    forge(world, forgery)
    before = world.listener.accepted
    if not is_owner:  # who keeps nothing there; another variable would start a fork server anew
        shutil.rmtree(world.root / "owner")
    with monkeypatch.context() as patch:
        how = {} if is_owner else {"authorize": str(world.archive)}
        with watching(patch) as seen, suppress(icevirt.IcevirtError):
            call(world, **how)
    assert [each for each in seen.names if each.startswith(str(world.private))] == []
    assert [each for each in seen.names if each.endswith("link.dat")] == []
    assert seen.below(world.server.removeprefix("http://")) == []
    assert world.listener.accepted == before
    assert canaries(world) == []


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_does_its_work_where_nothing_is_forged(call, world):
    """Calls that are always refused would read nothing either."""
    world.reset()
    call(world)


def canaries(world):
    """Return the objects of the repository that hold the private values as they are stored."""
    values = np.full((5, 6), CANARY, np.int8).tobytes()
    return [
        each
        for each in Path(world.repo).rglob("*")
        if each.is_file() and values in each.read_bytes()
    ]


def test_the_watch_sees_what_is_read(world, monkeypatch):
    """A watch that sees nothing would pass too."""
    with watching(monkeypatch) as seen:
        icevirt.scan_file(world.secret)
        os.path.exists(world.private / "other")
        with pytest.raises(icevirt.IcevirtError):
            icevirt.scan_file(f"{world.server}/x/h.nc")
    assert len(seen.below(world.private)) > 1
    assert world.listener.accepted > 0
