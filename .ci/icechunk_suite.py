"""Runs icechunk's own Python tests with the official package and with icevirt, and compares.

    python .ci/icechunk_suite.py PATH --results FOLDER [FILE ...]

PATH is a checkout of icechunk at the release that is installed here; nothing of it is kept. Files
run some at a time in a process of their own, with either client, against an S3 server on loopback.
What FOLDER has already is not run again, so that an interrupted run goes on. At the end the table
of docs/icechunk-programs.md is written; a test that only the official package passes needs a reason
in `REASONS`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from importlib.metadata import version
from itertools import batched
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "tests"))

from servers.processes import running  # noqa: E402 - of the tests

PAGE = HERE / "docs" / "icechunk-programs.md"
BEGIN, END = "<!-- written by `just icechunk-suite` -->\n", "<!-- until here -->\n"
FILES = 10  # run by one process
PORT = 4200  # where those tests look for S3
BUCKET = "testbucket"
KEYS = {"AWS_ACCESS_KEY_ID": "modify", "AWS_SECRET_ACCESS_KEY": "modifydata"}

GROUPS = {
    "processes and clusters of dask": r"test_(dask|distributed)",
    "random sequences of operations": (
        r"test_(stateful|store_properties|commit_properties|properties)"
    ),
    "zarr's tests of stores, arrays and groups": "/test_zarr/",
    "all others": "",
}
"""Files by what their tests need; the first pattern that fits counts."""

REASONS = {
    r".*test_can_read_old.*": (
        "The repository itself names the server of its virtual chunks. icevirt sends credentials"
        " only to servers that the program names ([why](security.md)): pass `config` with the"
        " container, too."
    ),
    r".*test_error_message_when_snapshot_deleted.*": (
        "A session reads its snapshot when it is opened, so that the error comes one line earlier."
    ),
    r".*test_error_message_when_manifest_file_altered.*": (
        "They match names of functions inside the Rust client."
    ),
    r".*test_tag_with_open_session.*": (
        "They put an array below an array, which is not a Zarr hierarchy; icevirt refuses it."
    ),
    r".*test_refreshable_credentials_errors.*": (
        "The message of a function that returns credentials is not repeated: it could hold a"
        " secret."
    ),
    r".*test_requests_carry_attribution.*": (
        "Requests carry no names of programs; besides, the test's server ignores conditions, and"
        " icevirt refuses such a server."
    ),
    r".*test_inspect_reports_writing_library_version.*": "They want icechunk's own name there.",
    r".*test_set_virtual_refs_preserves_url_parts.*": (
        "They write a location with a query, which is refused when it is written"
        " ([why](security.md))."
    ),
    r".*TestIcechunkStore::test_(list|list_empty_path)": (
        "A node is listed with the groups above it: Zarr knows no groups without metadata, so"
        " icevirt writes the missing ones."
    ),
    r".*TestIcechunkStore::test_get_partial_values": (
        "They ask for the last five bytes of `zarr.json`, and expect all but the last five, as"
        " the official client returns; icevirt returns the last five."
    ),
    r".*test_s3_static_credentials_redacts_secrets.*": (
        "Not even the first letters of a key are shown."
    ),
}
"""Why icevirt does not pass a test, by a pattern of its name."""


def main() -> int:
    """Run what has no result yet, and write the table; return 1 where a reason is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("files", nargs="*", help="names of files of tests; all by default")
    parser.add_argument("--results", type=Path, default=HERE / ".icechunk-suite")
    parser.add_argument("--timeout", type=int, default=300, help="seconds of a test")
    parser.add_argument("--dry-run", action="store_true", help="only compare what there is")
    asked = parser.parse_intermixed_args()
    root = asked.path.resolve()
    root = root / "icechunk-python" if (root / "icechunk-python").exists() else root
    asked.results.mkdir(parents=True, exist_ok=True)
    files = sorted(path.relative_to(root) for path in root.glob("tests/**/test_*.py"))
    if not files:
        sys.exit(f"there are no tests below {root}: check icechunk out, with its tests")
    if not asked.dry_run:
        environment = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(PORT), "LOG_LEVEL": "ERROR"}
        with running([sys.executable, "-m", "ministack"], port=PORT, env=environment):
            _make_bucket()
            for batch in _batches(files, asked.files):
                for client in ("icechunk", "icevirt"):
                    _run(root, batch, client, asked.results, asked.timeout)
    return _report(asked.results)


def _batches(files: list[Path], names: list[str]) -> list[list[Path]]:
    """Return the files to run in one process each: those that take long by themselves, and last."""
    quick = [file for file in files if _group(str(file)) == "all others"]
    each = [*batched(quick, FILES, strict=False), *([f] for f in files if f not in quick)]
    return [[*batch] for batch in each if not names or any(file.name in names for file in batch)]


def _make_bucket() -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{PORT}",
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)


def _run(root: Path, batch: list[Path], client: str, results: Path, timeout: int) -> None:
    """Run files with a client, unless their result is there."""
    first = "-".join(batch[0].with_suffix("").parts[1:])
    notes = results / f"{client}-{first}.jsonl"
    if notes.exists():
        return
    unfinished = notes.with_suffix(".unfinished")
    unfinished.write_text("")
    environment = {
        **os.environ,
        **KEYS,
        "AWS_REGION": "us-east-1",
        "ICECHUNK_SUITE_CLIENT": client,
        "ICECHUNK_SUITE_NOTES": str(unfinished.resolve()),
        "PYTHONPATH": os.pathsep.join([str(HERE / ".ci"), str(HERE), str(HERE / "scanners")]),
    }
    options = (
        f"-q -n 0 -p icechunk_suite_plugin -p no:randomly -p no:cacheprovider --timeout {timeout}"
    )
    command = [sys.executable, "-m", "pytest", *map(str, batch), *options.split(), "--tb=line"]
    command += ["-o", "addopts=", "-o", "log_cli=false", "-k", "not public_virtual"]
    began = time.monotonic()
    with (results / f"{notes.stem}.log").open("w") as log:
        subprocess.run(
            command, cwd=root, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    unfinished.rename(notes)
    counts = Counter(_read(notes).values())
    seconds = time.monotonic() - began
    print(f"{client:9} {first:40} {seconds:5.0f} s  {dict(counts)}", flush=True)


def _read(notes: Path) -> dict[str, str]:
    """Return the outcome of each test; the worst of its phases."""
    found: dict[str, str] = {}
    for line in notes.read_text().splitlines():
        row = json.loads(line)
        if found.get(row["test"]) != "failed":
            found[row["test"]] = row["outcome"]
    return found


def _numbered(outcomes: dict[str, str]) -> dict[str, str]:
    """Name each case of a test by its number: pytest names cases by how their values show."""
    seen: Counter[str] = Counter()
    found = {}
    for test, outcome in outcomes.items():
        name = test.partition("[")[0]
        found[f"{name}[{seen[name]}]"] = outcome
        seen[name] += 1
    return found


def _report(results: Path) -> int:
    """Write the table, of files that ran with both; return 1 where a reason is missing."""
    outcomes: dict[str, dict[str, str]] = {"icechunk": {}, "icevirt": {}}
    for official in sorted(results.glob("icechunk-*.jsonl")):
        ours = results / official.name.replace("icechunk-", "icevirt-", 1)
        if ours.exists():
            outcomes["icechunk"] |= _numbered(_read(official))
            outcomes["icevirt"] |= _numbered(_read(ours))
    theirs = [test for test, outcome in outcomes["icechunk"].items() if outcome == "passed"]
    passed = {test for test, outcome in outcomes["icevirt"].items() if outcome == "passed"}
    lost = [test for test in theirs if test not in passed]
    by_function: dict[str, list[str]] = {}
    for test in lost:
        by_function.setdefault(test.partition("[")[0], []).append(test)
    missing = [name for name in by_function if _reason(name) is None]
    _write(_table(theirs, passed, by_function))
    for name in missing:
        print(f"no reason in .ci/icechunk_suite.py: {name} ({len(by_function[name])})")
    print(f"{len(theirs) - len(lost)} of the {len(theirs)} that the official package passes")
    return 1 if missing else 0


def _reason(name: str) -> str | None:
    short = name.removeprefix("tests/")
    return next((why for pattern, why in REASONS.items() if re.fullmatch(pattern, short)), None)


def _group(test: str) -> str:
    return next(name for name, pattern in GROUPS.items() if re.search(pattern, test))


def _table(theirs: list[str], passed: set[str], by_function: dict[str, list[str]]) -> str:
    """Return counts by group, and what fails with the reason."""
    lines = [f"icechunk {version('icechunk')}:", "", "| tests | official | icevirt |"]
    lines += ["|---|---|---|"]
    groups = {name: [test for test in theirs if _group(test) == name] for name in GROUPS}
    for name, tests in {**groups, "together": theirs}.items():
        if tests:
            lines.append(f"| {name} | {len(tests)} | {sum(t in passed for t in tests)} |")
    lines += ["", "What fails, and why:", "", "| tests | why |", "|---|---|"]
    by_reason: dict[str, list[str]] = {}
    for name, tests in by_function.items():
        line = f"`{name.rpartition('::')[2]}` ({len(tests)})"
        by_reason.setdefault(_reason(name) or "not explained yet", []).append(line)
    lines += [f"| {', '.join(names)} | {why} |" for why, names in by_reason.items()]
    return "\n".join(lines) + "\n"


def _write(table: str) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table + END + rest.partition(END)[2])


if __name__ == "__main__":
    sys.exit(main())
