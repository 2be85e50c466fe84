"""Python on every page names what there is: what no test runs is at least compiled and bound."""

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest

import icevirt
import icevirt.dask
import icevirt.icechunk.dask
import icevirt.spark
import icevirt.virtualizarr
import icevirt.xarray
from icevirt.api.commit_options import BY_KEYWORD

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("icevirt/**/*.md")])
BLOCK = re.compile(r"^( *)```(?:python|py)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[str]:
    return [textwrap.dedent(block) for _, block in BLOCK.findall(text)]


def named(node: ast.expr) -> object:
    """Return what an expression like ``icevirt.errors.X`` names, or None if it is not of ours."""
    if isinstance(node, ast.Name):
        return icevirt if node.id == "icevirt" else None
    if isinstance(node, ast.Attribute) and (owner := named(node.value)) is not None:
        value = getattr(owner, node.attr, None)
        assert value is not None, ast.unparse(node)
        return value if inspect.ismodule(owner) or inspect.isclass(owner) else None
    return None


def check(code: str) -> None:
    """Fail where code does not compile, or calls what is not there or takes other arguments."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            named(node)
        if isinstance(node, ast.Call) and callable(called := named(node.func)):
            values = {each.arg: each.value for each in node.keywords if each.arg}
            if len(values) == len(node.keywords) and not any(
                isinstance(each, ast.Starred) for each in node.args
            ):
                inspect.signature(called).bind(*node.args, **values)
            for keyword, value in values.items():
                options(keyword, value)


def options(keyword: str, value: ast.expr) -> None:
    """Make the option object of a dictionary that is written out."""
    if keyword in BY_KEYWORD and isinstance(value, ast.Dict):
        try:
            given = ast.literal_eval(value)
        except ValueError:
            return
        BY_KEYWORD[keyword](**given)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_of_a_page_names_what_there_is(page):
    for block in blocks(page.read_text()):
        check(block)


def test_a_test_runs_the_python_of_each_page():
    """Blocks of `python` are run by the test that names their page; those of `py` are not."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    shown = [page.name for page in PAGES if "\n```python\n" in page.read_text()]
    assert [name for name in shown if f"{name}" not in tests] == []


def test_the_check_finds_what_is_wrong():
    for wrong in (
        "icevirt.buidl('a', 'b')",
        "icevirt.build('a', 'b', holes=1)",
        "icevirt.build('a', 'b', combine_options={'missing': 'x'})",
        "icevirt.errors.NoError",
        "icevirt.Repository.opn('a')",
        "x = (",
    ):
        with pytest.raises((AssertionError, TypeError, SyntaxError, icevirt.InvalidInputError)):
            check(wrong)
