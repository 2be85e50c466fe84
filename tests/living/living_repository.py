"""A repository that lives, and a plain model of it: lists of files, and the values in these.

`LivingRepository` does one deed after another, drawn by a seed or named by a test: to the archive
(new, corrected, touched, damaged, vanished files), by icevirt (update, append, build, relocate, undo,
redo, reset, branches, retention, withdrawal) and by the official client (commits, expiry). Any
commit of icevirt may be killed at some write, and is then repeated. After each deed every branch
reads as the model says, or an error names a file that changed. Nothing named by its content is ever
replaced by something else, and no file is scanned twice.

A new deed is a method whose name stands in `DEEDS`. What commits goes through `act`, which is told
what the branch holds then.
"""

import contextlib
import functools
import io
import os
import random
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import netCDF4
import numpy as np
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr

import icevirt
from builds.aging import days_ago
from builds.support import official, opened
from icevirt import errors
from icevirt.api.dataset import scanning
from icevirt.connect.urls import file_url
from icevirt.model.chunks import ChunkType
from icevirt.storage.local import LocalStorage
from icevirt.tasks.scan import run_scan

EPOCH = 1_600_000_000
LEAST = 2  # files that stay in each place
CHANGING = ("repo", "icevirt/leases/", "overwritten/")  # all other objects never change
DEEDS = {
    "new": 6, "late": 2, "corrected": 3, "touched": 3, "damaged": 1, "mended": 1, "vanished": 1,
    "update": 8, "append": 3, "relocate": 3, "undo": 3, "redo": 2, "branch": 1, "reset": 1,
    "materialize": 3, "twin": 2, "others_commit": 2, "retain": 1, "make_anew": 1, "rebuild": 1, "withdraw": 1,
}  # fmt: skip
"""What may happen, and how often."""
ADDING = {"new", "late", "damaged", "mended"}
"""Deeds to files that no version has, after which everything reads as before."""


class KilledError(BaseException):
    """The process ended here."""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A file as a dataset took it."""

    values: xr.Dataset
    written: int  # when, in nanoseconds


@dataclass(frozen=True, kw_only=True)
class Version:
    """What a snapshot holds."""

    place: Path  # where its references lead
    listed: Path  # where its records say that the files are
    files: dict[str, Taken] = field(default_factory=dict)  # by name
    notes: int = 0  # what others stored
    stored: frozenset[str] = frozenset()  # variables that lie in the repository
    twins: frozenset[str] = frozenset()  # variables that have a twin

    @functools.cached_property
    def values(self):
        """The dataset, as xarray makes it of its files."""
        some = sorted((each.values for each in self.files.values()), key=lambda x: x.time[0].item())
        return xr.concat(some, "time", data_vars="minimal", coords="minimal", compat="override")

    @property
    def refers(self):
        """Whether a variable refers to files."""
        return not {"packed", "plain"} <= self.stored

    @property
    def is_current(self):
        """Whether each file is as it was taken."""
        return all(written(self.place / name) == each.written for name, each in self.files.items())


def written(path):
    """Return when a file was written, None where there is none."""
    return path.stat().st_mtime_ns if path.exists() else None


def content(path, raw):
    """Return what an object says; of a scan, how long it took apart."""
    if not path.startswith("icevirt/catalog/files/"):
        return raw
    table = pq.read_table(io.BytesIO(raw))
    return table.drop_columns(["seconds"]).to_pylist(), table.schema.metadata


def is_good(path):
    return path.read_bytes()[:4] == b"\x89HDF"


def write_file(path, day, number):
    """Write one step of a variable with chunks, of one without, and of one that is copied."""
    values = np.random.default_rng(number).normal(size=(1, 60))
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 60)
        time = file.createVariable("time", "i4", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = [day]
        packed = file.createVariable("packed", "f4", ("time", "x"), zlib=True, chunksizes=(1, 60))
        packed[:] = values
        file.createVariable("plain", "f4", ("time", "x"), chunksizes=(1, 60))[:] = values + 1
        file.createVariable("number", "i4", ("time",))[:] = [number]


class LivingRepository:
    """An archive in one place after another, a repository of it, and what that has to hold.

    Args:
        folder: For all of it.
        seed: Of what is drawn.
        monkeypatch: Of the test.
        kills: How often a commit is killed, as a share.
        ages: Whether days pass between deeds, so that versions get old; else the official client
            writes, too.
        is_named: Whether references are relative to a container with a name, so that all versions
            move together.
    """

    def __init__(self, folder, seed, monkeypatch, *, kills=0.0, ages=False, is_named=False):
        self.random, self.kills, self.ages = random.Random(seed), kills, ages
        self.is_named = is_named
        self.folder, self.repo = folder, str(folder / "repo")
        self.log, self.count, self.day, self.left_behind = [], 0, 100, []
        self.places, self.versions, self.scanned, self.withdrawn = [], {}, set(), set()
        self.age, self.writes_left, self.killed = 300.0, None, 0
        monkeypatch.setattr(scanning, "run_scan", self._scan)
        for name in ("put", "put_if"):
            monkeypatch.setattr(LocalStorage, name, self._watched(getattr(LocalStorage, name)))
        place = self._new_place()
        for _ in range(3):
            self._write(place)
        options = {"containers": {"archive": str(place)}} if is_named else {}
        with self._passing():
            icevirt.build(str(place), self.repo, concat_dim="time", commit_options=options)
        self.versions[self.tip("main")] = self._archive(Version(place=place, listed=place))
        self.check()

    # -- the program ---------------------------------------------------------------------------

    def run(self, *deeds):
        """Do deeds by name; the branch of one stands behind a colon."""
        for deed in deeds:
            name, _, branch = deed.partition(":")
            self.do(name, branch or "main")

    def step(self):
        """Do one of the deeds, to one of the branches."""
        self.do(
            *self.random.choices([*DEEDS], [*DEEDS.values()]), self.random.choice(self.branches)
        )

    def do(self, name, branch):
        """Do a deed, and check what holds then."""
        self.log.append(f"{name}:{branch}")
        try:
            getattr(self, name)(branch)
            if name not in ADDING:
                self.check()
        except BaseException as error:
            error.add_note(f"after {' '.join(self.log)}")
            raise

    # -- deeds: to the archive -------------------------------------------------------------------

    def new(self, branch):
        """Write a file behind all others; some days are left for later."""
        if self.random.random() < 0.3:
            self.left_behind.append(self._next_day())
        self._write(self.version(branch).place)

    def late(self, branch):
        """Write a file whose step lies between others."""
        if self.left_behind:
            self._write(self.version(branch).place, self.left_behind.pop(0))

    def corrected(self, branch):
        """Write a file again with other values, and mostly with the same layout."""
        for path in self._some(branch):
            self._write(path.parent, int(path.stem[1:]))

    def touched(self, branch):
        for path in self._some(branch):
            self._stamp(path)

    def damaged(self, branch):
        """Put a file that is not whole."""
        path = self.version(branch).place / f"f{self._next_day():04}.nc"
        path.write_bytes(b"not yet" * 300)
        self._stamp(path)

    def mended(self, branch):
        for path in self.version(branch).place.iterdir():
            if not is_good(path):
                self._write(path.parent, int(path.stem[1:]))

    def vanished(self, branch):
        for path in self._some(branch):
            if len(self._archive(self.version(branch)).files) > LEAST:
                path.unlink()

    # -- deeds: to the repository ----------------------------------------------------------------

    def update(self, branch):
        """The dataset becomes what its archive is."""
        self._name_the_place(branch)
        before = self.version(branch)
        expected = self._archive(before)
        gone = before.files.keys() - expected.files.keys()
        new = expected.files.keys() - before.files.keys()
        other = [n for n in before.files.keys() - gone if before.files[n] != expected.files[n]]

        def call():
            report = icevirt.update(
                self.repo, branch=branch, vanished="remove", max_vanished="100%"
            )
            assert not report.bad_files
            held = sorted(Path(each.url).name for each in report.held)
            assert held == sorted(p.name for p in before.place.iterdir() if not is_good(p))
            # files to which nothing refers are scanned again where they moved without their times
            again = max(0, report.files_corrected - len(other))
            assert again <= report.files_same_layout <= report.files_corrected
            counts = report.files_added, report.files_corrected - again, report.files_vanished
            assert counts in {(len(new), len(other), len(gone)), (0, 0, 0)}, (report, new, other)
            return report

        report = self.act(branch, call, expected)
        assert self.version(branch).is_current
        is_more = new or other or gone or report.held or report.files_corrected
        assert report.already_built or self.killed or is_more

    def append(self, branch):
        """Add a file by its name; no other one is looked at."""
        self._name_the_place(branch)
        before = self.version(branch)
        path = self._write(before.place)
        call = lambda: icevirt.append(str(path), self.repo, commit_options={"branch": branch})  # noqa: E731
        self.act(branch, call, replace(before, files=before.files | {path.name: taken(path)}))

    def relocate(self, branch):
        """Move the archive to a new place, or to one where it was before."""
        before = self.version(branch)
        known = [place for place in self.places if place != before.place]
        if known and self.random.random() < 0.5:
            self.relocate_to(branch, self.random.choice(known))
            return
        new = self._new_place()
        has_times = self.random.random() < 0.7
        for path in before.place.iterdir():
            shutil.copy2(path, new / path.name)
            if not has_times:
                self._stamp(new / path.name)
        self.relocate_to(branch, new)

    def back(self, branch):
        """Move the archive to the first place."""
        self.relocate_to(branch, self.places[0])

    def relocate_to(self, branch, new):
        """Move to a place, or be refused where the files there are others."""
        self._name_the_place(branch)
        before = self.version(branch)
        if new == before.place:
            return
        same = self._same_files(before, before.place, new)
        call = self._relocating(before.place, new, branch)
        if same == before.files.keys() or not before.refers:
            files = self._stamped(before.files, same, new)
            expected = replace(before, place=new, listed=new, files=files)
            self.act(branch, call, expected, all_move=True)
        else:
            tip = self.tip(branch)
            with pytest.raises(errors.VerificationError, match="not at the new place"):
                call()
            assert self.tip(branch) == tip

    def _same_files(self, version, old, new):
        """Return the names of the files that count as the same at a new place."""

        def is_same(name, known):
            if written(new / name) in (None, known.written):
                return written(new / name) is not None
            is_compared = written(old / name) == known.written and is_good(new / name)
            return is_compared and taken(new / name).values.identical(known.values)

        return {name for name, known in version.files.items() if is_same(name, known)}

    def _stamped(self, files, same, place):
        return files | {name: replace(files[name], written=written(place / name)) for name in same}

    def _relocating(self, old, new, branch):
        access = [file_url(old), file_url(new)]
        return lambda: icevirt.relocate(
            self.repo, old, new, branch=branch, authorize_virtual_chunk_access=access, seed=1
        )

    def _name_the_place(self, branch):
        """Name the place in the records of a version from before a container moved."""
        before = self.version(branch)
        if before.listed != before.place:
            with pytest.raises(errors.InvalidInputError, match="icevirt relocate"):
                icevirt.update(self.repo, branch=branch)
            files = before.files
            if not before.refers:  # else references have the times that the files had before
                same = self._same_files(before, before.listed, before.place)
                files = self._stamped(files, same, before.place)
            call = self._relocating(before.listed, before.place, branch)
            self.act(branch, call, replace(before, listed=before.place, files=files))

    def undo(self, branch):
        with contextlib.suppress(errors.InvalidInputError), self._passing():
            icevirt.undo(self.repo, branch=branch)
        if self.tip(branch) not in self.versions:  # what was there before the dataset
            with self._passing():
                icevirt.redo(self.repo, branch=branch)

    def redo(self, branch):
        with contextlib.suppress(errors.InvalidInputError), self._passing():
            icevirt.redo(self.repo, branch=branch)

    def branch(self, branch):
        """Begin a branch at some version of another one."""
        repo = icevirt.Repository.open(self.repo)
        there = [each.id for each in repo.ancestry(branch=branch) if each.id in self.versions]
        with self._passing():  # the clock is that of the time when it is opened
            icevirt.Repository.open(self.repo).create_branch(
                f"b{len(self.branches)}", self.random.choice(there)
            )

    def reset(self, branch):
        """Let a branch show any version that a branch leads to."""
        repo = icevirt.Repository.open(self.repo)
        there = {each.id for name in self.branches for each in repo.ancestry(branch=name)}
        version = self.random.choice(sorted(there & self.versions.keys()))
        with self._passing():
            icevirt.reset(self.repo, version, branch=branch)

    def others_commit(self, branch):
        """Store something in another group, by the official client where its clock is right."""
        self.count += 1
        with self._passing():
            client = icevirt.Repository.open(self.repo) if self.ages else official(self.repo)
            session = client.writable_session(branch)
            group = zarr.open_group(session.store, mode="a").require_group("notes")
            group.require_array("n", shape=(), dtype="i4")[...] = self.count
            session.commit("theirs")
        self.versions[self.tip(branch)] = replace(self.version(branch, -1), notes=self.count)

    def materialize(self, branch):
        """Store a variable, in chunks of its files or in others; from then on it stays stored."""
        version = self.version(branch)
        name = self.random.choice(["packed", "plain"])
        how = self.random.choice(
            [{}, {"chunks": {"time": 2}}, {"chunks": {"time": 4, "x": 25}}, {"codec": "zstd"}]
        )
        if version.is_current:
            expected = replace(version, stored=version.stored | {name})
            places = [file_url(version.place)]
            call = functools.partial(
                icevirt.materialize, self.repo, name, branch=branch,
                authorize_virtual_chunk_access=places, **how,
            )  # fmt: skip
            self.act(branch, call, expected)

    def twin(self, branch):
        """Store a variable once more in other chunks; from then on both have the same values."""
        version, name = self.version(branch), self.random.choice(["packed", "plain"])
        if version.is_current:
            call = functools.partial(
                icevirt.materialize, self.repo, name, branch=branch, beside=True,
                authorize_virtual_chunk_access=[file_url(version.place)],
                chunks=self.random.choice([{"time": 4}, {"time": 3, "x": 25}]),
            )  # fmt: skip
            self.act(branch, call, replace(version, twins=version.twins | {name}))

    def make_anew(self, branch):
        """Make a variable anew from all files, which are scanned again for it."""
        self._name_the_place(branch)
        version = self.version(branch)
        if version.is_current:
            self.scanned.clear()
            call = functools.partial(icevirt.update, self.repo, branch=branch, variables="plain")
            self.act(branch, call, version)
            self.scanned.clear()

    def rebuild(self, branch):
        """Build all files of the place, and no others; a file that is not whole stops it."""
        before = self.version(branch)
        is_whole = all(map(is_good, before.place.iterdir()))
        if self.is_named or self.withdrawn or not is_whole:
            return

        def call():
            return icevirt.build(
                str(before.place), self.repo, mode="w", concat_dim="time",
                commit_options={"branch": branch}, catalog=f"{self.repo}/icevirt/catalog",
            )  # fmt: skip

        self.act(branch, call, self._archive(before))

    def withdraw(self, branch):
        """Take a file out of all branches and versions, under all names that it had."""
        for each in self.branches:
            self._name_the_place(each)
        tips = {each: self.version(each) for each in self.branches}
        name = self.random.choice(sorted(tips[branch].files))
        left = [{*each.files} - {name} for each in tips.values()]
        if min(map(len, left)) < LEAST or not all(each.is_current for each in tips.values()):
            return
        self.withdrawn.add(name)
        self.versions = {k: each for k, each in self.versions.items() if name not in each.files}

        def call():
            for each in self.places:
                with contextlib.suppress(errors.NotFoundError):
                    icevirt.withdraw(str(each / name), self.repo, authorize=self.places)

        for attempt in (self._killed, self._whole):
            attempt(call)
            for each, before in tips.items():
                files = {key: taken for key, taken in before.files.items() if key != name}
                if name not in before.files or attempt == self._whole:
                    self.versions.setdefault(self.tip(each), replace(before, files=files))
        self._forget_what_is_gone()

    def retain(self, branch):
        """Take old versions out of the history, and delete what nothing refers to then."""
        self.scanned.clear()  # scans that no list needs go, too
        if self.ages:
            call = functools.partial(icevirt.maintain, self.repo, keep_snapshots="10D")
            tips = {each: self.version(each) for each in self.branches}
            self._killed(call)
            self._whole(call)
            for each, version in tips.items():  # small manifests may be joined in a commit
                self.versions.setdefault(self.tip(each), version)
        else:
            repo = official(self.repo) if self.random.random() < 0.5 else None
            repo = repo or icevirt.Repository.open(self.repo)
            limit = self._newest()
            repo.expire_snapshots(limit)
            repo.garbage_collect(limit)
        self._forget_what_is_gone()

    # -- what a deed needs -----------------------------------------------------------------------

    def act(self, branch, call, expected, *, all_move=False):
        """Commit by icevirt, perhaps killed at first; the branch holds what is expected then.

        Args:
            branch: To which the commit goes.
            call: Makes it.
            expected: What the branch holds.
            all_move: Whether other versions move with this one, if a container has a name.
        """
        before = self.tip(branch)
        if self._killed(call) and self.tip(branch) != before:
            self._moved(expected if all_move else None)
            self.versions[self.tip(branch)] = expected
            self.check()
        report = self._whole(call)
        self._moved(expected if all_move else None)
        known = self.versions.setdefault(self.tip(branch), expected)
        assert (known.place, known.listed) == (expected.place, expected.listed)
        assert known.notes == expected.notes
        assert (known.files, known.stored) == (expected.files, expected.stored)
        assert known.twins == expected.twins
        return report

    def _moved(self, to):
        if to is not None and self.is_named:
            moved = {key: replace(each, place=to.place) for key, each in self.versions.items()}
            self.versions = moved

    def _killed(self, call):
        """Perhaps begin a call that ends at some write; say whether it was begun."""
        if self.random.random() >= self.kills:
            return False
        self.writes_left = self.random.randrange(15)
        with contextlib.suppress(KilledError), self._passing():
            call()
        self.killed += self.writes_left == 0
        self.writes_left = None
        self.scanned.clear()  # parts that were not finished are scanned once more
        return True

    def _whole(self, call):
        with self._passing():
            return call()

    def _forget_what_is_gone(self):
        left = {each.name for each in Path(self.repo, "snapshots").iterdir()}
        self.versions = {key: each for key, each in self.versions.items() if key in left}

    def tip(self, branch):
        return icevirt.Repository.open(self.repo).lookup_branch(branch)

    @property
    def branches(self):
        return sorted(icevirt.Repository.open(self.repo).list_branches())

    def version(self, branch, at=0):
        """Return what the tip of a branch holds, or a version before."""
        if not at:
            return self.versions[self.tip(branch)]
        history = [*icevirt.Repository.open(self.repo).ancestry(branch=branch)]
        return self.versions[history[-at].id]

    def _archive(self, before):
        """Return the version of all good files of a place."""
        paths = [path for path in sorted(before.place.iterdir()) if is_good(path)]
        good = [path for path in paths if path.name not in self.withdrawn]
        known = before.files
        now = {
            path.name: known[path.name]
            if path.name in known and known[path.name].written == written(path)
            else taken(path)
            for path in good
        }
        return replace(before, files=now)

    def _new_place(self):
        place = self.folder / "disk" / f"place{len(self.places)}"
        place.mkdir(parents=True)
        self.places.append(place)
        return place

    def _next_day(self):
        self.day += 1
        return self.day

    def _write(self, place, day=None):
        """Write a file with values that no other one has."""
        self.count += 1
        day = day or self._next_day()
        path = place / f"f{day:04}.nc"
        whole = self.folder / "written.nc"
        write_file(whole, day, self.count)
        self._stamp(whole)
        whole.replace(path)
        return path

    def _stamp(self, path):
        """Give a file a time of its own: references hold whole seconds."""
        self.count += 1
        os.utime(path, (EPOCH + 3 * self.count,) * 2)

    def _some(self, branch):
        place = self.version(branch).place
        return self.random.sample([p for p in sorted(place.iterdir()) if is_good(p)], 1)

    def _passing(self):
        """Let the next hours pass, in a world that ages."""
        if not self.ages:
            return contextlib.nullcontext()
        self.age -= self.random.uniform(0.5, 5)
        return days_ago(self.repo, max(self.age, 1.0))

    def _newest(self):
        return max(
            next(icevirt.Repository.open(self.repo).ancestry(branch=each)).written_at
            for each in self.branches
        )

    def _scan(self, task):
        found = run_scan(task)
        for part in task.parts:
            for file in part.files:
                path = Path(file.url.removeprefix("file://"))
                key = file.url, file.last_modified
                assert key not in self.scanned or not is_good(path), f"scanned twice: {key}"
                self.scanned.add(key)
        return found

    def _watched(self, write):
        """Return a write that looks at what it replaces, and kills."""

        def put(storage, path, body, *args, **kwargs):
            if self.writes_left is not None and "leases" not in path:
                if not self.writes_left:
                    raise KilledError
                self.writes_left -= 1
            there = Path(self.repo, path)
            if not path.startswith(CHANGING) and there.is_file():
                assert content(path, there.read_bytes()) == content(path, bytes(body)), path
            return write(storage, path, body, *args, **kwargs)

        return put

    # -- what has to be true -----------------------------------------------------------------------

    def check(self):
        """Every branch reads as its files were taken, or names one that changed."""
        repo, theirs = icevirt.Repository.open(self.repo), official(self.repo)
        for branch in sorted(repo.list_branches()):
            tip = repo.lookup_branch(branch)
            assert tip in self.versions, branch
            self.read(self.versions[tip], theirs, branch=branch)
        if self.random.random() < 0.2:
            assert icevirt.check(self.repo).ok
            key = self.random.choice([*self.versions])
            self.read(self.versions[key], theirs, snapshot_id=key)

    def read(self, version, theirs, **which):
        problem = ""
        try:
            found = opened(self.repo, **which).load()
        except errors.IcevirtError as error:
            problem = str(error)
        if problem:
            assert not version.is_current, problem
            assert file_url(version.place) in problem
        else:
            assert {*found.data_vars} == {"packed", "plain", "number"}
            xr.testing.assert_equal(found, version.values[list(found.data_vars)])
        if version.twins:
            twins = opened(self.repo, layout="twin", **which)[sorted(version.twins)].load()
            xr.testing.assert_equal(twins, version.values[sorted(version.twins)])
        if version.stored:
            session = icevirt.Repository.open(self.repo).readonly_session(**which)
            for name in version.stored:
                assert ChunkType.virtual not in session.array_table(f"/{name}").kind
        session = theirs.readonly_session(**which)
        root = zarr.open_group(session.store, mode="r")
        assert ("notes/n" in root) == bool(version.notes)
        if version.notes:
            assert root["notes/n"][...] == version.notes
        if version.is_current and self.random.random() < 0.3:
            found = xr.open_zarr(session.store, consolidated=False, chunks=None).load()
            names = [f"{name}_twin" for name in version.twins]
            xr.testing.assert_equal(found.drop_vars(names), version.values)


def taken(path):
    with xr.open_dataset(path, engine="netcdf4") as found:
        return Taken(values=found.load(), written=written(path))
