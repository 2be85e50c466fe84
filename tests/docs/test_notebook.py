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
def test_the_notebook_runs(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output["data"].get("text/html", "") for output in outputs if "data" in output]
    for name in ("ScannedFile", "BuildPlan", "BuildReport", "CommitLog"):
        assert any(f"&lt;icevirt.{name}" in each or f"&lt;{name}" in each for each in shown), name
    assert any("xarray.Dataset" in each for each in shown)
    (printed,) = (each["text"] for each in outputs if each.get("name") == "stdout")
    assert printed.startswith("Plan ")
    assert any(
        "application/vnd.jupyter.widget-view+json" in each.get("data", {}) for each in outputs
    )
    assert "14.127" in str([output.get("data", {}).get("text/plain") for output in outputs])
    assert (tmp_path / "nemo.html").read_text().startswith("<!DOCTYPE html>")
