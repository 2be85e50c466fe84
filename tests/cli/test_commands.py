"""The real command on real files: answers, streams, statuses, and errors that name the remedy."""

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from functools import wraps
from pathlib import Path

import numpy as np
import pytest
import zarr

import icevirt
from legacy.old_repositories import files, on_disk

ICEVIRT = Path(sys.executable).parent / "icevirt"


@pytest.mark.ci
@pytest.mark.spark
def test_a_program_reads_the_answer_from_stdout(tmp_path, nemo_files):
    """With a Spark that is started for it, in a process of its own."""
    ran = subprocess.run(
        [
            ICEVIRT,
            "build",
            *nemo_files,
            "repo",
            "--concat-dim",
            "time_counter",
            "--combine",
            "nested",
            "-o",
            "json",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["repo"] == f"{tmp_path.as_uri()}/repo"
    assert (report["files_scanned"], report["bad_files"]) == (3, [])
    phases = {"list", "scan", "plan", "write", "commit"}
    assert {line.partition(":")[0] for line in ran.stderr.splitlines()} <= phases, ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["repo"]


def test_what_was_built_is_shown(spark, run, nemo_files, repo_path):
    status, output, _ = run(
        "build", *nemo_files, repo_path, "--concat-dim", "time_counter", "--combine", "nested"
    )
    assert status == 0
    assert output.startswith(f"Built file://{repo_path}\n")
    status, output, _ = run("info", repo_path)
    assert status == 0
    assert "tos float32 (time_counter: 3, y: 330, x: 360)" in output
    status, output, _ = run("info", repo_path, "--output", "json")
    assert json.loads(output)["snapshots"] == 2


def test_a_repository_keeps_what_it_holds(spark, run, nemo_files, repo_path):
    assert run("build", nemo_files[0], repo_path, "--quiet") == (0, "", "")
    status, output, error = run("build", nemo_files[1], repo_path, "--quiet")
    assert (status, output) == (1, "")
    assert "--mode w" in error
    assert run("build", nemo_files[1], repo_path, "--quiet", "--mode", "w") == (0, "", "")


@pytest.mark.ci
def test_a_file_is_described(run, nemo_files):
    status, output, _ = run("scan", nemo_files[0], "--drop-variable", "tos")
    assert status == 0
    assert "nav_lat" in output
    assert "tos" not in output


BAD = {
    "a glob without files": (["build", "none*.nc", "repo"], "none*.nc"),
    "a file that is not there": (["scan", "none.nc"], "none.nc"),
    "text that is called .nc": (["scan", "text.nc"], "text.nc"),
    "a bucket": (["build", "s3://bucket/a.nc", "repo"], "s3://bucket/a.nc"),
    "no repository": (["info", "nowhere"], "nowhere"),
    "a path that holds something else": (["info", "full"], "full"),
}


@pytest.mark.parametrize(("words", "named"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_that_names_it(words, named, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.nc").write_text("this is no NetCDF file\n" * 500)
    Path("full").mkdir()
    Path("full/thesis.tex").touch()
    before = sorted(tmp_path.rglob("*"))
    status, output, error = run(*words)
    assert (status, output) == (3 if "s3://" in named else 1, "")
    assert error.startswith("icevirt: ")
    assert error.count("\n") == 1
    assert named in error
    assert sorted(tmp_path.rglob("*")) == before


ANSWERS = {
    "json": ["info", "repo", "--output", "json"],
    "text": ["info", "repo"],
    "the help": ["--help"],
    "the help of a command": ["info", "--help"],
    "the version": ["--version"],
}


@pytest.mark.ci
@pytest.mark.parametrize("words", ANSWERS.values(), ids=ANSWERS.keys())
def test_a_full_disk_under_stdout_is_one_line(words, tmp_path):
    icevirt.Repository.create(tmp_path / "repo")
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [ICEVIRT, *words],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    assert ran.returncode == 3
    output = "the answer cannot be written to stdout: No space left"
    assert ran.stderr.startswith(
        (f"icevirt: {output}", f'{{"error": {{"code": "storage", "what": "{output}')
    )
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("words", ANSWERS.values(), ids=ANSWERS.keys())
def test_a_reader_that_has_seen_enough_is_no_error_to_tell(words, tmp_path):
    icevirt.Repository.create(tmp_path / "repo")
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:
        ran = subprocess.run(
            [ICEVIRT, *words],
            check=False,
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    assert (ran.returncode, ran.stderr) == (1, "")


def test_another_error_of_the_system_is_a_bug_with_a_traceback(monkeypatch, run):
    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setitem(vars(icevirt), "info", wraps(icevirt.info)(fail))
    status, output, error = run("info", "repo")
    assert (status, output) == (70, "")
    assert error.startswith("Traceback")
    assert "Input/output" in error


@pytest.mark.ci
@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_build_that_a_signal_ends_says_so_and_leaves_nothing_running(
    tmp_path, nemo_files, number, status, word
):
    build = subprocess.Popen(
        [
            ICEVIRT,
            "build",
            *nemo_files,
            "repo",
            "--concat-dim",
            "time_counter",
            "--combine",
            "nested",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    first = build.stderr.readline()  # the scan has begun
    build.send_signal(number)
    output, error = build.communicate(timeout=120)  # the JVM and its workers hold these pipes
    assert first.startswith("scan")
    assert (build.returncode, output) == (status, "")
    assert error.endswith(f"icevirt: {word}\n")
    assert "icevirt: what is finished stays in file://" in error
    assert "Traceback" not in error
    assert not (tmp_path / "repo" / "repo").exists()


def test_check_finds_a_sound_repository_sound(run, tmp_path):
    icevirt.Repository.create(tmp_path / "repo")
    status, output, _ = run("check", tmp_path / "repo")
    assert status == 0
    assert "sound" in output
    status, output, _ = run("check", tmp_path / "repo", "-o", "json")
    assert (status, json.loads(output)["ok"], json.loads(output)["problems"]) == (0, True, [])


def test_check_names_what_is_damaged_and_fails(run, tmp_path):
    icevirt.Repository.create(tmp_path / "repo")
    next((tmp_path / "repo" / "transactions").iterdir()).unlink()
    status, output, _ = run("check", tmp_path / "repo")
    assert status == 1
    assert "transactions/1CECHNKREP0F1RSTCMT0" in output
    assert "1 problem" in output


def test_check_compares_chunks_and_the_status_tells_damage(run, tmp_path):
    path = tmp_path / "repo"
    for option, name in ((True, "ours"), (False, "random")):
        repo = icevirt.Repository.open_or_create(path, content_addressed_chunks=option)
        session = repo.writable_session("main")
        array = zarr.open_group(session.store, mode="a").create_array(
            name, shape=(4000,), chunks=(1000,), dtype="f8", compressors=None
        )
        array[:] = np.arange(4000.0)
        session.commit(name)
        if option:
            (damaged, *_) = (path / "chunks").iterdir()
    status, output, _ = run("check", path, "--chunks")
    assert status == 0
    assert "chunks   4 native chunks intact, 0 damaged, 4 unverifiable" in output
    assert "/random: 0 intact, 0 damaged, 4 unverifiable" in output
    assert "content_addressed_chunks=True" in output
    raw = bytearray(damaged.read_bytes())
    raw[100] ^= 1
    damaged.write_bytes(raw)
    assert run("check", path)[0] == 0, "without reading the bytes nobody can tell"
    status, output, _ = run("check", path, "--chunks")
    assert status == 1
    assert f"chunks/{damaged.name}: its bytes do not agree with its name" in output
    assert "/ours: 3 intact, 1 damaged, 0 unverifiable" in output
    status, output, _ = run("check", path, "--chunks", "-o", "json")
    document = json.loads(output)
    assert (status, document["ok"]) == (1, False)
    assert document["chunks"]["damaged"] == 1
    assert document["chunks"]["arrays"][1] == {
        "path": "/random",
        "intact": 0,
        "damaged": 0,
        "unverifiable": 4,
    }


def test_check_lists_what_earlier_versions_wrote(run, tmp_path):
    path = tmp_path / "repo"
    repo = icevirt.Repository.create(path, content_addressed_chunks=True)
    session = repo.writable_session("main")
    zarr.open_group(session.store, mode="a").create_array(
        "a", shape=(1000,), chunks=(1000,), dtype="f8", compressors=None
    )[:] = 1
    session.commit("x")
    shutil.rmtree(path / "icevirt")
    assert "1 of the intact chunks are in no list" in run("check", path, "--chunks")[1]
    assert "in no list" not in run("check", path, "--chunks", "--record")[1]
    assert "in no list" not in run("check", path, "--chunks")[1]
    assert run("check", path, "--record")[0] == 1


def test_an_upgrade_is_reported_before_and_after(run, tmp_path):
    path = tmp_path / "repo"
    fixture = Path(__file__).parents[2] / "fixtures" / "icechunk" / "v1-by-1.1.21.zip"
    with zipfile.ZipFile(fixture) as packed:
        packed.extractall(path)
    status, output, _ = run("upgrade", path, "--dry-run")
    assert (status, icevirt.Repository.open(path).spec_version) == (0, 1)
    assert "4 snapshots, 2 branches, 1 tag" in output
    assert "can be upgraded from V1 to V2" in output
    _, output, _ = run("upgrade", path, "--keep-v1-files")
    assert "upgraded from V1 to V2" in output
    assert "V1 files remain" in output
    status, output, _ = run("upgrade", path, "-o", "json")
    report = json.loads(output)
    assert (status, report["from_version"], report["v1_files_left"]) == (0, 2, False)
    assert "is already V2" in run("upgrade", path)[1]
    status, _, error = run("upgrade", tmp_path / "nothing")
    assert status == 1
    assert "no repository at this path" in error


def test_an_upgrade_of_a_format_before_v1_is_a_copy(run, tmp_path):
    found = files("E5")
    source = on_disk(found, tmp_path / "old")
    status, output, _ = run("check", source)
    assert status == 0
    assert "format generation E5 " in output
    assert "format generation E5 " in run("info", source)[1]
    status, _, error = run("upgrade", source)
    assert status == 1
    assert f"icevirt upgrade {source.as_uri()} {source.as_uri()}-v2" in error
    assert "warning" not in error
    for words in (["log", source], ["branch", "list", source], ["diff", source, "main"]):
        status, _, error = run(*words)
        assert (status, error.count("icevirt: warning: ")) == (0, 1), error
        assert "format generation E5 " in error
    status, output, _ = run("upgrade", source, tmp_path / "new", "--dry-run")
    assert (status, (tmp_path / "new").exists()) == (0, False)
    assert "can be upgraded to V2" in output
    status, output, _ = run("upgrade", source, tmp_path / "new")
    assert status == 0
    assert "6 snapshots, 2 branches, 2 tags" in output
    assert "s3://testbucket/can_read_old/=http://localhost:9000" in output
    assert "note     virtual chunk containers" in output
    lost = next(path for path in found if path.startswith("chunks/"))
    (source / lost).unlink()
    status, output, _ = run("upgrade", source, tmp_path / "less", "-o", "json")
    assert status == 1
    assert any(lost in line for line in json.loads(output)["lost"])
    assert run("upgrade", source, tmp_path / "x", "--keep-v1-files")[0] == 2
    assert run("upgrade", source, "--chunks", "reference")[0] == 2


@pytest.mark.spark
def test_a_plan_is_shown_as_text_and_as_json(run, nemo_files, spark, tmp_path):
    catalog = ["--catalog", tmp_path / "catalog"]
    words = ["plan", *nemo_files, "--concat-dim", "time_counter", "--combine", "nested", *catalog]
    status, output, _ = run(*words)
    assert status == 0
    assert "/tos" in output
    status, output, _ = run(*words, "-o", "json")
    document = json.loads(output)
    assert {a["path"]: a["mode"] for a in document["arrays"]}["/time_counter"] == "join"
    assert len(document["files"]) == 3
