"""Options of tests that come by name: each goes into the object that it belongs to."""

from dataclasses import fields
from typing import Any

from icevirt.api.commit_options import OBJECTS
from icevirt.archive.options import declare
from icevirt.planning.combine.options import CombineOptions, CombineSpec

KEYWORDS = {each.name: options.KEYWORD for options in OBJECTS for each in declare(options)}


def grouped(given: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return arguments for `icevirt.build` and the like; those that are no options stay."""
    made: dict[str, Any] = {}
    for name, value in {**given, **more}.items():
        if name in KEYWORDS:
            made.setdefault(KEYWORDS[name], {})[name] = value
        else:
            made[name] = value
    return made


def combine_spec(**how: Any) -> CombineSpec:
    """Return the spec of a build of the options and other fields that a test names together."""
    own = {each.name for each in fields(CombineSpec)}
    options = CombineOptions(**{name: how.pop(name) for name in {*how} - own})
    return CombineSpec(build_id="b", options=options, **how)
