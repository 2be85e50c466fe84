"""Run all findings, or those that the arguments name, and print a table: `just findings`."""

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LIMIT = 180  # seconds


def run(script: Path) -> tuple[bool, float, str]:
    """Return whether a finding still holds, how long it took, and the last line of what it said."""
    start = time.monotonic()
    try:
        done = subprocess.run([script], capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return False, LIMIT, f"took more than {LIMIT} s"
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return done.returncode == 0, time.monotonic() - start, said[-1] if said else ""


def main(names: list[str]) -> int:
    """Print one row for each finding; the exit code says whether all hold."""
    scripts = sorted(HERE.glob("*.sh"))
    if names:
        scripts = [HERE / f"{name.removesuffix('.sh')}.sh" for name in names]
    held = []
    print("| finding | holds | seconds | last line |\n|---|---|---|---|")
    for script in scripts:
        holds, seconds, line = run(script)
        held.append(holds)
        line = line.replace("|", "/")[:100]
        answer = "yes" if holds else "NO"
        print(f"| {script.stem} | {answer} | {seconds:.0f} | {line} |", flush=True)
    print(f"\n{sum(held)} of {len(held)} findings hold.")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
