"""Make commands from public functions, so that each parameter is declared once.

A command takes what its function takes, and the options of the objects that the function takes one
by one: names, types, defaults and texts are those of the function, its docstring and its objects.
What is different on a command line stands in a `FunctionCommand`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

import typer

import icevirt
from icevirt.archive.options import (
    DeclaredOption,
    Names,
    Options,
    choices_of,
    declare,
    spell_options,
)
from icevirt.cli.completion import COMPLETE, Complete
from icevirt.cli.options import (
    NOTATIONS,
    ExecutorOption,
    ExecutorWord,
    Notation,
    OutputOption,
    Quiet,
    ReportOption,
    running_on,
)
from icevirt.cli.output import REFUSED, CommandResult, Output, progress, show, show_error
from icevirt.errors import Fix, InvalidInputError

_OTHERWISE = ("executor", "progress", "store")  # parameters that are no options as they are
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

    text: str = ""
    """What the command does, where its help does not say what the function's docstring says."""

    arguments: tuple[str, ...] = ("repo",)
    """The parameters that stand without a flag, in their order; all others are options."""

    optional: tuple[str, ...] = ()
    """Parameters that the function needs and the command does not."""

    names: Mapping[str, str] = field(default_factory=dict)
    """What the command calls parameters, where that is another name."""

    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Flags of parameters that are not called as the parameter is."""

    notations: Mapping[str, Notation] = field(default_factory=dict)
    """How parameters are written that are not called so in every command (`NOTATIONS`)."""

    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Which options of an object the command takes, by keyword, where these are not all."""

    first: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Options that the function lacks and that stand before its own, with annotation, default."""

    more: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """The same behind its own; `status`, or `run`, is given them."""

    status: Callable[..., int] = lambda _value, **_more: 0
    """Returns the exit status for what the function returned."""

    is_confirmed: bool = False
    """Whether the plan is shown first, and a person asked."""

    has_page: bool = False
    """Whether ``--report`` writes a page about what the function returned."""

    run: Callable[..., CommandResult] | None = None
    """What runs in the place of the function, with the context, its arguments, how to show what it
    returns, and options that the function lacks."""


def command_of(command: FunctionCommand) -> Callable[..., CommandResult]:
    """Return what typer makes a command from."""
    function = _function_of(command.function)
    text, texts = texts_of(function)
    known = inspect.signature(function).parameters
    names = [name for name in known if name not in _OTHERWISE and not name.endswith(_OBJECT)]
    values = [_CommandParameter.of(known[name], function, command) for name in names]
    values.sort(key=lambda each: (*command.arguments, each.name).index(each.name))
    objects, options = _objects_of([name for name in known if name.endswith(_OBJECT)], command)
    spoken = {each.name: max(each.flags, key=len) for each in values if each.flags}

    def run(**given: Any) -> CommandResult:
        with running_on(given.pop("executor", ExecutorWord.auto)):
            return run_here(**given)

    def run_here(**given: Any) -> CommandResult:
        shown = {"output": given.pop("output"), "quiet": given.pop("quiet", False)}
        page, yes, ctx = (given.pop(name, None) for name in ("report", "yes", "ctx"))
        asked = {name: given.pop(name) for name in (*command.first, *command.more)}
        call = {each.name: each.read(given.pop(each.called)) for each in values}
        call |= group_options(objects, given)
        if command.run is not None:
            return command.run(
                ctx, call, shown, **asked, **({"report": page} if command.has_page else {})
            )

        def finish(**more: Any) -> Any:
            called = _function_of(command.function)
            if "progress" not in known:
                return called(**call, **more)
            with progress(quiet=shown["quiet"] or shown["output"] is Output.json) as tell:
                return called(**call, **more, progress=tell)

        if command.is_confirmed:
            dry_run = call.pop("dry_run")
            return confirm(finish, yes=bool(yes), dry_run=dry_run, **shown)
        value = finish()
        if page is not None:
            icevirt.to_html(call["repo"], page, snapshot_id=value.snapshot_id)
        return CommandResult(value=value, status=command.status(value, **asked), **shown)

    added = {
        **command.more,
        **({"yes": (Yes, False)} if command.is_confirmed else {}),
        **({"report": (ReportOption, None)} if command.has_page else {}),
        **({"executor": (ExecutorOption, ExecutorWord.auto)} if "executor" in known else {}),
        "output": (OutputOption, Output.text),
        **({"quiet": (Quiet, False)} if "progress" in known else {}),
    }
    parameters = [
        *([_parameter("ctx", typer.Context, inspect.Parameter.empty)] if command.run else []),
        *(_parameter(name, *each) for name, each in command.first.items()),
        *(each.parameter(in_flags(each.text or texts[each.name], spoken)) for each in values),
        *options,
        *(_parameter(name, *each) for name, each in added.items()),
    ]
    run.__name__, run.__doc__ = function.__name__, command.text or in_flags(text, spoken)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer looks at
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _function_of(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(":")
    found: Callable[..., Any] = getattr(import_module(module) if module else icevirt, function)
    return found


# -- values ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommandParameter:
    """A parameter of a function, as a command takes it."""

    name: str
    called: str  # by the command
    flags: tuple[str, ...]  # none of an argument
    default: Any
    kind: Any  # what typer reads
    notation: Notation | None
    is_repeated: bool
    completed: Complete | None

    @classmethod
    def of(
        cls, given: inspect.Parameter, function: Callable[..., Any], command: FunctionCommand
    ) -> _CommandParameter:
        name = given.name
        parts = _parts(given.annotation, function)
        notation = command.notations.get(name, NOTATIONS.get(name))
        is_repeated = (
            notation.repeats
            if notation
            else name == "files"
            or not {"Iterable", "Sequence"}.isdisjoint(
                getattr(get_origin(part), "__name__", "") for part in parts
            )
        )
        words: tuple[Any, ...] = next(filter(None, map(choices_of, parts)), ())
        known = {*parts, *map(type, words)}
        kind: Any = next((each for each in (bool, str, int, float) if each in known), str)
        if notation is not None and (notation.parser or notation.kind):
            kind = notation.kind or Any
        elif words and isinstance(words[0], str):
            kind = choice(words)
        called = command.names.get(name, "authorize" if name == _AUTHORIZATION else name)
        flags = command.flags.get(name, ("--" + called.replace("_", "-"),))
        return cls(
            name=name,
            called=called,
            flags=() if name in command.arguments else flags,
            default=None if name in command.optional else given.default,
            kind=kind,
            notation=notation,
            is_repeated=is_repeated,
            completed=COMPLETE.get(f"{command.function} {name}", COMPLETE.get(name)),
        )

    @property
    def text(self) -> str:
        """What the command says instead of the function."""
        return self.notation.doc if self.notation else ""

    def parameter(self, text: str) -> inspect.Parameter:
        """Return the parameter of the command; one without flags is an argument."""
        if self.flags and self.is_repeated and "may be repeated" not in text:
            text += " May be repeated."
        more: dict[str, Any] = {"help": text, "autocompletion": self.completed}
        if self.notation is not None:
            more |= {"metavar": self.notation.metavar, "parser": self.notation.parser}
        kind = list[self.kind] if self.is_repeated else self.kind  # type: ignore[name-defined]
        is_choice = isinstance(self.kind, type) and issubclass(self.kind, StrEnum)
        is_word = is_choice and isinstance(self.default, str)
        default = self.kind(self.default) if is_word else self.default
        if (self.is_repeated and self.flags) or default is None:
            kind, default = kind | None, None
        info = typer.Option(*self.flags, **more) if self.flags else typer.Argument(**more)
        return _parameter(self.called, Annotated[kind, info], default)

    def read(self, given: Any) -> Any:
        """Return what the function is given."""
        if (self.kind is bool and not given) or given is None or given == []:
            is_needed = self.default is inspect.Parameter.empty
            return self.notation.value(()) if is_needed and self.notation else self.default
        if self.notation is not None and self.notation.kind is None:
            return self.notation.value(given)
        return given.value if isinstance(given, StrEnum) else given


def choice(words: Iterable[str]) -> Any:
    """Return an enumeration of words, which shells complete."""
    make: Any = StrEnum  # whose members are known to nobody before
    return make("Choice", {f"word{at}": word for at, word in enumerate(words)})


# -- options of objects ---------------------------------------------------------------------------


def _objects_of(keywords: Sequence[str], command: FunctionCommand) -> tuple[list[Any], list[Any]]:
    """Return the option objects that a function takes, and their options as parameters."""
    if not keywords:  # most commands, which need none of what options import
        return [], []
    from icevirt.api.commit_options import BY_KEYWORD

    objects = [BY_KEYWORD[keyword] for keyword in keywords]
    return objects, [
        option_parameter(each)
        for one in objects
        for each in declare(one)
        if one.KEYWORD not in command.options or each.name in command.options[one.KEYWORD]
    ]


def option_parameter(each: DeclaredOption) -> inspect.Parameter:
    """Return the parameter of a command for an option of an object."""
    kind, default, more = _describe_type(each)
    repeats = each.kind is Names or (each.name in NOTATIONS and NOTATIONS[each.name].repeats)
    text = f"{each.option.doc} May be repeated." if repeats else each.option.doc
    completed = COMPLETE.get(each.name)
    option = typer.Option(each.flag, help=text, autocompletion=completed, **more)
    return _parameter(each.name, Annotated[kind, option], default)


def _describe_type(each: DeclaredOption) -> tuple[Any, Any, dict[str, Any]]:
    """Return the type that typer reads, the default, and further settings."""
    if (notation := NOTATIONS.get(each.name)) and notation.parser:
        more = {"parser": notation.parser, "metavar": notation.metavar}
        return (list[Any] | None, None, more) if notation.repeats else (Any, each.default, more)
    if each.kind is Names:
        return list[str] | None, None, {}
    if words := choices_of(each.kind):  # an enumeration, which shells complete
        choices = choice(words)
        return choices, None if each.default is None else choices(each.default), {}
    if each.kind is bool:
        return bool, each.default, {}
    meant = getattr(each.kind, "__value__", each.kind)
    known = [part for part in get_args(meant) or (meant,) if part is not NoneType]
    kind = next((part for part in (str, float, int) if part in known), str)
    return kind | None if each.default is None else kind, each.default, {}


def with_recipe(ctx: typer.Context, recipe: str | None, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call: from a recipe, and from the command line, which wins.

    Raises:
        InvalidInputError: The recipe is wrong.
    """
    if recipe is None:
        return dict(call)
    held = icevirt.load_recipe(recipe, call="plan" if ctx.info_name == "plan" else "build")
    found = {**call, **{name: value for name, value in held.items() if not _is_given(ctx, name)}}
    for keyword in (name for name in {**held, **call} if name.endswith(_OBJECT)):
        found[keyword] = {**held.get(keyword, {}), **call.get(keyword, {})}
    return found


def _is_given(ctx: typer.Context, option: str) -> bool:
    source = ctx.get_parameter_source(option)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def group_options(classes: Collection[type[Options]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a command by the keyword of their object, defaults left out.

    Raises:
        typer.BadParameter: An option does not take its value; the message names its flag.
    """
    made: dict[str, Any] = {}
    for options in classes:
        found = {
            each.name: value
            for each in declare(options)
            if each.name in given and (value := _value(each, given[each.name])) != each.default
        }
        try:
            with spell_options(lambda _, each: each.flag):
                options.of(found)
        except InvalidInputError as error:
            raise typer.BadParameter(str(error)) from error
        if found:
            made[options.KEYWORD] = found
    return made


def _value(each: DeclaredOption, given: Any) -> Any:
    if given is None or given == []:
        return each.default
    if each.name in NOTATIONS:
        return NOTATIONS[each.name].value(given)
    if isinstance(given, StrEnum):
        return given.value
    return list(given) if isinstance(given, tuple) else given


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
