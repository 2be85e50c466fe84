"""Write docs/writers.md: what programs write, what icevirt makes of it, and what xarray says.

    python docs/make_writers.py            # all writers of writers.toml; `just writers`
    python docs/make_writers.py Iris GMT   # some, by the beginnings of their names

Outputs of writers that do something odd are kept in fixtures/writers.zip (`keep` in writers.toml).

Packages of PyPI and npm are installed into a temporary folder, by `uv` and `npm`. Programs of
Debian have to be on the PATH: rows whose programs are not there are left out, and named.
"""

from __future__ import annotations

import argparse
import datetime as dt
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import xarray as xr

HERE = Path(__file__).parent
KEPT = HERE.parent / "fixtures" / "writers.zip"
HEAD = """\
# What programs write

Find the program that wrote your files, and do what the last column says. `'FILES'` is the pattern
of your files, in quotes, like `'archive/*.nc'`. `REPO` is the directory or URL that the build
makes. The build, and later `icevirt info REPO`, print the call that opens the dataset.

| your program is not in the table | what to do |
| --- | --- |
| MATLAB, `nccreate` and `ncwrite` | see "Octave, netcdf package", with the same functions |
| MATLAB, `save -v7.3` | see "matio" and "hdf5storage", which write this format |
| MATLAB, `save` without `-v7.3` | not HDF5, a build refuses it: save again with `-v7.3` |
| IDL | see "GDL", which runs programs of IDL |
| WRF, CMOR, other models, satellites | find a similar archive: [tried ones](archives.md) |
| a program that writes GRIB 2 | build the GRIB files themselves: [GRIB 2](grib.md) |
| any other | `icevirt plan 'FILES'` says what a build would do, and writes nothing |

**Order of dimensions.** MATLAB, Octave, R, Scilab, IDL and Fortran count the first dimension
fastest. icevirt, like xarray, shows their dimensions in the reverse order; the rows say which is
which.

**Names of dimensions.** Plain HDF5 files have none. Such dimensions are called `phony_dim_0` and so
on, as in xarray; the option `--rename phony_dim_0=time` gives one a name.

**Names of files.** Where nothing in the files orders them, `--labels` takes numbers or dates from
their names, into a new dimension: `--labels 'run_{{member:d}}.h5'` for files like `run_7.h5`,
`--labels 'grid_{{time:%Y-%m-%d}}.nc'` for files like `grid_2000-01-31.nc`. The name of the
dimension is yours to choose. The error prints a pattern that fits your names.

**Groups.** Where variables are in groups, `xr.open_datatree` opens all groups, and
`xr.open_dataset` with `group=` opens one.

**How the table was made.** Each program wrote three small files. icevirt built one of them and,
where they belong together along a dimension, all three. "equal" means that all values are those
that xarray reads from the files; "xarray:" names the error with which xarray itself does not open
them. Where an error printed a command, that command ran next, and the row shows its options. "-"
means not tried. The four largest variables are shown: name, type, shape, and chunks with filters
("contiguous": no chunks). NetCDF-3 files show dimensions in place of lengths. `just writers` makes
this page anew from `docs/writers.toml`.

Run on {date} with icevirt {icevirt}, h5py {h5py} (HDF5 {hdf5}), netCDF4-python {netcdf4}
(netCDF-C {netcdfc}), xarray {xarray}.

| writer | file | variables | fill values, text, times | one file | three files | what to do |
| --- | --- | --- | --- | --- | --- | --- |
"""
MAGIC = {b"CDF\x01": "CDF-1", b"CDF\x02": "CDF-2", b"CDF\x05": "CDF-5"}
PYTHON = """\
import numpy as np
n = {n}; F = "{file}"
T = np.array([{t0}, {t1}]); V = np.arange(24, dtype="f4").reshape(2, 3, 4) + 100 * n
"""
_KINDS = {
    h5py.h5t.BITFIELD: "bit field",
    h5py.h5t.REFERENCE: "reference",
    h5py.h5t.VLEN: "variable-length sequence",
    h5py.h5t.TIME: "HDF5 time",
}
DECODING: Any = {
    "decode_times": xr.coders.CFDatetimeCoder(time_unit="us"),
    "decode_timedelta": False,
}
PYTHONS = ("--python", f"{sys.version_info.major}.{sys.version_info.minor}")
MOST = 4  # variables of a row
REMEDIES = {
    "--drop-variable": "this leaves out the tables that the error names; read them with the program"
    " that wrote them",
    "--labels": "`{{member:d}}` stands for the number in each name, here `0{suffix}`, and the"
    ' dataset gets a dimension `member` with these numbers; other names: "Names of files" above',
    "--concat-dim": "this names the dimension along which the files follow one another",
    "--on-mismatch eras": "the files are packed in different ways, so each way gets a group, and"
    ' `eras="concat"`, in the call that the build prints, opens all as one dataset',
}


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A row of writers.toml."""

    name: str
    source: str  # Debian, PyPI, npm
    packages: tuple[str, ...]
    program: str
    run: str
    suffix: str
    file: str
    keep: bool
    along: str | None
    note: str
    instead: str

    @classmethod
    def of(cls, name: str, entry: dict[str, Any]) -> Writer:
        """Read an entry of the file."""
        source, _, packages = entry["from"].partition(": ")
        return cls(
            name=name,
            source=source,
            packages=tuple(packages.split()),
            program=entry.get("program", ""),
            run=entry.get("run", "python {program}"),
            suffix=entry.get("suffix", ".py" if source == "PyPI" else ".sh"),
            file=entry.get("file", "{n}.nc"),
            keep=entry.get("keep", False),
            along=entry.get("along"),
            note=" ".join(entry.get("note", "").split()),
            instead=entry.get("instead", ""),
        )


# -- running a writer ------------------------------------------------------------------------------


def write(writer: Writer, folder: Path) -> list[Path]:
    """Write three files. Raises ``RuntimeError`` with what the program printed."""
    if writer.source == "npm":
        _run(["npm", "install", "--silent", "--prefix", str(folder), *writer.packages], folder)
    return [_write(writer, folder, number) for number in range(3)]


def _write(writer: Writer, folder: Path, number: int) -> Path:
    words = _words(writer, number)
    program = folder / f"program{number}{writer.suffix}"
    text = writer.program.lstrip("\n")
    program.write_text(_filled((PYTHON if writer.source == "PyPI" else "") + text, words))
    command = shlex.split(_filled(writer.run, words | {"program": program.name}))
    if writer.source == "PyPI":
        asked = [word for each in writer.packages for word in ("--with", each)]
        command = ["uv", "run", "-q", "--no-project", *PYTHONS, *asked, *command]
    _run(command, folder)
    return folder / words["file"]


def _words(writer: Writer, number: int) -> dict[str, str]:
    values = [str(100 * number + at) for at in range(24)]
    words = {
        "n": str(number),
        "t0": str(2 * number),
        "t1": str(2 * number + 1),
        "day": str(2 * number + 1),
        "day1": str(2 * number + 2),
        "v": ", ".join(values),
        "half": ", ".join(values[:12]),
        "rows": "\\n".join(" ".join(values[at : at + 4]) for at in range(0, 12, 4)),
    }
    return words | {"file": _filled(writer.file, words)}


def _filled(text: str, words: dict[str, str]) -> str:
    """Replace ``{word}``; braces of programs stay."""
    return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), text)


def _run(command: list[str], folder: Path, seconds: int = 900) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {(done.stderr or done.stdout)[-600:]}")
    return done.stdout + done.stderr


def version_of(writer: Writer, folder: Path) -> str:
    """Return the versions of what wrote the files."""
    if writer.source != "Debian":
        return ", ".join(each.replace("==", " ").replace("@", " ") for each in writer.packages[:2])
    package = writer.packages[0]
    query = ["dpkg-query", "-W", "-f", "${Version}", package]
    upstream = re.sub(r"^\d+:|[-+].*$", "", _run(query, folder))
    return f"{package} {upstream}"


# -- what is in a file -----------------------------------------------------------------------------


def kind_of(path: Path) -> str:
    """Return the format of a file."""
    begin = path.read_bytes()[:4]
    if begin in MAGIC:
        return MAGIC[begin]
    with h5py.File(path) as file:
        block = file.userblock_size
        scales = "_NCProperties" in file.attrs or any(
            isinstance(each, h5py.Dataset) and each.is_scale for each in file.values()
        )
        classic = "_nc3_strict" in file.attrs
    said = "NetCDF-4, classic model" if classic else "NetCDF-4" if scales else "HDF5"
    return f"{said}, user block of {block} bytes" if block else said


def described(path: Path) -> tuple[str, str]:
    """Return the variables of a file, and its fill values, text and times, in words."""
    if path.read_bytes()[:3] == b"CDF":
        return _of_netcdf3(path)
    return _of_hdf5(path)


def _of_netcdf3(path: Path) -> tuple[str, str]:
    variables, more = [], []
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        for name, each in _largest({k: (v.size, v) for k, v in file.variables.items()}):
            variables.append(f"{name} {each.dtype}({', '.join(each.dimensions)})")
        for name, each in file.variables.items():
            more += _meaning_of(name, {key: each.getncattr(key) for key in each.ncattrs()})
        more += [f"{name} is unlimited" for name, d in file.dimensions.items() if d.isunlimited()]
    return ", ".join(variables), "; ".join(dict.fromkeys(more))


def _of_hdf5(path: Path) -> tuple[str, str]:
    variables, more, found = [], [], {}

    def visit(name: str, each: Any) -> None:
        if isinstance(each, h5py.Dataset) and not _is_dimension_alone(each):
            found[name] = (each.size or 0, each)

    with h5py.File(path) as file:
        file.visititems(visit)
        more += [f"{name} is unlimited" for name in _unlimited(file)]
        for name, each in _largest(found):
            variables.append(f"{name} {_type(each)}{_extent(each)} {_layout(each)}".strip())
        for name, (_, each) in found.items():
            more += _meaning_of(name, {key: _value(each, key) for key in each.attrs})
            if _is_text(each):
                more.append(f"{name}: {_type(each)}")
    if len(found) > MOST:
        variables.append(f"{len(found) - MOST} more")
    return ", ".join(variables), "; ".join(dict.fromkeys(more))


def _is_dimension_alone(each: Any) -> bool:
    """Say whether netCDF wrote a dataset for a dimension that has no variable."""
    return str(_plain(each.attrs.get("NAME", ""))).startswith("This is a netCDF dimension but not")


def _unlimited(file: Any) -> list[str]:
    """Return the unlimited dimensions of the root group."""
    scales = [each for each in file.values() if isinstance(each, h5py.Dataset) and each.is_scale]
    return [each.name.strip("/") for each in scales if None in (each.maxshape or ())]


def _value(each: Any, key: str) -> Any:
    try:
        return each.attrs[key]
    except (TypeError, OSError):  # a type that h5py does not know
        return None


def _largest(found: dict[str, tuple[int, Any]]) -> list[tuple[str, Any]]:
    first = sorted(found, key=lambda name: -found[name][0])[:MOST]
    return [(name, found[name][1]) for name in found if name in first]


def _is_text(each: Any) -> bool:
    return each.id.get_type().get_class() == h5py.h5t.STRING


def _type(each: Any) -> str:
    held = each.id.get_type()
    kind = held.get_class()
    if kind == h5py.h5t.STRING:
        is_variable = held.is_variable_str()
        return "variable-length string" if is_variable else f"string of {held.get_size()} bytes"
    if kind in {h5py.h5t.ENUM, h5py.h5t.COMPOUND}:
        names = [held.get_member_name(at).decode() for at in range(held.get_nmembers())]
        what = "enumeration" if kind == h5py.h5t.ENUM else "compound"
        return f"{what} ({', '.join(names[:4])})"
    if kind in _KINDS:
        return _KINDS[kind]
    return str(each.dtype.newbyteorder("=")) + (" big-endian" if each.dtype.str[0] == ">" else "")


def _extent(each: Any) -> str:
    return "" if each.shape is None else f"({', '.join(map(str, each.shape))})"


def _layout(each: Any) -> str:
    plist = each.id.get_create_plist()
    match plist.get_layout():
        case h5py.h5d.COMPACT:
            return "compact"
        case h5py.h5d.CONTIGUOUS:
            return "contiguous"
        case h5py.h5d.VIRTUAL:
            return "virtual"
    names = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset",
             32000: "lzf", 32001: "blosc", 32015: "zstd"}  # fmt: skip
    filters = [plist.get_filter(at) for at in range(plist.get_nfilters())]
    chain = [
        f"{names.get(code, code)} {values[0]}" if code == 1 else str(names.get(code, code))
        for code, _, values, _ in filters
    ]
    return " ".join(["chunks", "x".join(map(str, each.chunks)), ", ".join(chain)]).strip()


def _meaning_of(name: str, attrs: dict[str, Any]) -> Iterator[str]:
    """Yield what attributes say of missing values, packing and times."""
    for key in ("_FillValue", "missing_value", "scale_factor"):
        if attrs.get(key) is not None:
            value = np.atleast_1d(np.asarray(attrs[key]))
            yield f"{name}:{key} {value.dtype if value.dtype.kind != 'O' else 'text'} {value[0]}"
    units = attrs.get("units")
    units = units[0] if isinstance(units, np.ndarray) and units.size == 1 else units
    units = units.decode() if isinstance(units, bytes) else units
    if isinstance(units, str) and re.search(r" since | as %", units):
        calendar = attrs.get("calendar")
        yield f"{name}: '{units}'" + ("" if calendar is None else f", calendar {_plain(calendar)}")


def _plain(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# -- what icevirt and xarray make of it ------------------------------------------------------------


def build(files: list[Path], folder: Path) -> str:
    """Build files as a newcomer does, and return what came of it."""
    shutil.rmtree(folder / "repo", ignore_errors=True)
    sources = folder / "in"
    shutil.rmtree(sources, ignore_errors=True)
    sources.mkdir()
    for each in files:
        shutil.copy2(each, sources)
    pattern = f"in/*{files[0].suffix}"
    words = ["build", pattern, "repo"]
    steps: list[str] = []
    for _ in range(4):
        done = _icevirt(words, folder)
        if not done.returncode:
            return f"{_compare(sorted(sources.iterdir()), folder, words)}{_after(steps)}"
        said = _first(done.stderr)
        if said == "a task failed":  # a fault of this machine is no property of the files
            raise RuntimeError(done.stderr[-600:])
        again = _proposed(done.stderr)
        if again is None or again == words:
            return f"refused: {said}{_after(steps)}"
        words = again
        steps.append(shlex.join(words[3:]) or shlex.join(words))
    return f"refused: {said}{_after(steps)}"


def _after(steps: list[str]) -> str:
    return f" with `{steps[-1]}`, which the error prints".replace("|", "\\|") if steps else ""


def _icevirt(words: list[str], folder: Path) -> Any:
    command = [sys.executable, "-m", "icevirt", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _first(error: str) -> str:
    found = [each for each in error.splitlines() if each.startswith("icevirt: ")]
    return (found or ["?"])[0].removeprefix("icevirt: ").partition(" (")[0]


def _proposed(error: str) -> list[str] | None:
    for line in error.splitlines():
        if line.startswith("  ") and "icevirt build" in line:
            return shlex.split(line[line.index("icevirt build") :], comments=True)[1:]
    return None


def _compare(files: list[Path], folder: Path, words: list[str]) -> str:
    """Compare all values of what was built with those that xarray reads, or else h5py."""
    said, decoding = "equal", DECODING
    try:
        held = [_by_xarray(_opened(each, decoding)) for each in files]
    except (ValueError, OverflowError):  # times that xarray does not decode
        decoding = {"decode_times": False}
        held = [_by_xarray(_opened(each, decoding)) for each in files]
    except TypeError as error:  # types that h5py has no dtype for, which stop xarray
        said, decoding = (
            f"equal to what h5py reads (xarray: {type(error).__name__})",
            {"decode_cf": False},
        )
        held = [_by_h5py(each) for each in files]
    how: Any = {"authorize_virtual_chunk_access": [f"{(folder / 'in').as_uri()}/"], **decoding}
    if "eras" in words:
        how["eras"] = "concat"
    ours = _by_xarray(xr.open_datatree(folder / "repo", engine="icevirt", **how))
    shared = [path for path in held[0] if path in ours]
    for path in shared:
        theirs = _joined([each[path] for each in held])
        if not any(_equal(ours[path], each) for each in theirs):
            return f"DIFFERENT: {path}"
    absent = [path for path in held[0] if path not in ours]
    if absent and not any(f in " ".join(words) for f in ("--labels", "--concat-dim")):
        said += f", without {', '.join(absent[:3])}"
    return said if shared else "nothing to compare"


def _by_xarray(tree: xr.DataTree) -> dict[str, Any]:
    return {
        f"{node.path.rstrip('/')}/{name}".strip("/"): variable.to_numpy()
        for node in tree.subtree
        for name, variable in node.variables.items()
    }


def _by_h5py(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def visit(name: str, each: Any) -> None:
        with suppress(TypeError, AttributeError):  # groups, and types that numpy has not
            is_text = h5py.check_string_dtype(each.dtype) is not None
            if is_text or not each.dtype.hasobject:
                found[name] = np.asarray(each.asstr()[...] if is_text else each[...])

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def _joined(parts: list[Any]) -> Iterator[Any]:
    """Yield what several files may make of a variable: one of equal ones, or all along an axis."""
    if all(_equal(part, parts[0]) for part in parts):
        yield parts[0]
    if len(parts) > 1 and len({part.ndim for part in parts}) == 1:
        yield np.stack(parts)
        for axis in range(parts[0].ndim):
            try:
                yield np.concatenate(parts, axis)
            except ValueError:
                continue


def _equal(mine: Any, theirs: Any) -> bool:
    if mine.shape != theirs.shape:
        return False
    if mine.dtype.kind in "OSU" or theirs.dtype.kind in "OSU":
        return [_plain(each) for each in mine.flat] == [_plain(each) for each in theirs.flat]
    return bool(np.array_equal(mine, theirs, equal_nan=mine.dtype.kind in "fc"))


def _opened(path: Path, decoding: Any) -> xr.DataTree:
    if kind_of(path).startswith(("CDF", "NetCDF-4")):  # h5netcdf pads short variables with zeros
        with suppress(RuntimeError):  # of filters that netCDF-C has not
            return xr.open_datatree(path, engine="netcdf4", **decoding).load()
    return xr.open_datatree(path, engine="h5netcdf", phony_dims="access", **decoding)


def xarrays_word(files: list[Path], along: str | None) -> str:
    """Return how xarray fails to open the files, or an empty text."""
    try:
        for each in files[:1]:
            xr.open_dataset(each).close()
        if along is not None and not along.startswith(("phony", "member")):
            how: Any = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
            xr.open_mfdataset(
                files, combine="nested", concat_dim=along, combine_attrs="override", **how
            ).close()
    except Exception as error:  # noqa: BLE001 - whatever it is, the page says it
        return f"; xarray: {type(error).__name__}"
    return ""


# -- the page --------------------------------------------------------------------------------------


def row(writer: Writer, folder: Path) -> str:
    """Run a writer and return its row."""
    files = write(writer, folder)
    if writer.keep:
        keep(writer.name, files[: 2 if writer.along else 1])
    variables, more = described(files[0])
    one = build(files[:1], folder) + xarrays_word(files[:1], None)
    three = build(files, folder) + xarrays_word(files, writer.along) if writer.along else "-"
    cells = [
        f"{writer.name}<br>{version_of(writer, folder)}",
        kind_of(files[0]),
        variables,
        more or "none",
        one,
        three,
        "; ".join(
            filter(
                None,
                [writer.instead or advice(one, three), how_to_open(files[0], one), writer.note],
            )
        ),
    ]
    clean = [" ".join(each.split()) for each in cells]
    return f"| {' | '.join(clean)} |"


def keep(name: str, files: list[Path]) -> None:
    """Keep outputs of a writer for the tests, instead of those that are there."""
    held = {}
    if KEPT.exists():
        with zipfile.ZipFile(KEPT) as there:
            held = {each: there.read(each) for each in there.namelist()}
    held = {each: data for each, data in held.items() if not each.startswith(f"{name}/")}
    held |= {f"{name}/{each.name}": each.read_bytes() for each in files}
    with zipfile.ZipFile(KEPT, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for each in sorted(held):
            archive.writestr(zipfile.ZipInfo(each), held[each], zipfile.ZIP_DEFLATED)


def advice(one: str, three: str) -> str:
    """Return what a user with such files has to do."""
    if "refused" in one + three:
        return "store what the error names, or leave it out"
    options = [each for cell in (three, one) for each in re.findall(r"with `(--[^`]*)`", cell)]
    if options:
        suffix = (re.search(r"\}(\.\w+)", options[0]) or [".h5"] * 2)[1]
        said = [
            text.format(suffix=suffix) for option, text in REMEDIES.items() if option in options[0]
        ]
        files = "FILE" if three == "-" else "'FILES'"
        command = f"`icevirt build {files} REPO {options[0]}`"
        return f"add what the error prints: {command}; {'; '.join(said)}"
    if three == "-":
        return (
            "one file: `icevirt build FILE REPO`; several files were not tried:"
            " `icevirt plan 'FILES'` says whether and how they combine"
        )
    return "no option: `icevirt build 'FILES' REPO`"


def how_to_open(path: Path, one: str) -> str:
    """Return what opens variables that are in groups."""
    if kind_of(path).startswith("CDF") or ", without" in one:
        return ""
    depths: set[bool] = set()

    def visit(name: str, each: Any) -> None:
        if isinstance(each, h5py.Dataset):
            depths.add("/" in name)

    with h5py.File(path) as file:
        file.visititems(visit)
    if True not in depths:
        return ""
    which = "some of its" if False in depths else "its"
    return f"{which} variables are in groups: open it with `xr.open_datatree`"


def head() -> str:
    """Return what stands above the rows."""
    import icevirt

    return HEAD.format(
        date=dt.date.today().isoformat(),  # noqa: DTZ011 - of this machine
        icevirt=icevirt.__version__,
        h5py=h5py.__version__,
        hdf5=h5py.version.hdf5_version,
        netcdf4=netCDF4.__version__,
        netcdfc=netCDF4.__netcdf4libversion__,
        xarray=xr.__version__,
    )


def put(rows: list[str], names: list[str]) -> None:
    """Put rows into the page, in the order of the names, in the place of those that it has."""
    page = HERE / "writers.md"
    lines = [*page.read_text().splitlines(), *rows] if page.exists() else rows
    by_name = {line[2:].partition("<br>")[0]: line for line in lines if "<br>" in line}
    page.write_text(head() + "".join(f"{by_name[name]}\n" for name in names if name in by_name))


def main() -> None:
    """Run writers, and write what came of it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of names; all writers by default")
    names = parser.parse_args().names
    entries = tomllib.loads((HERE / "writers.toml").read_text())
    writers = [Writer.of(name, each) for name, each in entries.items()]
    chosen = [each for each in writers if not names or each.name.startswith(tuple(names))]
    rows, failed = [], []
    for writer in chosen:
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows.append(row(writer, Path(folder)))
                sys.stdout.write(f"{rows[-1]}\n")
                sys.stdout.flush()
            except Exception as error:  # noqa: BLE001 - the others are worth a row
                failed.append(writer.name)
                sys.stderr.write(f"{writer.name}: {type(error).__name__}: {error}\n")
    put(rows, list(entries))
    if failed:
        sys.exit(f"not run: {', '.join(failed)}")


if __name__ == "__main__":
    main()
