"""What is shown is complete, and as harmless as JSON."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from icevirt.archive.reports.build import BadFile, GroupSummary, Progress, ReferenceCounts
from icevirt.display.document import document
from icevirt.display.progress import ProgressDisplay, ProgressLines
from icevirt.display.render import render
from icevirt.planning.reader_support import readers_of
from unit.display import samples


def shown(value, width=160, **terminal):
    """Return what would be printed."""
    out = io.StringIO()
    Console(file=out, width=width, **terminal).print(render(value))
    return out.getvalue()


def test_a_report_tells_what_was_built_and_how_to_open_it():
    output = shown(samples.report())
    for words in (
        "Built file:///data/repo",
        "1CECHNKREP0F1RSTCMT0 on main",
        "3 scanned",
        "6 virtual: 2.7 MiB stay in the files, 0 B stored here",
        "list 0.0 s, scan 1 min 01 s",
        "3 × 330 × 360",
        "scalar",
        "xr.open_dataset(\n    'file:///data/repo',\n    engine='icevirt',\n",
        "    authorize_virtual_chunk_access=['file:///data/'],\n)",
    ):
        assert words in output
    assert "Left out" not in output


def test_a_report_names_files_that_were_left_out():
    bad = BadFile(url="file:///data/x.nc", code="scan", error="it is truncated")
    output = shown(samples.report(bad_files=(bad,), files_reused=7, findings=("y follows x",)))
    assert "  /data/x.nc: it is truncated [scan]" in output
    assert "7 reused from an earlier run, 1 left out" in output
    assert "  y follows x" in output


def test_a_report_says_when_nothing_was_written():
    assert "Already built" in shown(samples.report(already_built=True))


def test_a_report_of_another_group_opens_that_group():
    assert "group='/a'" in shown(samples.report(group="/a"))


def test_a_summary_is_a_tree():
    output = shown(samples.summary())
    lines = [line.strip("│├└─ ") for line in output.splitlines()]
    assert "tos float32 (time_counter: 3, y: 330, ?: 360)" in output
    assert output.index("tos float32") < output.index("sst float32")
    assert lines.index("a") < lines.index("b") < lines.index("k0 = 0")
    assert "and 4 attributes more" in lines
    assert "title = ocean" in lines
    assert any(line.startswith("nogroup/deep/x float32") for line in lines)


def test_a_scanned_file_shows_types_and_findings():
    output = shown(samples.scanned())
    assert "numpy.datetime64" in output
    assert "1 virtual" in output
    assert "note /tos" in output


def test_a_plan_shows_its_cost():
    output = shown(samples.plan())
    for words in (
        "Plan b1",
        "3, one after the other along time",
        "3,000 virtual: 117.2 KiB stay in the files",
        "3 windows",
        "direct, no shuffle",
        "for a task",
        "at most 2 requests, 40 B of /tos",
        "at most 3,003 requests, 117.2 KiB of /tos",
        "note: ordered by time",
        "warning: chunks of /tos (40 B) hold less than 10 KiB",
    ):
        assert words in output


def test_every_array_says_who_reads_it():
    """In plans, reports and descriptions of files, as text and as JSON."""
    for value in (samples.plan(), samples.report(), samples.scanned()):
        assert "read by" in shown(value)
        assert {"zarr_lacks", "gdal_lacks"} == set(document(value)["arrays"][0]["readers"])
    output = shown(samples.plan()).splitlines()
    row = next(at for at, line in enumerate(output) if "read by" in line) + 1
    assert output[row].split()[-1] == "zarr"


def test_eras_show_what_differs_and_what_can_be_done():
    output = shown(samples.eras(), width=200)
    for words in (
        "2 eras along a.nc",
        "1,000,000",
        "a.nc (2000-01-01)",
        "from era_0: /a.nc: a.nc added; scale_factor 0.01 → 0.02",
        "a.nc of era_1 within era_0",
        "and 3 runs more",
        "/a.nc is not in 7 places of era_0: a.nc and 6 more",
        'on_mismatch="eras"  2 groups, a.nc',
        "natively  stored; 2.0 KiB to be stored; packing again could change values by up to 0.005",
    ):
        assert words in output
    assert document(samples.eras())["eras"][1]["name"] == "era_1"


def test_arrays_of_a_great_many_groups_share_rows():
    of_wells = [samples.array(path=f"/A/{n}/{level}") for n in range(150) for level in range(2)]
    output = shown(samples.report(arrays=tuple(of_wells)))
    starred = [line for line in output.splitlines() if line.startswith("/")]
    assert [line.split()[0] for line in starred] == ["/*/*/0", "/*/*/1"]
    assert f"{150 * samples.array().references.virtual:,} virtual" in starred[0]
    assert len(document(samples.report(arrays=tuple(of_wells)))["arrays"]) == 300


def test_many_eras_share_rows_and_a_tree_shows_the_first():
    of_eras = [samples.array(path=f"/sub/era_{n}/t", shape=(n + 1, 3, 4)) for n in range(365)]
    output = shown(samples.report(arrays=(*of_eras, samples.array(path="/x"))))
    rows = [line for line in output.splitlines() if "era_" in line]
    assert [line.split()[:5] for line in rows] == [["/sub/era_*/t", "float32", "1", "to", "365"]]
    assert f"{365 * samples.array().references.virtual:,} virtual" in rows[0]
    names = ["/sub", *(f"/sub/era_{n}" for n in range(365))]
    groups = tuple(GroupSummary(path=path, attributes={}) for path in names)
    output = shown(samples.summary(arrays=tuple(of_eras), groups=groups))
    assert "and 362 more eras" in output
    assert ("era_2" in output, "era_3" in output) == (True, False)


def test_a_size_before_compression_is_said_to_be_the_most():
    counts = ReferenceCounts(stored=1, bytes_stored=2048)
    array = replace(samples.array(), references=counts)
    output = shown(samples.report(arrays=(array,)))
    assert "1 stored: 0 B stay in the files, at most 2.0 KiB stored here" in output
    assert "≤ 2.0 KiB" in output


def test_chunks_of_different_lengths_are_opened_with_the_setting_that_they_need():
    odd = replace(samples.array("/x"), readers=readers_of("float32", ["bytes"], grid="rectilinear"))
    setting = "zarr.config.set({'array.rectilinear_chunks': True})"
    for value in (samples.report(arrays=(odd,)), samples.summary(arrays=(odd,))):
        assert f"Open it\nimport xarray as xr\nimport zarr\n{setting}\nxr.open_" in shown(value)
    assert setting not in shown(samples.report())


def test_a_report_of_eras_says_how_they_are_opened_as_one():
    assert "eras='concat'" in shown(samples.report(eras=2))
    assert "eras=" not in shown(samples.report())


def test_long_names_are_folded_and_not_cut():
    name = "/" + "n" * 300
    output = shown(samples.report(arrays=(samples.array(name),)), width=100)
    assert output.count("n") >= 300


@pytest.mark.parametrize("value", samples.hostile().values(), ids=samples.hostile().keys())
def test_hostile_names_and_attributes_are_shown_as_text(value):
    """Nothing but rich's own escapes, which a console without colours has none of."""
    output = shown(value, width=2000)
    assert "[red]\\x1b[2J" in output
    assert not set(output) & {"\x1b", "\x07", "\r", "\u202e"}
    coloured = shown(value, width=2000, force_terminal=True, color_system="truecolor")
    assert "\x1b[2J" not in coloured
    assert "\x1b]" not in coloured  # titles and links


@pytest.mark.parametrize(
    "value",
    [
        samples.report(),
        samples.summary(),
        samples.scanned(),
        *(value for name, value in samples.hostile().items() if name != "a plan"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_value_is_a_json_document(value):
    assert json.loads(json.dumps(document(value), allow_nan=False))


def test_the_document_of_a_report_has_its_totals():
    assert document(samples.report())["references"]["virtual"] == 6


def test_progress_in_a_log_is_a_line_for_each_long_phase():
    out = io.StringIO()
    with ProgressDisplay(Console(file=out, width=80)) as display:
        display(Progress(phase="scan", done=0, total=0))
        for done in range(3):
            display(Progress(phase="scan", done=done, total=2))
        display(Progress(phase="commit", done=0, total=0))
    assert out.getvalue() == "scan: 2 tasks\n"


def test_progress_for_programs_is_json_lines_with_speed_and_what_is_left():
    out = io.StringIO()
    tell = ProgressLines(out)
    tell(Progress(phase="scan", done=0, total=0))
    for done in (100, 150, 300, 400):  # a hundred are from an earlier run
        amounts = {"files": done, "bytes": 1000 * done, "unit": "files"}
        tell(Progress(phase="scan", done=done, total=400, found=100, seconds=2.0, **amounts))
    tell(Progress(phase="commit", done=0, total=0))
    begun, first, last, commit = map(json.loads, out.getvalue().splitlines())
    assert {begun["event"], commit["event"]} == {"progress"}
    assert (begun["phase"], commit["phase"]) == ("scan", "commit")
    assert (first["done"], first["total"], first["per_second"]) == (100, 400, 0.0)
    assert "seconds_left" not in first
    assert (last["done"], last["per_second"], last["seconds_left"]) == (400, 150.0, 0.0)
    assert (last["files"], last["bytes"], last["unit"]) == (400, 400_000, "files")


def test_what_is_left_is_estimated_from_what_this_run_did():
    step = Progress(phase="scan", done=300, total=400, found=100, seconds=20.0)
    assert step.per_second == 10
    assert step.seconds_left == 10
    assert Progress(phase="scan", done=0, total=400, seconds=1.0).seconds_left is None


def test_progress_on_a_terminal_is_a_bar_that_goes_away():
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True)
    with ProgressDisplay(console) as display:
        display(Progress(phase="scan[red]", done=1, total=2, unit="\x1b]0;files"))
    assert "1/2" in out.getvalue()
    assert "files" in out.getvalue()
    assert "scan[red]" in out.getvalue()
    assert "\x1b]0" not in out.getvalue()


def test_a_phase_that_is_over_shows_no_clock_that_runs_on():
    """What was counted stays in sight; a phase that goes on after another one comes back."""
    display = ProgressDisplay(Console(file=io.StringIO(), width=80, force_terminal=True))
    steps = [("list", 0, 0), ("scan", 2, 2), ("write", 0, 5), ("spark", 0, 0), ("write", 1, 5)]
    for phase, done, total in steps:
        display(Progress(phase=phase, done=done, total=total))
    shown = {bar.description: bar for bar in display._bars.tasks}
    assert set(shown) == {"scan", "write"}
    assert shown["scan"].stop_time is not None
    assert shown["write"].stop_time is None
    assert shown["write"].completed == 1
