"""Write the status of a dataset in the text format of Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from icevirt.archive.reports.upkeep import RepositoryStatus


@dataclass(frozen=True, slots=True)
class Exposition:
    """Metrics as a file for the collector of Prometheus' node exporter holds them."""

    text: str

    def __rich__(self) -> Text:
        return Text(self.text.rstrip("\n"), no_wrap=True, overflow="ignore")


def exposition(status: RepositoryStatus) -> Exposition:
    """Return the metrics of a dataset; those that are unknown are left out."""
    metrics: tuple[tuple[str, str, float | None], ...] = (
        ("newest_step_timestamp_seconds", "Newest step of the dataset.", _at(status.newest_step)),
        ("newest_file_timestamp_seconds", "Time of the newest file.", _at(status.newest_file)),
        ("lag_seconds", "Newest file less newest step.", status.lag_seconds),
        ("last_commit_timestamp_seconds", "Newest commit.", _at(status.last_commit)),
        ("last_build_timestamp_seconds", "Newest build or append.", _at(status.last_build)),
        ("steps", "Steps along the dimension that grows.", status.steps),
        ("files", "Files of the dataset.", status.files),
        ("bad_files", "Files that were left out.", len(status.bad_files)),
        ("held_files", "Files that the last update held back.", len(status.held_files)),
        (
            "manifests_to_join",
            "Small manifests of appends at the end of an array.",
            status.manifests_to_join,
        ),
        ("source_bytes", "Bytes of the files.", status.source_bytes),
        ("referenced_bytes", "Bytes that references read.", status.referenced_bytes),
        ("stored_bytes", "Bytes that the last build stored.", status.stored_bytes),
        ("manifests", "Manifests of the newest version.", status.manifests),
        ("manifest_bytes", "Bytes of these manifests.", status.manifest_bytes),
        ("snapshots", "Snapshots in the history of the branch.", status.snapshots),
        ("unfinished_builds", "Work folders of builds.", len(status.unfinished)),
    )
    names = {"repo": status.repo, "branch": status.branch, "group": status.group}
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in names.items())
    lines = [
        line
        for name, help_text, value in metrics
        if value is not None
        for line in (
            f"# HELP icevirt_{name} {help_text}",
            f"# TYPE icevirt_{name} gauge",
            f"icevirt_{name}{{{labels}}} {value:.15g}",
        )
    ]
    return Exposition("\n".join(lines) + "\n")


def _at(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
