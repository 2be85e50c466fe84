"""Complete words of a command line that are known elsewhere: codes of errors, branches and tags.

A shell asks on each press of the tab key, so only repositories on this machine are looked at, and
what goes wrong completes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

import typer

type Complete = Callable[[typer.Context, str], list[str]]


def complete_codes(incomplete: str) -> list[tuple[str, str]]:
    """Return the codes of errors that begin so, each with its sentence."""
    from icevirt.display.explanations import explanations

    known = ((each.code, each.summary) for each in explanations().codes)
    return [each for each in known if each[0].startswith(incomplete.lower())]


def _complete(*kinds: str) -> Complete:
    def names(ctx: typer.Context, incomplete: str) -> list[str]:
        return sorted({name for name in _names(ctx, kinds) if name.startswith(incomplete)})

    return names


def _names(ctx: typer.Context, kinds: tuple[str, ...]) -> list[str]:
    from icevirt.repo.repository import Repository

    # an option that still lacks its value ends what is parsed, and the words before it are left
    for place in (str(ctx.params.get("repo", "")), *reversed(ctx.args)):
        with suppress(Exception):  # a shell shows no reason
            repo = Repository.open(os.path.abspath(place))
            found = {"branch": repo.list_branches, "tag": repo.list_tags}
            return [name for kind in kinds for name in found[kind]()]
    return []


COMPLETE: Mapping[str, Complete] = {
    "branch": _complete("branch"),
    "tag": _complete("tag"),
    **dict.fromkeys(("before", "after", "version"), _complete("branch", "tag")),
    "icevirt.api.history.moves:delete_branch name": _complete("branch"),
    "icevirt.api.history.moves:rename_branch name": _complete("branch"),
    "icevirt.api.history.moves:delete_tag name": _complete("tag"),
}
"""What completes the values of parameters, by their name, or by that of their function too."""
