"""Make commands from public functions, so that each parameter is declared once.

A command takes what its function takes: names, types, defaults and texts are those of the function
and its docstring. What is different on a command line stands in a `FunctionCommand`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

import typer

import icevirt
from icevirt.archive.options import choices_of
from icevirt.cli.options import NOTATIONS, Notation, OutputOption, Quiet, ReportOption
from icevirt.cli.output import CommandResult, Output, progress, show, show_error
from icevirt.cli.statuses import REFUSED
from icevirt.errors import Fix, InvalidInputError

_ONLY_IN_PYTHON = ("executor", "progress", "store")
_OBJECT = "_options"  # how parameters end that take an option object
_AUTHORIZATION = "authorize_virtual_chunk_access"  # which is --authorize on a command line

Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do it without asking, as scripts have to say.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCommand:
    """What the command of a function has of its own."""

    function: str
    """A name of `icevirt`, or the module and name of the function, with a colon between them."""

    arguments: tuple[str, ...] = ("repo",)
    """The parameters that stand without a flag, in their order; all others are options."""

    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Flags of parameters that are not called as the parameter is."""

    notations: Mapping[str, Notation] = field(default_factory=dict)
    """How parameters are written that are not called so in every command (`NOTATIONS`)."""

    more: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Options that the function lacks, with annotation and default; `status` is given them."""

    status: Callable[..., int] = lambda _value, **_more: 0
    """Returns the exit status for what the function returned."""

    is_confirmed: bool = False
    """Whether the plan is shown first, and a person asked."""

    has_page: bool = False
    """Whether ``--report`` writes a page about what the function returned."""


def command_of(command: FunctionCommand) -> Callable[..., CommandResult]:
    """Return what typer makes a command from."""
    function = _function_of(command.function)
    text, texts = texts_of(function)
    known = inspect.signature(function).parameters
    taken = [
        each
        for name, each in known.items()
        if name not in _ONLY_IN_PYTHON and not name.endswith(_OBJECT)
    ]
    options = _OptionObjects.of([name for name in known if name.endswith(_OBJECT)])
    flags = {each.name: _flags_of(each.name, command) for each in taken}
    spoken = {
        name: max(given, key=len) for name, given in flags.items() if name not in command.arguments
    }
    values = [_CommandParameter.of(each, function, command) for each in taken]

    def run(**given: Any) -> CommandResult:
        output, quiet = given.pop("output"), given.pop("quiet", False)
        page = given.pop("report", None)
        asked = {name: given.pop(name) for name in command.more}
        yes = given.pop("yes", False)
        call = {each.name: each.read(given.pop(_parameter_of(each.name))) for each in values}
        call |= options.read(given)

        def done(**more: Any) -> Any:
            called = _function_of(command.function)
            if "progress" not in known:
                return called(**call, **more)
            with progress(quiet=quiet or output is Output.json) as tell:
                return called(**call, **more, progress=tell)

        if command.is_confirmed:
            dry_run = call.pop("dry_run")
            return confirm(done, yes=yes, dry_run=dry_run, output=output, quiet=quiet)
        value = done()
        if page is not None:
            icevirt.to_html(call["repo"], page, snapshot_id=value.snapshot_id)
        status = command.status(value, **asked)
        return CommandResult(value=value, output=output, quiet=quiet, status=status)

    order = {name: place for place, name in enumerate(command.arguments)}
    values.sort(key=lambda each: order.get(each.name, len(order)))
    parameters = [
        each.parameter(
            () if each.name in command.arguments else flags[each.name],
            in_flags(each.text or texts[each.name], spoken),
        )
        for each in values
    ]
    added = {
        **command.more,
        **({"yes": (Yes, False)} if command.is_confirmed else {}),
        **({"report": (ReportOption, None)} if command.has_page else {}),
        "output": (OutputOption, Output.text),
        **({"quiet": (Quiet, False)} if "progress" in known else {}),
    }
    parameters += options.parameters
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in added.items()
    ]
    run.__name__, run.__doc__ = function.__name__, in_flags(text, spoken)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer looks at
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _function_of(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(":")
    found: Callable[..., Any] = getattr(import_module(module) if module else icevirt, function)
    return found


def _parameter_of(name: str) -> str:
    """Return what the command calls a parameter of its function."""
    return "authorize" if name == _AUTHORIZATION else name


def _flags_of(name: str, command: FunctionCommand) -> tuple[str, ...]:
    return command.flags.get(name, ("--" + _parameter_of(name).replace("_", "-"),))


# -- values ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommandParameter:
    """A parameter of a function, as a command takes it."""

    name: str
    default: Any
    kind: Any  # what typer reads
    notation: Notation | None
    is_flag: bool
    is_repeated: bool

    @classmethod
    def of(
        cls, given: inspect.Parameter, function: Callable[..., Any], command: FunctionCommand
    ) -> _CommandParameter:
        parts = _parts(given.annotation, function)
        notation = command.notations.get(given.name, NOTATIONS.get(given.name))
        is_repeated = (
            notation.repeats
            if notation
            else given.name == "files"
            or not {"Iterable", "Sequence"}.isdisjoint(
                getattr(get_origin(part), "__name__", "") for part in parts
            )
        )
        words: tuple[Any, ...] = next(filter(None, map(choices_of, parts)), ())
        known = {*parts, *map(type, words)}
        kind: Any = next((each for each in (bool, str, int, float) if each in known), str)
        if notation is not None and notation.parser is not None:
            kind = Any
        elif words and isinstance(words[0], str):
            make_enum: Any = StrEnum  # whose members are known to nobody before
            kind = make_enum("Choice", {f"word{at}": word for at, word in enumerate(words)})
        return cls(
            name=given.name,
            default=given.default,
            kind=kind,
            notation=notation,
            is_flag=kind is bool,
            is_repeated=is_repeated,
        )

    @property
    def text(self) -> str:
        """What the command says instead of the function."""
        return self.notation.doc if self.notation else ""

    def parameter(self, flags: Sequence[str], text: str) -> inspect.Parameter:
        """Return the parameter of the command; one without flags is an argument."""
        repeats = " May be repeated." if flags and self.is_repeated else ""
        more: dict[str, Any] = {"help": text + repeats}
        if self.notation is not None:
            more |= {"metavar": self.notation.metavar, "parser": self.notation.parser}
        kind = list[self.kind] if self.is_repeated else self.kind  # type: ignore[name-defined]
        default = self.kind(self.default) if self._is_choice() else self.default
        if (self.is_repeated and flags) or default is None:
            kind, default = kind | None, None
        info = typer.Option(*flags, **more) if flags else typer.Argument(**more)
        return inspect.Parameter(
            _parameter_of(self.name),
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, info],
        )

    def _is_choice(self) -> bool:
        is_choice = isinstance(self.kind, type) and issubclass(self.kind, StrEnum)
        return is_choice and isinstance(self.default, str)

    def read(self, given: Any) -> Any:
        """Return what the function is given."""
        if (self.is_flag and not given) or given is None or given == []:
            is_needed = self.default is inspect.Parameter.empty
            return self.notation.value(()) if is_needed and self.notation else self.default
        if self.notation is not None:
            return self.notation.value(given)
        return given.value if isinstance(given, StrEnum) else given


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptionObjects:
    """The options of the objects that a function takes, which a command takes one by one."""

    parameters: tuple[inspect.Parameter, ...] = ()
    read: Callable[[Mapping[str, Any]], dict[str, Any]] = dict  # returns objects by their keywords

    @classmethod
    def of(cls, keywords: Sequence[str]) -> _OptionObjects:
        if not keywords:  # most commands, which need none of what options import
            return cls()
        from icevirt.api.commit_options import BY_KEYWORD
        from icevirt.archive.options import declared
        from icevirt.cli.declared import grouped, option_parameter

        objects = [BY_KEYWORD[keyword] for keyword in keywords]
        parameters = [option_parameter(each) for one in objects for each in declared(one)]
        return cls(parameters=tuple(parameters), read=lambda given: grouped(objects, given))


def _parts(annotation: str, function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the types of a union; names that are imported for typing only are texts here."""
    names = inspect.unwrap(function).__globals__
    found: list[Any] = []
    pending: list[ast.expr] = [ast.parse(annotation, mode="eval").body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.BinOp):
            pending += [node.left, node.right]
            continue
        try:
            meant = eval(ast.unparse(node), names)  # noqa: S307 - the source of the function
        except NameError:
            meant = str
        meant = getattr(meant, "__value__", meant)
        found += get_args(meant) if isinstance(meant, UnionType) else (meant,)
    return tuple(found)


# -- texts ----------------------------------------------------------------------------------------


def texts_of(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of a function, and of each parameter."""
    text, _, rest = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    section = re.split(r"\n(?=\S)", rest)[0]
    found = re.findall(r"^    (\w+): ((?:.|\n(?!    \w+: ))*)", section, re.MULTILINE)
    return re.split(r"\n\n(?:Raises|Returns|Examples):\n| Raises ``", text)[0], {
        name: " ".join(words.split()) for name, words in found
    }


def in_flags(text: str, flags: Mapping[str, str]) -> str:
    """Return a text in the words of the command line: parameters by their flags, no marks."""
    text = re.sub(r"``([^`]+)``", lambda found: flags.get(found[1], found[1]), text)
    return re.sub(r"`icevirt\.(\w+)`", r"icevirt \1", text).replace("`", "")


# -- asking ---------------------------------------------------------------------------------------


def confirm(
    run: Callable[..., Any], *, yes: bool, dry_run: bool, output: Output, quiet: bool
) -> CommandResult:
    """Return what a call did, or its plan; on a terminal, a person is asked in between.

    Where nobody can be asked, and --yes was not given, the status is 1.
    """
    if yes and not dry_run:
        return CommandResult(value=run(dry_run=False), output=output, quiet=quiet)
    plan = run(dry_run=True)
    if dry_run:
        return CommandResult(value=plan, output=output, quiet=quiet)
    if not (output is Output.text and sys.stdin.isatty() and sys.stdout.isatty()):
        show(CommandResult(value=plan, output=output, quiet=quiet))
        again = Fix(python="", flags=("--yes",), price="does what is shown")
        show_error(InvalidInputError("nothing was changed without --yes", fixes=[again]))
        raise typer.Exit(REFUSED)
    show(CommandResult(value=plan))
    if not typer.confirm("Do this?"):
        return CommandResult(value=plan, output=output, quiet=True, status=REFUSED)
    return CommandResult(value=run(dry_run=False), output=output, quiet=quiet)
