"""On a cluster with one of the usual mistakes, the error names the executor and what to do."""

import os
import re
from pathlib import Path

import pytest

from clusters.mistakes import BOTH, DEED, MISTAKES, PLAIN

PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"
BEGIN, END = "<!-- written by `just clusters` -->", "<!-- until here -->"
SAID: dict[str, str] = {}


@pytest.fixture(scope="module")
def driver(standalone):
    """One driver, which starts a session for each build."""
    with standalone.asking(DEED) as found:
        yield found


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_executor_and_its_remedy(standalone, driver, name):
    mistake = MISTAKES[name]
    hosts = [standalone.network.hosts[each] for each in ("worker-a", "worker-b")]
    settings = standalone.settings(mistake.executor_variables()) | mistake.settings
    arguments = PLAIN | {"repo": f"{PLAIN['repo']}-{name.split()[0]}"} | dict(mistake.arguments)
    hosts[1].sh(mistake.made)
    try:
        output = driver.ask(settings, **arguments)
    finally:
        for host in hosts if mistake.executors == BOTH else hosts[1:]:
            host.sh(mistake.undone)
    assert output.get("error") == "ExecutorError", output
    assert re.search(mistake.says, output["text"]), output
    assert re.search(mistake.remedy, output["text"]), output
    named = re.findall(r"executor='([^']+)'", output["text"])
    assert named[:1] in ([[each] for each in mistake.executors] or [[]]), output
    SAID[name] = output["text"]


def test_a_build_without_mistakes_succeeds(standalone, driver):
    """So the errors above have no other cause."""
    settings = standalone.settings(MISTAKES["missing package"].executor_variables())
    assert driver.ask(settings, **PLAIN) == {"result": None}


@pytest.fixture(scope="module", autouse=True)
def written():
    """Write the messages into the page, where the recipe asks for it."""
    yield
    if os.environ.get("ICEVIRT_WRITE_PAGE") and len(SAID) == len(MISTAKES):
        rows = [f"| {MISTAKES[name].title} | {_cell(SAID[name])} |" for name in MISTAKES]
        table = "\n".join(["| mistake | what the build says |", "|---|---|", *rows])
        text = PAGE.read_text()
        before, _, rest = text.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")


def _cell(text: str) -> str:
    """Return a message as a cell of a table, without what differs from run to run."""
    text = re.sub(r"/icevirt/builds/[0-9a-f]+(?:/preflight/[0-9a-f]+/\w+)?", "/...", text)
    text = re.sub(r"cause='(?:[^'\\]|\\.)*'", lambda found: _shortened(found.group()), text)
    return "`" + text.replace("|", "\\|").replace("`", "") + "`"


def _shortened(cause: str) -> str:
    return cause if len(cause) < 200 else f"{cause[:60]} ... {cause[-120:]}"
