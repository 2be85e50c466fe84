"""Write archives, and look at what is made of them and how often they are opened."""

from collections import Counter

import netCDF4
import numpy as np

import icevirt
from icevirt.ids import ObjectId12
from icevirt.objects.source import LocalSource
from icevirt.repo.assets import Assets
from icevirt.storage.constructors import storage_of


def count_opens(monkeypatch):
    """Count how often this process opens each source file, by name."""
    found, init = Counter(), LocalSource.__init__

    def counted(self, path, *args, **options):
        found[str(path).rsplit("/", 1)[-1]] += 1
        init(self, path, *args, **options)

    monkeypatch.setattr(LocalSource, "__init__", counted)
    return found


def write(path, member, first, steps, *, kind, ny=6, nx=20, lat=0.0):
    """Write a file of a member and some steps; its data are contiguous."""
    with netCDF4.Dataset(path, "w", format=kind) as file:
        file.createDimension("time", steps)
        file.createDimension("bnds", 2)
        file.createDimension("y", ny)
        file.createDimension("x", nx)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2001-01-01"
        time[:] = np.arange(first, first + steps)
        bounds = file.createVariable("time_bnds", "f8", ("time", "bnds"))
        bounds[:] = np.arange(first, first + steps)[:, None] + [[0.0, 1.0]]
        file.createVariable("y", "f8", ("y",))[:] = np.arange(ny) + lat
        file.createVariable("member", "i4", ())[...] = member
        mask = file.createVariable("mask", "i4", ("y", "x"), fill_value=-1)
        mask[:] = np.arange(ny * nx).reshape(ny, nx) % 3
        values = file.createVariable("v", "f4", ("time", "y", "x"), fill_value=-1.0)
        start = 1000 * member + 10 * first
        values[:] = np.arange(steps * ny * nx).reshape(steps, ny, nx) + start
    return str(path)


def content(repo):
    """Return the nodes of a repository, whose manifests are named by what they hold."""
    tip = icevirt.Repository.open(repo).lookup_branch("main")
    nodes = Assets(storage_of(repo)).snapshot(ObjectId12.parse(tip)).nodes
    return {
        node.path: (node.user_data, getattr(node, "shape", None), getattr(node, "manifests", None))
        for node in nodes
    }
