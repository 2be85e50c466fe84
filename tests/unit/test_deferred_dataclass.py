"""Classes of `icevirt.deferred_dataclass` are those of the standard library, compiled later."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import ClassVar

import pytest

from icevirt import deferred_dataclass
from icevirt.model.repo_info import NewCommit

OPTIONS = {
    "plain": {},
    "frozen": {"frozen": True},
    "frozen, slots": {"frozen": True, "slots": True},
    "keywords only": {"frozen": True, "slots": True, "kw_only": True},
    "identity": {"frozen": True, "slots": True, "eq": False},
    "own repr": {"slots": True, "repr": False},
}


def classes(decorate, options):
    @decorate(**options)
    class Point:
        """A point."""

        x: int
        name: str = "a"
        parts: list = dataclasses.field(default_factory=list, repr=False)
        kind: ClassVar[str] = "point"
        uses: int = dataclasses.field(default=0, init=False)

        def __post_init__(self):
            if self.x == 13:
                raise ValueError(self.x)

    @decorate(**options)
    class Weighted(Point):  # noqa: PLW1641 - the decorator decides
        """A point with a weight."""

        weight: float = 1.0

        def __eq__(self, other):
            return self.weight == other.weight

    return Point, Weighted


def seen(cls):
    """All that a user can see of a class."""
    output = [
        str(inspect.signature(cls)),
        cls.__match_args__,
        cls.__doc__,
        hasattr(cls, "__dict__"),
    ]
    output += [[(f.name, f.type, f.kw_only) for f in dataclasses.fields(cls)]]
    made = [cls(x=number) for number in (1, 1, 2)]
    output.append([repr(each).replace(hex(id(each)), "") for each in made])
    output.append([each == made[0] for each in made])
    for act in (
        lambda: [hash((each.x, each.name)) == hash(each) for each in made if cls.__hash__],
        lambda: type(hash(made[0])),
        lambda: setattr(made[0], "x", 5),
        lambda: delattr(made[0], "name"),
        cls,
        lambda: cls(13),
        lambda: cls(1, "b", unknown=3),
        lambda: dataclasses.replace(made[0], x=9).x,
        lambda: dataclasses.asdict(made[0]),
        lambda: copy.copy(made[0]).x,
        lambda: made[0].parts is not made[-1].parts,
        lambda: cls(1).uses,
    ):
        try:
            output.append(act())
        except (TypeError, ValueError, AttributeError) as error:  # which is what is compared
            output.append((type(error), str(error)))
    return output


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_classes_behave_as_those_of_the_standard_library(options):
    for ours, theirs in zip(
        classes(deferred_dataclass.dataclass, options),
        classes(dataclasses.dataclass, options),
        strict=True,
    ):
        assert seen(ours) == seen(theirs)


def test_a_subclass_of_a_frozen_class_has_attributes_of_its_own():
    for decorate in (deferred_dataclass.dataclass, dataclasses.dataclass):
        point, _ = classes(decorate, {"frozen": True})
        mere = type("Mere", (point,), {})(1)
        mere.other = 5
        del mere.other
        with pytest.raises(dataclasses.FrozenInstanceError):
            mere.x = 5
        with pytest.raises(dataclasses.FrozenInstanceError):
            point(1).other = 5


def test_a_frozen_class_is_not_inherited_by_one_that_is_not():
    point, _ = classes(deferred_dataclass.dataclass, {"frozen": True})
    with pytest.raises(TypeError, match="non-frozen"):
        deferred_dataclass.dataclass(type("Loose", (point,), {}))
    with pytest.raises(TypeError, match=r"dataclasses\.dataclass for order"):
        deferred_dataclass.dataclass(order=True)


def test_values_pickle():
    commit = NewCommit("main", 1)
    assert pickle.loads(pickle.dumps(commit)) == commit
    assert copy.deepcopy(commit) == commit


def test_nothing_is_compiled_before_it_is_used_often():
    code = (
        "from icevirt.model.repo_info import NewCommit as c\n"
        "def kinds(*names): return [type(vars(c)[n]).__name__ for n in names]\n"
        "assert c('main', 1) == c('main', 1) != c('main', 2)\n"
        "before = kinds('__init__', '__eq__', '__repr__')\n"
        "for _ in range(200): assert c('main', 1) == c('main', 1) != c('main', 2)\n"
        "print(*before, *kinds('__init__', '__eq__', '__repr__'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["_Deferred"] * 3 + ["function"] * 2 + ["_Deferred"]
