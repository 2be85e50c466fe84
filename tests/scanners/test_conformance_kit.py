"""The conformance suite notices what is wrong with a scanner: every check has one that fails it."""

import os
from dataclasses import replace

import netCDF4
import numpy as np
import pytest

from icevirt.archive.scanned import Finding
from icevirt.errors import ScanError
from icevirt.model.chunks import ChunkTable
from icevirt.testing.samples import Expected, Sample
from icevirt.testing.scanners import ScannerConformance
from icevirt_scanners.netcdf3.scanner import NetCDF3Scanner


class Broken(NetCDF3Scanner):
    """A scanner whose scans are changed."""

    def __init__(self, change):
        self.change = change

    def scan(self, source, options):
        if isinstance(self.change, dict):  # other options than were asked for
            return super().scan(source, replace(options, **self.change))
        return self.change(super().scan(source, options), source, options)


def arrays(change):
    """Change every array."""
    return lambda scanned, *_: replace(scanned, arrays=tuple(map(change, scanned.arrays)))


def references(**columns):
    """Change columns of the references of arrays that have more than one."""

    def change(array):
        table = array.references
        if len(table) < 2:
            return array
        changed = {name: made(getattr(table, name)) for name, made in columns.items()}
        return replace(array, references=replace(table, **changed))

    return arrays(change)


COUNT = iter(range(10**9))
LEAKED = []


def with_random_attribute(array):
    values = {**array.attributes.values, "n": next(COUNT)}
    return replace(array, attributes=replace(array.attributes, values=values))


def leaking(scanned, *_):
    LEAKED.append(os.open("/dev/null", os.O_RDONLY))
    return scanned


def nosy(scanned, source, _):
    source.read(source.file.size + 1, 1)
    return scanned


def dropped_quietly(scanned, *_):
    return replace(scanned, arrays=scanned.arrays[:-1])


def named_by_file(scanned, *_):
    name = scanned.source.url[-5:]
    return arrays(lambda a: replace(a, dimension_names=(name,) * len(a.shape)))(scanned)


def strict_about_nothing(scanned, source, _):
    if len(source.read(0, 1 << 20)) % 7 == 3:
        raise KeyError("unexpected")
    return scanned


CASES = {
    "other values every time": (arrays(with_random_attribute), "same_every_time"),
    "a lambda inside": (
        lambda scanned, *_: replace(scanned, findings=(lambda: 3,)),
        "sent_home",
    ),
    "the name of the file": (named_by_file, "name_of_the_file"),
    "no root": (lambda scanned, *_: replace(scanned, groups=scanned.groups * 2), "nodes_have"),
    "a code with blanks": (
        lambda scanned, *_: replace(
            scanned, findings=(Finding(path="/", code="it is odd", message="x"),)
        ),
        "findings",
    ),
    "offsets behind the end": (references(offset=lambda o: o + np.uint64(1 << 40)), "fit_grids"),
    "lengths behind the end": (references(length=lambda n: n + np.uint64(1 << 62)), "fit_grids"),
    "chunks outside the grid": (references(index=lambda i: i + np.uint32(1)), "fit_grids"),
    "native chunks": (references(kind=lambda k: k * 0 + np.uint8(1)), "fit_grids"),
    "a chunk edge of 0": (
        arrays(lambda a: replace(a, chunk_shape=(0,) * len(a.shape))),
        "fit_grids",
    ),
    "another data type": (
        arrays(lambda a: replace(a, data_type="int64", fill_value=0)),
        "metadata",
    ),
    "a variable less": (dropped_quietly, "nothing_is_missing"),
    "shifted values": (references(offset=lambda o: o - np.uint64(1)), "values_are"),
    "the wrong byte order": (
        arrays(
            lambda a: replace(a, codecs=({"name": "bytes", "configuration": {"endian": "little"}},))
        ),
        "values_are",
    ),
    "no values": (
        arrays(lambda a: replace(a, references=ChunkTable.empty(len(a.shape)))),
        "values_are",
    ),
    "no attributes": (
        arrays(lambda a: replace(a, attributes=a.attributes.without("units"))),
        "dimensions_and_attributes",
    ),
    "other dimensions": (
        arrays(lambda a: replace(a, dimension_names=a.dimension_names[::-1])),
        "dimensions_and_attributes",
    ),
    "drop_variables ignored": ({"drop_variables": ()}, "left_out_by_name"),
    "variables ignored": ({"variables": ()}, "only_the_variables"),
    "nothing told of what is left out": (
        lambda scanned, *_: replace(scanned, left_out=()),
        "only_the_variables",
    ),
    "the group ignored": ({"group": "/"}, "group_becomes"),
    "concat_dim ignored": ({"concat_dim": None}, "joined_bring"),
    "labels of something else": (
        arrays(lambda a: replace(a, labels=a.labels and bytes(len(a.labels)))),
        "joined_bring",
    ),
    "the budget ignored": ({"max_native_bytes": 1 << 30}, "budget"),
    "reads behind the end": (nosy, "reads_stay"),
    "open files": (leaking, "open_files"),
    "errors of its own": (strict_about_nothing, "damaged"),
}


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("time", None)
        file.createDimension("x", 300)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(1, 5)
        file.createVariable("v", "f4", ("time", "x"))[:] = np.arange(1200).reshape(4, 300)
        file["v"].units = "K"
        file.createVariable("s", "i2", ("x",))[:] = np.arange(300)

    def expected():
        with netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            return {
                f"/{name}": Expected(
                    values=np.asarray(variable[...]),
                    attributes={key: variable.getncattr(key) for key in variable.ncattrs()},
                    dimensions=variable.dimensions,
                )
                for name, variable in file.variables.items()
            }

    return Sample(path=path, expected=expected)


def run(name, scanner, sample):
    """Run the one test of the suite whose name holds ``name``."""
    suite = ScannerConformance()
    (method,) = [each for each in dir(suite) if each.startswith("test_") and name in each]
    test = getattr(suite, method)
    names = test.__func__.__code__.co_varnames[1 : test.__func__.__code__.co_argcount]
    given = {"scanner": scanner, "sample": sample}
    if "scanned" in names:
        given["scanned"] = sample.scan(scanner)
    test(**{each: given[each] for each in names})


@pytest.mark.parametrize(("change", "name"), CASES.values(), ids=CASES)
def test_the_suite_fails_for(change, name, sample):
    run(name, NetCDF3Scanner(), sample)
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception, Exception)) as caught:
            run(name, Broken(change), sample)
        assert not isinstance(caught.value, ScanError)
    finally:
        while LEAKED:
            os.close(LEAKED.pop())
