"""Each block of shell commands on a page is run, or parses and says where it can run."""

import re
import shutil
import urllib.request
from pathlib import Path

import netCDF4
import numpy as np
import obstore
import pytest
import xarray as xr
from obstore.store import from_url

import icevirt
from builds.support import write_days
from docs import shell
from icevirt.display.explanations import explanations
from legacy import old_repositories

HERE = {"README.md", "combining.md", "errors.md", "steps.md", "explanations.md"}
"""Pages whose blocks of ``bash`` run in this module."""

ELSEWHERE = {
    "bucket-archive.md": "docs/test_tutorials.py",
    "coming-from.md": "docs/test_interop_pages.py",
    "moving.md": "docs/test_moving_page.py",
    "operating.md": "docs/test_operating_page.py",
    "performance.md": "docs/test_tutorials.py",
    "web-page.md": "readers/test_web_page.py",
}
"""Tests that run the blocks of ``bash`` of other pages, among their Python."""

IN_BUCKETS = {"credentials.md", "growing-archive.md", "living.md", "scale.md"}
"""Pages whose blocks of ``bash`` run in this module, on a server with buckets of these names."""

LANGUAGES = {"python", "py", "bash", "sh", "text", "json", "toml", "dockerfile", "javascript", "r"}
ABSENT = re.compile(
    r"\b(?!s3://(?:archive|mine)/)[a-z0-9]+://|spark-submit|gcloud|pip install|AWS_PROFILE|npm"
)
"""What a machine of the tests does not reach or have; it has buckets of these two names."""


PAGES = [page for page in shell.PAGES if shell.blocks(page)]


def shown(path, *languages):
    return [text for language, text in shell.blocks(path) if language in languages]


def commands(path):
    """Return the calls of icevirt in the blocks of ``bash`` of a page, block by block."""
    return [shell.calls(text) for text in shown(path, "bash")]


# -- no block is left out ---------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_block_has_a_language_that_says_how_it_is_tested(page):
    for language, text in shell.blocks(page):
        assert language in LANGUAGES or (not language and text.startswith("$ ")), text
        if language == "text":
            assert not re.search(r"^icevirt \w", text, re.MULTILINE), text
        if language == "sh":
            assert ABSENT.search(text), f"this can run here, so it is bash: {text}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_need_a_cloud_or_a_cluster_parse(page):
    for text in shown(page, "sh", "bash", "", "text"):
        prompt = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
        for words in shell.calls("\n".join(prompt) if prompt else text):
            shell.parse(words)


def test_each_block_of_bash_and_each_transcript_is_run_by_a_test():
    bash = {page.name for page in PAGES if shown(page, "bash")}
    assert bash == HERE | IN_BUCKETS | ELSEWHERE.keys()
    tests = shell.ROOT / "tests"
    for page, test in ELSEWHERE.items():
        text = (tests / test).read_text()
        assert page in text
        assert "bash" in text
    run = "".join(path.read_text() for path in (tests / "docs").glob("test_*.py"))
    assert [page.name for page in PAGES if shown(page, "") and page.name not in run] == []


def test_a_block_with_a_wrong_command_does_not_parse():
    for wrong in ("biuld a b", "build a b --missign reserve", "build a b --missing x", "reset"):
        with pytest.raises(Exception, match=r"No such|not one of|Missing parameter"):
            shell.parse(wrong.split())
    assert shell.calls("*/10 * * * * flock -n a icevirt append x y  # z") == [["append", "x", "y"]]
    submitted = "spark-submit --master m \\\n  $(icevirt spark-script) build 'a b' c"
    assert shell.calls(submitted) == [["build", "a b", "c"]]


# -- the blocks run ---------------------------------------------------------------------------------


@pytest.fixture
def succeed(tmp_path, monkeypatch, run, in_process):
    """Run calls of icevirt in an empty directory; each has to succeed."""
    monkeypatch.chdir(tmp_path)

    def calls(found):
        for words in found:
            here = [each.replace("file:///data/", f"file://{tmp_path}/") for each in words]
            here = [re.sub(r"^/data/", f"{tmp_path}/", each) for each in here]
            here = [
                each.replace("file:///archive/", f"file://{tmp_path}/archive/") for each in here
            ]
            status, out, err = run(*here)
            assert status in (0, None), (words, out, err)

    return calls


@pytest.mark.ci
def test_the_commands_of_the_readme_and_of_recipes_run(tmp_path, succeed):
    write_days(tmp_path / "archive", 2)
    for block in commands(shell.ROOT / "README.md"):
        succeed(block)
    assert icevirt.open("repo").sizes["time"] == 8
    shutil.rmtree("repo")
    page = shell.ROOT / "docs" / "steps.md"
    Path("recipe.toml").write_text(shown(page, "toml")[0])
    succeed(commands(page)[0])
    assert icevirt.open("repo", group="ocean")["tas"].long_name == "surface temperature"


@pytest.mark.ci
def test_the_commands_about_combining_run(tmp_path, succeed):
    first, patterns, two = commands(shell.ROOT / "docs" / "combining.md")
    _, checked, later = commands(shell.ROOT / "docs" / "steps.md")
    write_days(tmp_path / "archive", 2)
    for block in (first, checked):
        shutil.rmtree("repo", ignore_errors=True)
        succeed(block)
    succeed(later)
    shutil.rmtree("repo")

    def write(path, **scalars):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        values = {"tas": ("x", np.arange(3.0)), **scalars}
        xr.Dataset(values, {"x": [1.0, 2.0, 3.0]}).to_netcdf(path)

    for day in (1, 2):
        write(f"ABI/OR_s20200{day}0011234567_e1.nc")
        write(f"seasonal/tas_m{day}_202001.nc")
        write(f"seasonal/tas_m{day}_202002.nc")
        write(f"runs/2020/01/out_0{day}.nc")
        for member in (1, 2):
            write(f"fc_{day}_{member}.nc", member=((), member))
    dims = ({"time": 2}, {"member": 2, "time": 2}, {"time": 2}, {"init": 2, "member": 2})
    for call, expected in zip([*patterns, *two], dims, strict=True):
        succeed([call])
        assert icevirt.open("repo").sizes == {"x": 3} | expected
        shutil.rmtree("repo")


@pytest.mark.ci
@pytest.mark.parametrize("code", [each.code for each in explanations().codes])
def test_the_remedies_of_an_explanation_run(code, tmp_path, succeed, request):
    if code == "storage":  # on a bucket
        request.getfixturevalue("buckets")
    (text,) = (each.text for each in explanations().codes if each.code == code)
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for path in write_days(tmp_path / "archive", 2):
        with netCDF4.Dataset(path, "a") as file:
            file.createVariable("status", "i4", ("y",))[:] = 0
    Path("list.txt").write_text("archive/day1.nc\n")
    shutil.copytree("archive", "old")
    shutil.copytree("archive", "new")
    if code == "read-only":
        shutil.rmtree("old")
        shutil.rmtree("new")
        old_repositories.on_disk(old_repositories.files("E6"), Path("old"))
    for words in (words for block in blocks for words in shell.calls(block)):
        shutil.rmtree("repo", ignore_errors=True)
        if words[0] != "build" or "--mode" in words:
            icevirt.build("old/*.nc" if words[0] == "relocate" else "archive/*.nc", "repo")
        succeed([words])


@pytest.fixture
def buckets(s3_server, tmp_path, monkeypatch):
    """Buckets as the pages call them, with a few files."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("archive", "mine", "noaa-goes16"):
        request = urllib.request.Request(f"{s3_server}/{name}", method="PUT")
        urllib.request.urlopen(request).close()
    days = write_days(tmp_path / "days", 2)
    for folder in ("archive", "archive/2024", "archive/era5", "noaa-goes16/ABI-L2-SSTF/2024"):
        for path in map(Path, days):
            obstore.put(from_url(f"s3://{folder}/"), path.name, path)


@pytest.mark.ci
@pytest.mark.usefixtures("buckets")
def test_the_commands_on_buckets_run(succeed):
    credentials, growing, living, scale = (
        commands(shell.ROOT / "docs" / f"{page}.md")
        for page in ("credentials", "growing-archive", "living", "scale")
    )
    # the second page goes on with what the first one built; appends begin anew
    for blocks in [*credentials, *growing], living[:2], scale, living[2:]:
        mine = from_url("s3://mine/")
        mine.delete([each["path"] for found in mine.list() for each in found])
        for block in blocks:
            succeed(block)
    assert icevirt.open("s3://mine/repo").sizes["time"] == 8
