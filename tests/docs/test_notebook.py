"""The example notebook runs as it is, in Jupyter's kernel, and shows what it promises."""

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_dataset.ipynb"


def test_no_outputs_are_stored():
    """They would hold paths of whoever ran it."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)


@pytest.mark.ci
def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output["data"].get("text/html", "") for output in outputs if "data" in output]
    for name in (
        *("icevirt.ScannedFile", "BuildPlan", "BuildReport", "UpdateReport", "VersionDiff"),
        *("ValueSource", "BranchMove", "MaterializeReport", "ArrayChoices", "RepositorySummary"),
    ):
        assert any(f"&lt;{name}" in each for each in shown), name
    assert any("xarray.Dataset" in each for each in shown)
    status, log = (each["text"] for each in outputs if each.get("name") == "stdout")
    assert "10 new files" in status
    assert log.count("Update: ") == 2
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert "application/vnd.jupyter.widget-view+json" in kinds
    assert kinds.count("image/png") == 4
    (source,) = (each for each in shown if "&lt;ValueSource" in each)
    assert "tas_2050.nc" in source
    place, year = (each for each in shown if "&lt;ArrayChoices" in each)
    assert "twin chunks" in place
    assert "twin chunks" not in year
    assert (tmp_path / "tas.html").read_text().startswith("<!DOCTYPE html>")
