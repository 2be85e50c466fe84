"""Give each command that takes a repository the options that say how to reach its bucket."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from icevirt.errors import InvalidInputError
from icevirt.escaping import escape_line
from icevirt.redaction import without_secrets
from icevirt.remedy_notation import REPOSITORY

_MORE = {"plan": ("update",), "upgrade": ("new",)}
"""Parameters of commands that hold the URL of a repository, beside ``repo``."""

RECORDED = "recorded"
"""In the place of a prefix: what builds of this user referred to."""

Anonymous = Annotated[
    bool, typer.Option("--anonymous", help="Reach the repository's bucket without credentials.")
]
Region = Annotated[
    str | None, typer.Option(metavar="<NAME>", help="The region of the repository's S3 bucket.")
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        metavar="<URL>", help="The server of the repository's bucket, where it is not Amazon's."
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="<NAME>",
        help="The profile of ~/.aws whose credentials and region this command uses, for the"
        " repository and for files below s3:// without an --access.",
    ),
]

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "anonymous": (Anonymous, False),
    "region": (Region, None),
    "endpoint": (Endpoint, None),
    "profile": (Profile, None),
}


def with_storage(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take the options of a bucket, and get a storage for the URL if any is given."""
    signature = inspect.signature(function, eval_str=True)
    if "repo" not in signature.parameters:
        return function

    @functools.wraps(function)
    def command(*args: Any, **given: Any) -> Any:
        options = {name: given.pop(name) for name in _OPTIONS}
        more = _MORE.get(function.__name__, ())
        written = (given[name] for name in ("repo", *more) if isinstance(given[name], str))
        REPOSITORY.set(without_secrets(next(written, "")))
        if "sources" not in signature.parameters:
            _refuse_file(given["repo"], [*signature.parameters])
        _use_profile(options.pop("profile"))
        if "authorize" in given:
            given["authorize"] = _with_recorded(given["authorize"], given["repo"], options)
        for name in ("repo", *more):
            given[name] = _reach(given[name], **options)
        return function(*args, **given)

    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in _OPTIONS.items()
    ]
    made = signature.replace(parameters=[*signature.parameters.values(), *added])
    command.__signature__ = made  # type: ignore[attr-defined]  # what typer looks at
    command.__annotations__ = {each.name: each.annotation for each in made.parameters.values()}
    return command


def _refuse_file(repo: Any, parameters: list[str]) -> None:
    """Say what to write where a file stands in the place of the repository.

    Raises:
        InvalidInputError: It does.
    """
    if not isinstance(repo, str) or not os.path.isfile(repo):
        return
    if "files" in parameters:
        at_end = parameters.index("files") < parameters.index("repo")
        do = f"Name the repository {'last, behind' if at_end else 'first, before'} the files."
    else:
        from icevirt.display.fixes import quote_word

        file = quote_word(repo)
        do = (
            f"To see what it holds: icevirt scan {file}. To make a repository: icevirt build {file}"
            " NEW_REPO."
        )
    raise InvalidInputError("this is a file, not a repository", do=do, path=repo)


def _use_profile(name: str | None) -> None:
    """Prefer a profile to what the environment says, as the AWS CLI does."""
    if name is not None:
        from icevirt.connect.credentials.object_stores import choose

        choose(name)


def _reach(repo: Any, *, anonymous: bool, region: str | None, endpoint: str | None) -> Any:
    """Return a storage for the URL of a bucket, and everything else as it is."""
    if not (anonymous or region or endpoint) or not isinstance(repo, str):
        return repo
    from icevirt.connect.urls import Address, is_url, spell
    from icevirt.storage.constructors import storage_of

    url = spell(repo)
    provider = Address.parse(url).provider if is_url(url) else "file"
    if provider not in ("s3", "gcs", "azure"):
        raise typer.BadParameter(
            f"--anonymous, --region and --endpoint are for repositories in buckets; {repo} is not"
            " in one"
        )
    if provider != "s3" and (region or endpoint):
        raise typer.BadParameter(
            f"--region and --endpoint are for S3 and what speaks its protocol; {repo} is not there"
        )
    options: dict[str, Any] = {"anonymous": True} if anonymous else {}
    if region:
        options["region"] = region
    if endpoint:
        is_plain = endpoint.lower().startswith("http://")
        options |= {"endpoint_url": endpoint, "allow_http": is_plain}
    return storage_of(repo, options)


def _with_recorded(authorize: Any, repo: Any, options: dict[str, Any]) -> Any:
    """Put what this user's builds referred to in the place of the word, and show it."""
    words = [each if isinstance(each, str) else each[0] for each in authorize or ()]
    if RECORDED not in words:
        return authorize
    from icevirt.display.blocks import entry
    from icevirt.repo.made_here import identify, read_containers
    from icevirt.storage.constructors import storage_of

    found = read_containers(identify(storage_of(_reach(repo, **options))))
    if not found:
        raise typer.BadParameter(
            f"no build of yours on this machine made {repo}, so nothing is recorded: name the"
            " prefixes that you trust with --authorize PREFIX"
        )
    sys.stderr.write("".join(escape_line(f"authorized: {entry(each)}") + "\n" for each in found))
    made: list[Any] = []
    for each, word in zip(authorize, words, strict=True):
        if word != RECORDED:
            made.append(each)
        elif isinstance(each, str):
            made += [one if isinstance(one, str) else one[0] for one in found]
        else:
            made += [(one, each[1]) for one in found]
    return made
