"""A year of an archive that lives: after every commit the dataset is what its files are.

Files come, late or out of order, are corrected, touched, doubled, replaced by final ones, and go; two
appenders and one updater grow the dataset, overtake one another, and are killed. The long form
(`just living-year`) makes 200 steps.
"""

import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import official, opened, write_day
from icevirt import errors
from icevirt.api.dataset import scanning
from icevirt.planning.records import METADATA
from icevirt.storage.local import LocalStorage
from icevirt.tasks.scan import run_scan
from icevirt.tasks.write_manifests import run_write

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.ci]

STEPS = int(os.environ.get("ICEVIRT_LIVING_STEPS", "6"))
DAMAGED = 3000  # bytes of a file that is tried again each time
EPOCH = 1_700_000_000
RULES = {"fin_*.nc": "prv_*.nc"}


class KilledError(BaseException):
    """The process ended here."""


class Year:
    """An archive, its dataset, and what the dataset has to be."""

    def __init__(self, folder, executor, seed, monkeypatch):
        self.random = random.Random(seed)
        self.archive, self.repo = folder / "archive", str(folder / "repo")
        self.archive.mkdir()
        self.executor = executor
        self.days = list(range(1, 400))
        self.late = []
        self.values = {}  # what a file held when the dataset took it
        self.files = {}  # path by name: the files of the dataset
        self.absent = {}  # the days that read as missing
        self.left = {}  # what snapshots held
        self.scanned = set()
        self.killed = 0
        self.count = 0
        monkeypatch.setattr(scanning, "run_scan", self.scan)  # also by appends in this process
        for _ in range(2):
            self.write("fin")
        icevirt.append(
            str(self.archive), self.repo, concat_dim="time",
            combine_options={"duplicates": "version"},
        )  # fmt: skip
        for how in ({"chunks": {"time": 7, "x": 4}}, {"coarsen": {"y": 2, "x": 3}}):
            icevirt.materialize(
                self.repo, "packed", beside=True, **how,
                authorize_virtual_chunk_access=[str(self.archive)], executor=executor,
            )  # fmt: skip
        self.check()

    def scan(self, task):
        """Scan, and note what was scanned: nothing is scanned twice."""
        found = run_scan(task)
        for part in task.parts:
            for file in part.files:
                known = (file.url, file.size, file.last_modified)
                assert known not in self.scanned or file.size == DAMAGED, known
                self.scanned.add(known)
        return found

    # -- what happens in the archive -----------------------------------------------------------

    def name(self, kind, day, more=""):
        return self.archive / f"{kind}_{day:03}{more}.nc"

    def put(self, path, day):
        """Write a file with values that no other one has."""
        self.count += 1
        made = path.with_suffix(".tmp")
        write_day(made, day)
        with netCDF4.Dataset(made, "a") as file:
            file["packed"].set_auto_maskandscale(False)
            file["packed"][1, 2, 3] = self.count
        self.stamp(made)
        made.replace(path)
        return path

    def stamp(self, path):
        """Give a file a time of its own: references hold whole seconds."""
        self.count += 1
        os.utime(path, (EPOCH + 3 * self.count,) * 2)

    def next_day(self):
        if self.late and self.random.random() < 0.4:
            return self.late.pop(self.random.randrange(len(self.late)))
        day = self.days.pop(0)
        if self.random.random() < 0.2:
            self.late.append(day)
            day = self.days.pop(0)
        return day

    def write(self, kind):
        return self.put(*self.target(kind))

    def target(self, kind):
        day = self.next_day()
        return self.name(kind, day), day

    def new(self):
        for _ in range(self.random.choice([1, 1, 3])):
            self.write("fin")

    def provisional(self):
        self.write("prv")

    def final(self):
        """Write the final versions of some provisional files; some of these go, some stay."""
        for path in self.there("prv")[:2]:
            day = int(path.stem[4:])
            self.put(self.name("fin", day), day)
            if self.random.random() < 0.5:
                path.unlink()

    def corrected(self):
        for path in self.sample("fin", 1):
            self.put(path, int(path.stem[4:7]))

    def touched(self):
        for path in self.sample("fin", 1):
            self.stamp(path)

    def doubled(self):
        for path in self.sample("fin", 1):
            day = int(path.stem[4:7])
            if "_v" not in path.stem:
                self.put(self.name("fin", day, f"_v{self.count}"), day)

    def gone(self):
        for path in self.sample("fin", 1):
            if self.day_of(path) > 2 and len(self.of_day(self.day_of(path))) == 1:
                path.unlink()

    def back(self):
        for day in list(self.absent)[:1]:
            self.put(self.name("fin", day), day)

    def damaged(self):
        day = self.next_day()
        path = self.name("fin", day)
        path.write_bytes(self.random.randbytes(DAMAGED))
        self.stamp(path)
        self.late.append(day)  # it is written once more

    def day_of(self, path):
        return int(path.stem[4:7])

    def there(self, kind):
        return sorted(self.archive.glob(f"{kind}_*.nc"))

    def of_day(self, day):
        return [*self.archive.glob(f"*_{day:03}*.nc")]

    def sample(self, kind, count):
        good = [path for path in self.there(kind) if self.is_good(path)]
        return self.random.sample(good, min(count, len(good)))

    def is_good(self, path):
        return path.read_bytes()[:4] == b"\x89HDF"

    # -- what happens to the dataset -------------------------------------------------------------

    def step(self):
        deeds = [
            self.new, self.new, self.provisional, self.final, self.corrected, self.touched,
            self.doubled, self.gone, self.back, self.damaged,
        ]  # fmt: skip
        for deed in self.random.sample(deeds, 2):
            deed()
        if self.random.random() < 0.25:
            self.append()
        else:
            self.update()
        self.check()

    def append(self):
        """Append new files by name, as another process does."""
        path = self.write("fin")
        self.appended(path)
        self.take([path])

    def update(self):
        options = {
            "replaces": RULES,
            "vanished": self.random.choice(["missing", "remove"]),
            "max_vanished": "50%",
        }
        what = self.random.random()
        if what < 0.3:
            self.overtaken()
        elif what < 0.6:
            self.kill(options)
        report = icevirt.update(self.repo, **options)
        self.executor.after.clear()
        self.taken(options["vanished"])
        bad = [path for path in self.there("fin") if not self.is_good(path)]
        held = {each.url: each.error for each in report.held}
        assert sorted(held) == [f"file://{path}" for path in bad], held
        assert not report.bad_files
        again = icevirt.update(self.repo, **options)
        assert again.already_built, again
        assert (again.files_added, again.files_corrected, again.files_vanished) == (0, 0, 0)

    def overtaken(self):
        """Let two appenders commit at the same time, while the update runs."""
        left = [1]

        def overtake():
            if left:
                left.clear()
                # not the days that the update has seen as damaged files
                days = [self.days.pop(0) for _ in range(2)]
                paths = [self.put(self.name("fin", day), day) for day in days]
                with ThreadPoolExecutor(2) as pool:
                    reports = [*pool.map(self.appended, paths)]
                assert [report.files_appended for report in reports] == [1, 1]
                self.take(paths)

        self.executor.after[self.random.choice([scanning.run_scan, run_write])] = overtake

    def appended(self, path):
        return icevirt.append(str(path), self.repo, authorize=self.archive, executor=self.executor)

    def kill(self, options):
        """Begin the update and end it at some write to the storage."""
        before, left = self.tip(), [self.random.randrange(30)]
        known = {*self.scanned}

        def counted(write):
            def put(storage, path, *args, **kwargs):
                if left[0] == 0 and "leases" not in path:
                    raise KilledError
                left[0] -= "leases" not in path
                return write(storage, path, *args, **kwargs)

            return put

        with pytest.MonkeyPatch.context() as patch:
            for name in ("put", "put_if"):
                patch.setattr(LocalStorage, name, counted(getattr(LocalStorage, name)))
            try:
                icevirt.update(self.repo, **options)
            except KilledError:
                self.killed += 1
                self.scanned = known  # parts that were not finished are scanned once more
        if self.tip() == before:
            self.read_back(before)

    def taken(self, vanished):
        """Follow the rules: what the dataset is made of after an update."""
        gone = [path for path in self.files if not path.exists()]
        finals = {path.name[4:] for path in self.there("fin") if self.is_good(path)}
        for path in gone:
            del self.files[path]
            is_replaced = path.name.startswith("prv") and path.name[4:] in finals
            if vanished == "missing" and not is_replaced:
                self.absent[self.day_of(path)] = self.values[path]
        for path in [*self.there("fin"), *self.there("prv")]:
            if self.is_good(path):
                self.take([path])
        for path in [*self.files]:
            if path.name.startswith("prv") and path.name[4:] in finals:
                del self.files[path]

    def take(self, paths):
        for path in paths:
            with xr.open_dataset(path, engine="netcdf4") as found:
                self.values[path] = found.load()
            self.files[path] = path.stat().st_mtime_ns
            self.absent.pop(self.day_of(path), None)

    # -- what has to be true -----------------------------------------------------------------------

    def expected(self):
        if not self.files:
            self.take(self.there("fin"))
        by_day = {}
        for path in sorted(self.files, key=lambda path: (len(path.name), path.name)):
            by_day[self.day_of(path)] = self.values[path]
        for day, values in self.absent.items():
            by_day[day] = values.assign(
                {name: values[name] * np.nan for name in ("packed", "time_bnds")}
            )
        some = [by_day[day] for day in sorted(by_day)]
        return xr.concat(some, "time", data_vars="minimal", coords="minimal", compat="override")

    def tip(self):
        return icevirt.Repository.open(self.repo).lookup_branch("main")

    def check(self):
        expected = self.expected()
        if any(
            not path.exists() or path.stat().st_mtime_ns != at for path, at in self.files.items()
        ):
            return  # an append does not look at other files, and readers refuse those
        found = opened(self.repo, layout="own").load()
        xr.testing.assert_equal(found, expected[list(found.data_vars)])
        xr.testing.assert_equal(opened(self.repo, layout="twin").load(), found)
        means = found["packed"].coarsen(y=2, x=3, boundary="pad").mean()
        coarse = opened(self.repo, level=1)["packed"]
        np.testing.assert_allclose(coarse.values, means.values, rtol=1e-6)
        if self.tip() not in self.left:
            self.left[self.tip()] = found
        if len(self.left) % 5 == 0:
            session = official(self.repo).readonly_session("main")
            theirs = xr.open_zarr(session.store, consolidated=False, chunks=None).load()
            theirs = theirs.drop_vars("packed_twin")
            xr.testing.assert_allclose(theirs, found)  # zarr unpacks to wider floats

    def read_back(self, snapshot_id):
        """Read an old snapshot: what it held, or an error that names a file."""
        try:
            found = opened(self.repo, snapshot_id=snapshot_id).load()
        except errors.IcevirtError as error:
            output = str(error)
        else:
            output = ""
        if output:
            assert str(self.archive) in output
            return False
        if snapshot_id in self.left:  # it was readable when it was committed
            xr.testing.assert_equal(found, self.left[snapshot_id])
        return True


@pytest.mark.parametrize("seed", range(int(os.environ.get("ICEVIRT_LIVING_YEARS", "1"))))
def test_the_dataset_is_what_its_archive_is_after_every_commit(
    seed, tmp_path, in_process, monkeypatch
):
    year = Year(tmp_path, in_process, seed, monkeypatch)
    for _ in range(STEPS):
        year.step()
    year.update()
    year.check()
    assert year.read_back(year.tip())
    history = [each.id for each in official(year.repo).ancestry(branch="main")]
    assert {*year.left} <= {*history}
    for each in history[:-1]:  # but the initial one, which is empty
        year.read_back(each)
    builds = [
        (each.metadata[METADATA]["build_id"], each.metadata[METADATA]["listing"])
        for each in official(year.repo).ancestry(branch="main")
        if METADATA in each.metadata and not each.message.startswith("Materialize")
    ]
    assert len(builds) == len(set(builds))
    assert not Path(year.repo, "icevirt", "builds").exists() or year.killed
    shutil.rmtree(year.repo)
