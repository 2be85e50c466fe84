"""Write ``icevirt/__init__.pyi``: the public names, as type checkers and editors read them.

Run it after a change of `icevirt._EXPORTS`: ``python docs/make_stub.py``.
"""

from __future__ import annotations

from pathlib import Path

import icevirt

STUB = Path(icevirt.__file__).with_suffix(".pyi")
HEAD = """# Written by docs/make_stub.py from the table in __init__.py.

from icevirt import errors
"""


def stub() -> str:
    """Return the stub: an import of each name from its module, and ``__all__``.

    Every list ends in a comma, so that the formatter leaves one name on each line.
    """
    exports = icevirt._EXPORTS | {"icevirt.version": "__version__"}  # noqa: SLF001 - its table
    imports = [
        _listed(f"from {module} import (", sorted(names.split(), key=_like_ruff), ")")
        for module, names in sorted(exports.items())
    ]
    quoted = [f'"{name}"' for name in sorted(icevirt.__all__)]
    return HEAD + "".join(imports) + "\n" + _listed("__all__ = [", quoted, "]")


def _like_ruff(name: str) -> tuple[bool, str]:
    """Return the sorting key of ruff: classes before functions."""
    return not name[0].isupper(), name


def _listed(begin: str, names: list[str], end: str) -> str:
    return "\n".join([begin, *(f"    {name}," for name in names), end]) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub())
