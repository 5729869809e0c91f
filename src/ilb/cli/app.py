"""The commands and their options; the work is in the library, which is imported only when a command runs."""

from __future__ import annotations

import signal
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ilb.cli.console import require_directory, say, show_warning, tell, write_in_any_encoding
from ilb.cli.stopping import flushed, interruptible, leave, received, telling_of_stops
from ilb.cli.worlds import Worlds
from ilb.errors import IlbError
from ilb.files import reason
from ilb.threads import compute_on_one_thread
from ilb.version import __version__

app = typer.Typer(
    help="Identifiable latent bandits: learn from the records of earlier people what is best for the next one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
simulate = typer.Typer(help="Write logs of a simulated world.", no_args_is_help=True, cls=Worlds)
app.add_typer(simulate, name="simulate")

Out = Annotated[Path, typer.Option(help="Where to write.")]


def _print_version(wanted: bool) -> bool:
    if wanted:
        say(f"ilb {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    del version


def _list_recipes(wanted: bool) -> bool:
    if wanted:
        from ilb.cli.commands import list_recipes

        list_recipes()
        raise typer.Exit
    return wanted


@app.command()
def fit(
    logs: Annotated[Path, typer.Argument(help="Table of past cases: .csv or .parquet.")],
    instance: Annotated[str, typer.Option(help="Column that says who.")],
    action: Annotated[str, typer.Option(help="Column that says what was done.")],
    reward: Annotated[str, typer.Option(help="Column that says what came of it.")],
    out: Annotated[Path, typer.Option(help="Directory to save the model in.")],
    time: Annotated[str | None, typer.Option(help="Column that says when (default: the table's order).")] = None,
    context: Annotated[
        list[str] | None, typer.Option(help="Column that was observed; repeat it (default: all other columns).")
    ] = None,
    categorical: Annotated[list[str] | None, typer.Option(help="Context column to be read as categories.")] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Column to leave out of the context, such as age; repeat it.")
    ] = None,
    latent_dim: Annotated[int | None, typer.Option(help="Dimension of the encoding (default: chosen).")] = None,
    recipe: Annotated[
        str, typer.Option(help="How contexts are encoded; auto compares held-out people, --recipes lists the ways.")
    ] = "auto",
    reward_model: Annotated[str, typer.Option(help="How rewards follow; auto compares, --recipes lists.")] = "auto",
    recipes: Annotated[
        bool, typer.Option("--recipes", help="List the recipes.", callback=_list_recipes, is_eager=True)
    ] = False,
    test_share: Annotated[float, typer.Option(min=0, max=0.9, help="Share of instances held out for scores.")] = 0.2,
    seed: Annotated[
        int, typer.Option(help="Seed: on one kind of machine the same logs and seed give the same model.")
    ] = 0,
    keep_interrupted: Annotated[
        bool,
        typer.Option("--keep-interrupted", help="After Ctrl-C, save what training reached in OUT.interrupted."),
    ] = False,
) -> None:
    """Learn a model from logs, say how good it is, and save it."""
    del recipes
    kept = out.with_name(f"{out.name}.interrupted") if keep_interrupted else None
    for place in (out, kept):
        if place is not None:
            _require_room_for_a_model(place)
    columns: dict[str, Any] = {
        "instance": instance,
        "time": time,
        "action": action,
        "reward": reward,
        "context": context or None,
        "categorical": categorical or (),
        "drop": drop or (),
    }
    with telling_of_stops(out, *([] if kept is None else [kept])):
        from ilb.cli.commands import fit_table

        pinned: dict[str, Any] = {"latent_dim": latent_dim, "recipe": recipe, "reward": reward_model}
        fit_table(logs, columns, out, **pinned, test_share=test_share, seed=seed, kept=kept)


def _require_room_for_a_model(out: Path) -> None:
    from ilb.models.storage import MANIFEST

    require_directory(out)
    if out.is_dir() and any(out.iterdir()) and not ((out / MANIFEST).is_file() or any(out.glob("arrays-*"))):
        raise IlbError(f"{out} holds other files and no model. Choose an empty or new directory as --out.")


@app.command()
def score(
    model: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    logs: Annotated[Path, typer.Argument(help="Table of instances that the model has not seen.")],
    train: Annotated[
        Path | None, typer.Option(help="The table the model was fitted on; adds the reference lines.")
    ] = None,
    world: Annotated[
        Path | None, typer.Option(help="The .world.json that `ilb simulate` wrote; adds scores against the truth.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Score a saved model on unseen instances."""
    with telling_of_stops():
        from ilb.cli.commands import score_table

        score_table(model, logs, train=train, world=world, as_json=as_json)


@app.command()
def demo(
    out: Out = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
) -> None:
    """Simulate records, learn a model from them, and decide for 200 new people: everything in a minute or two."""
    require_directory(out)
    with telling_of_stops(out):
        from ilb.cli.demo import run_demo

        run_demo(out, seed)


@app.command()
def reproduce(
    labels: Annotated[list[str] | None, typer.Argument(help="LaTeX labels of tables and figures, or all.")] = None,
    scale: Annotated[float, typer.Option(help="Share of the paper's size; below 0.2 only to see that it works.")] = 1.0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes on this machine (default: all cores).")] = None,
    backend: Annotated[str, typer.Option(help="Where work runs: loky (here), dask or ray.")] = "loky",
    cluster: Annotated[str | None, typer.Option(help="Address of a running Dask or Ray cluster.")] = None,
    out: Out = Path("reproduction"),
    show_list: Annotated[
        bool, typer.Option("--list", help="List the labels, what they need and how long it takes.")
    ] = False,
) -> None:
    """Reproduce tables and figures of the paper, and test its claims; run it again to go on after a stop."""
    require_directory(out)
    with telling_of_stops():
        from ilb_paper import command as work

        if show_list:
            work.list_experiments(labels or ["all"], scale, out)
            return
    code = work.reproduce(labels or [], scale=scale, jobs=jobs, backend=backend, cluster=cluster, out=out)
    raise typer.Exit(code)


def main() -> NoReturn:
    """Be the program: run the command, and end without anything that an interrupt could still disturb."""
    with interruptible(signal.SIGINT):
        try:
            write_in_any_encoding()
            compute_on_one_thread()
            code = run()
        except KeyboardInterrupt:  # in the last moment, when all is done
            code = INTERRUPTED
        leave(code)


def run() -> int:
    """Run a command and give its exit code; what goes wrong is told in one line, without a traceback."""
    warnings.showwarning = show_warning
    received.clear()
    with interruptible(signal.SIGINT):
        code = _run()
        if not flushed() and code == 0:
            return WRONG
        return 128 + received[-1] if received and code == INTERRUPTED else code


WRONG = 2
"""The exit code after an error that was told."""

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def _run() -> int:
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        # Compiled code may turn an interrupt into an error of its own.
        if received and "KeyboardInterrupt" in "".join(traceback.format_exception(error)):
            return INTERRUPTED
        said = _in_one_line(error)
        if said is None:
            raise
        tell(said, "Error", "red")
        return WRONG
    return 0


def _in_one_line(error: Exception) -> str | None:
    """Say what a user can do about an error; None for one that is a mistake of ours."""
    if isinstance(error, IlbError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {reason(error)}." if error.filename else f"{reason(error)}."
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "this takes more memory than there is. Use fewer instances, rows or columns."
    return None
