"""`ilb simulate`: a command for each world, with an option for each value that describes it or says what to record."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ilb.cli.console import require_directory, require_short_names
from ilb.cli.stopping import telling_of_stops
from ilb.errors import IlbError

if TYPE_CHECKING:
    from ilb.environments import AbstractDescription

Out = Annotated[Path, typer.Option(help="Table to write (.parquet or .csv); test table and world go beside it.")]


class Worlds(TyperGroup):
    """The commands; worlds are imported, and JAX with them, when somebody asks for one."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        from ilb.environments import WORLDS

        return list(WORLDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        from ilb.environments import WORLDS

        if cmd_name not in WORLDS:
            from ilb.logs.messages import near

            raise IlbError(f"no world is named {cmd_name!r}; there are {', '.join(WORLDS)}.{near(cmd_name, WORLDS)}")
        kind, alone = WORLDS[cmd_name], typer.Typer(add_completion=False)
        alone.command(cmd_name, help=(kind.__doc__ or "").split("\n")[0])(_command(kind))
        return typer.main.get_command(alone)


def _command(kind: type[AbstractDescription]) -> Callable[..., None]:
    """Write the command as a function whose signature, which Typer reads, follows from the description."""
    from ilb.environments import Plan, Specification

    def simulate(out: Path, **values: Any) -> None:
        from ilb.cli.commands import write_simulation

        require_directory(out.parent)
        require_short_names(out, Path.cwd())
        if out.is_dir():
            raise IlbError(f"--out must be the name of a table, .parquet or .csv; {out} is a directory.")
        with telling_of_stops(out):
            write_simulation(Specification.of(kind.name, values), out)

    values = [one for part in (Plan, kind, Specification) for one in fields(part) if one.metadata]
    out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, annotation=Out)
    options = [out, *(_option(kind, one) for one in values)]
    simulate.__annotations__ = {option.name: option.annotation for option in options}
    simulate.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return simulate


def _option(kind: type[AbstractDescription], value: Field[Any]) -> inspect.Parameter:
    default, rules = getattr(kind.plan, value.name, value.default), value.metadata
    number: Any = int | None if default is None else type(default)
    if rules["choices"]:
        option = typer.Option(help=f"{rules['says']}: {', '.join(rules['choices'])}.")
    else:
        option = typer.Option(help=rules["says"], min=rules["least"])
    name, annotation = kind.words.get(value.name, value.name), Annotated[number, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
