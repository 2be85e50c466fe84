"""Reads recipe/recipe.yaml as rattler-build does, and compares it with pyproject.toml."""

import re
import sys
import tomllib
from pathlib import Path

from rattler_build import Stage0Recipe, VariantConfig

HERE = Path(__file__).resolve().parents[1]
NAMES = {"msgpack": "msgpack-python"}
"""What conda-forge calls otherwise."""


def main() -> int:
    """Return 1, and say so, where the recipe differs from the distribution."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    variants = VariantConfig.from_file(str(HERE / "recipe" / "variants.yaml"))
    recipe = Stage0Recipe.from_file(str(HERE / "recipe" / "recipe.yaml"))
    (rendered,) = recipe.render(variants)
    stage = rendered.recipe.to_dict()
    wanted = {f"python{project['requires-python']}", "__unix"}
    for each in project["dependencies"]:
        name, rest = re.fullmatch(r"([\w-]+)(.*)", each).groups()  # type: ignore[union-attr]
        wanted.add(NAMES.get(name, name) + rest)
    given = {each.replace(" ", "") for each in _texts(stage["requirements"]["run"])}
    version = re.search(r'__version__ = "(.*)"', (HERE / "icevirt/version.py").read_text())
    problems = [f"only in the recipe: {each}" for each in sorted(given - wanted)]
    problems += [f"not in the recipe: {each}" for each in sorted(wanted - given)]
    if version is None or stage["package"]["version"] != version[1]:
        problems.append(f"its version is {stage['package']['version']}")
    print(
        *(problems or [f"recipe of {rendered}: read by rattler-build, as pyproject.toml"]), sep="\n"
    )
    return int(bool(problems))


def _texts(requirements: list[object]) -> list[str]:
    return [each if isinstance(each, str) else str(each) for each in requirements]


if __name__ == "__main__":
    sys.exit(main())
