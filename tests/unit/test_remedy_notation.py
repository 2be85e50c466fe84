"""Remedies are shown in the notation of Python or of the command line."""

import pytest

from icevirt.remedy_notation import COMMAND, REPOSITORY, in_flags, in_python, show_remedy

FLAGS = {"values": "--values", "references": "--references", "number": "-n", "n": "-n"}
BOTH = {  # as written: in Python, on the command line
    'Pass combine_options={"data_vars": ["a b"]} (--data-vars \'a b\'), or leave it.': (
        'Pass combine_options={"data_vars": ["a b"]}, or leave it.',
        "Pass --data-vars 'a b', or leave it.",
    ),
    "Name it in concat_dim (--concat-dim).": ("Name it in concat_dim.", "Name it in --concat-dim."),
    "Name the dimension (--concat-dim).": (
        "Name the dimension.",
        "Name the dimension (--concat-dim).",
    ),
    "With a={'x': 1}, b=[2] (--x 1 --b 2) it works.": (
        "With a={'x': 1}, b=[2] it works.",
        "With --x 1 --b 2 it works.",
    ),
    "Pass references=True, values=10 or `values=...`.": (
        "Pass references=True, values=10 or `values=...`.",
        "Pass --references, --values 10 or `--values ...`.",
    ),
    "Pass n=20, or None; c=1 is not an option.": (
        "Pass n=20, or None; c=1 is not an option.",
        "Pass -n 20, or None; c=1 is not an option.",
    ),
    "Pass a local recipe (on the command line --recipe FILE (TOML)).": (
        "Pass a local recipe.",
        "Pass a local --recipe FILE (TOML).",  # the word is the flag's own
    ),
    'Run ds.to_zarr(store, n="3") and pass n=4.': (
        'Run ds.to_zarr(store, n="3") and pass n=4.',
        'Run ds.to_zarr(store, n="3") and pass -n 4.',
    ),
    'Build again: icevirt.build(files, repo, mode="w") (icevirt build SOURCES... REPO --mode w).': (
        'Build again: icevirt.build(files, repo, mode="w").',
        "Build again: icevirt build SOURCES... REPO --mode w.",
    ),
    "Nothing (really) to do.": ("Nothing (really) to do.", "Nothing (really) to do."),
}


@pytest.mark.parametrize("text", BOTH)
def test_each_surface_shows_its_own_half(text):
    python, command = BOTH[text]
    assert in_python(text) == python == show_remedy(text)
    assert in_flags(text, FLAGS) == command
    token = COMMAND.set(FLAGS)
    try:
        assert show_remedy(text) == command
    finally:
        COMMAND.reset(token)


def test_commands_name_the_repository_of_the_command_that_runs():
    command, repository = COMMAND.set({}), REPOSITORY.set("my repo")
    try:
        assert show_remedy("icevirt.log(repo) (icevirt log REPO) lists them.") == (
            "icevirt log 'my repo' lists them."
        )
    finally:
        COMMAND.reset(command)
        REPOSITORY.reset(repository)
