"""Options in remedies paste: into `icevirt.build`, and as flags that the command line knows."""

import shlex

import pytest

from icevirt.archive.options import declared
from icevirt.planning.combine.options import CombineOptions
from icevirt.planning.remedies import choose, leave_out
from icevirt.scan.options import ScanOptions

CHOSEN = {
    "a word": ({"missing": "reserve"}, ["--missing", "reserve"]),
    "a repeated option": ({"float_variables": ["/a", "b c"]}, ["--float-variable", "b c"]),
    "by dimension": ({"data_vars": {"t": ["all", "é"]}}, ["--data-vars", "t:é"]),
}


@pytest.mark.parametrize(("options", "last"), CHOSEN.values(), ids=CHOSEN)
def test_what_is_chosen_is_a_keyword_of_build_and_flags(options, last):
    keyword, _, flags = choose(**options).partition(" (")
    given = {}
    exec(keyword, given)
    assert CombineOptions.of(given["combine_options"]) == CombineOptions(**options)
    words = shlex.split(flags.removesuffix(")"))
    assert words[-2:] == last
    (option,) = (each for each in declared(CombineOptions) if each.name in options)
    assert words[0] == option.flag


def test_variables_that_are_left_out_are_an_option_of_the_scan():
    keyword, _, flags = leave_out("/x", "/y z").partition(" (")
    given = {}
    exec(keyword, given)
    assert ScanOptions.of(given["scan_options"]).drop_variables == ("/x", "/y z")
    assert shlex.split(flags.removesuffix(")")) == "--drop-variable|/x|--drop-variable|/y z".split(
        "|"
    )
