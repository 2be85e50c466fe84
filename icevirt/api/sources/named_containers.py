"""Name the virtual chunk containers of a build, and configure how readers reach them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from icevirt.api.sources.published_urls import prefix_url
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan
from icevirt.errors import InvalidInputError
from icevirt.model.strings import Strings
from icevirt.objects.source_access import in_force
from icevirt.planning.containers import containers_for

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # what stands unchanged as the host of a URL


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedContainers:
    """Names of containers by the URLs of their prefixes."""

    names: tuple[tuple[str, str], ...]  # (prefix, name), sorted

    @classmethod
    def of(cls, given: Mapping[Any, Any] | None) -> NamedContainers:
        """Read what a person passed: paths or URLs by name.

        Raises:
            InvalidInputError: A name cannot stand in a URL, a prefix is no path or URL, or has two
                names.
        """
        if not isinstance(given, Mapping | None):
            raise _refused(
                "containers must be a mapping of names to prefixes", found=type(given).__name__
            )
        names: dict[str, str] = {}
        for name, prefix in (given or {}).items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise _refused("not a valid container name", name=name)
            url = prefix_url(prefix)
            if url in names:
                raise _refused("a prefix has two names", url_prefix=url, names=[names[url], name])
            names[url] = name
        return cls(names=tuple(sorted(names.items())))

    def contained(self, facts: CatalogFacts, plan: BuildPlan) -> BuildPlan:
        """Return the plan with these containers, which say how `access` reached their objects.

        Raises:
            InvalidInputError: No file lies below a prefix, or its files are reached in several
                ways.
        """
        stores = in_force().stores()
        if not self.names and not stores:
            return plan
        found = containers_for(places_of(facts, plan), named=dict(self.names), stores=stores)
        return replace(plan, containers=found)


def places_of(facts: CatalogFacts, plan: BuildPlan) -> Strings:
    """Return what the references of a plan lead to: its files, or files that those refer to."""
    return plan.files.url if facts.places is facts.files.url else facts.places


def _refused(what: str, **facts: Any) -> InvalidInputError:
    return InvalidInputError(
        what,
        do='Pass containers={"archive": "s3://bucket/prefix/"} (--container archive=s3://...), with'
        " names of letters, digits, dots and dashes.",
        **facts,
    )
