"""Every example runs, as a reader would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ci, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = {
    "build_by_hand.py": ["read by  hdf5", "committed ", "mean sea surface"],
    "time_travel.py": [
        "now: 3 months",
        "as tagged winter-2015: 2 months",
        "as it was a moment ago: 2 months",
        "as the first build left it: 2 months",
    ],
    "spark_batch_job.py": ["3 files, ", "snapshot ", "|step|"],
}


def run(name: str, cwd: Path) -> str:
    """Run an example with warnings as errors of ours; return what it printed."""
    from icevirt.execution.java import find_java, java_home

    # the reader's own Spark session needs a Java, which this machine may have only from pip
    env = os.environ | {"JAVA_HOME": str(java_home(find_java()))}
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=env,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == EXPECTED.keys()


@pytest.mark.spark
@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs(name, tmp_path):
    output = run(name, tmp_path)
    assert [words for words in EXPECTED[name] if words not in output] == []
