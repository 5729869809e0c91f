"""The commands and their options; the work is in the library, which is imported only when a command runs."""

from __future__ import annotations

import shlex
import signal
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ilb.cli.console import busy, require_directory, require_file, say, show_warning, tell, write_in_any_encoding
from ilb.cli.stopping import flushed, interruptible, leave, received, telling_of_stops
from ilb.cli.wording import in_options
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
Table = Annotated[Path, typer.Argument(help="Table of past cases: .csv, .csv.gz or .parquet.")]
Instance = Annotated[str, typer.Option(help="Column that says who.")]
Action = Annotated[str, typer.Option(help="Column that says what was done.")]
Reward = Annotated[str, typer.Option(help="Column that says what came of it.")]
Time = Annotated[str | None, typer.Option(help="Column that says when (default: the table's order).")]
Context = Annotated[
    list[str] | None, typer.Option(help="Column that was observed; repeat it (default: all other columns).")
]
Categorical = Annotated[list[str] | None, typer.Option(help="Context column to be read as categories.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out of the context, such as age; repeat it.")]
LatentDim = Annotated[int | None, typer.Option(help="Dimension of an encoding that is trained (default: chosen).")]
Recipe = Annotated[
    str, typer.Option(help="How contexts are encoded; auto compares held-out people, `ilb fit --recipes` lists.")
]
RewardModel = Annotated[str, typer.Option(help="How rewards follow; auto compares, `ilb fit --recipes` lists.")]


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
    logs: Table,
    instance: Instance,
    action: Action,
    reward: Reward,
    out: Annotated[Path, typer.Option(help="Directory to save the model in.")],
    time: Time = None,
    context: Context = None,
    categorical: Categorical = None,
    drop: Drop = None,
    latent_dim: LatentDim = None,
    recipe: Recipe = "auto",
    reward_model: RewardModel = "auto",
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
    columns = _columns(instance, time, action, reward, context, categorical, drop)
    with telling_of_stops(out, *([] if kept is None else [kept])):
        with busy(STARTING):
            from ilb.cli.commands import fit_table

        pinned: dict[str, Any] = {"latent_dim": latent_dim, "recipe": recipe, "reward": reward_model}
        fit_table(logs, columns, out, **pinned, test_share=test_share, seed=seed, kept=kept)


def _columns(
    instance: str,
    time: str | None,
    action: str,
    reward: str,
    context: list[str] | None,
    categorical: list[str] | None,
    drop: list[str] | None,
) -> dict[str, Any]:
    """Give what `Logs.from_frame` is told of a table."""
    return {
        "instance": instance,
        "time": time,
        "action": action,
        "reward": reward,
        "context": context or None,
        "categorical": categorical or (),
        "drop": drop or (),
    }


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
        with busy(STARTING):
            from ilb.cli.commands import score_table

        score_table(model, logs, train=train, world=world, as_json=as_json)


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    logs: Annotated[Path, typer.Argument(help="Table of past cases: the one it was fitted on, or another.")],
    unseen: Annotated[
        bool, typer.Option("--unseen", help="The model has not seen these people, so nothing is fitted again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write the checks to: .json, .csv or .parquet.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of fits and of chance.")] = 0,
) -> None:
    """Check whether a model may be trusted on a table; the exit code is 3 if something is broken."""
    if out is not None:
        require_file(out, ".json", ".csv", ".parquet")
    with telling_of_stops():
        with busy(STARTING):
            from ilb.cli.check import check_table

        code = check_table(model, logs, unseen=unseen, seed=seed, as_json=as_json, out=out)
    raise typer.Exit(code)


@app.command()
def evaluate(
    logs: Table,
    instance: Instance,
    action: Action,
    reward: Reward,
    time: Time = None,
    context: Context = None,
    categorical: Categorical = None,
    drop: Drop = None,
    policy: Annotated[str, typer.Option(help="Policy of the roster that decides.")] = "Adaptive",
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Decisions for each person (default: as many as can be followed, to 30).")
    ] = None,
    propensity: Annotated[
        str | None, typer.Option(help="Column with the probability of each row's action (default: estimated).")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts of the people; each is decided for by the others'.")] = 5,
    latent_dim: LatentDim = None,
    recipe: Recipe = "auto",
    reward_model: RewardModel = "auto",
    seed: Annotated[int, typer.Option(help="Seed of everything.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write the JSON to.")] = None,
) -> None:
    """Say what would be gained by deciding with a model, as far as these logs can say."""
    if out is not None:
        require_file(out)
    columns = _columns(instance, time, action, reward, context, categorical, drop)
    with telling_of_stops(*([] if out is None else [out])):
        with busy(STARTING):
            from ilb.cli.evaluate import evaluate_table

        evaluate_table(
            logs,
            columns,
            recipe=recipe,
            reward=reward_model,
            as_json=as_json,
            out=out,
            latent_dim=latent_dim,
            policy=policy,
            horizon=horizon,
            propensity=propensity,
            folds=folds,
            seed=seed,
        )


@app.command()
def recommend(
    model: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    history: Annotated[
        Path, typer.Argument(help="Table of what was seen so far; a last row without action is the visit at hand.")
    ],
    forbid: Annotated[list[str] | None, typer.Option(help="Action that nobody may get; repeat it.")] = None,
    forbid_column: Annotated[
        str | None, typer.Option(help="Column with actions that the person may not get, semicolons between them.")
    ] = None,
    earlier: Annotated[
        Path | None, typer.Option(help="Table of earlier people, such as the logs; names those nearest.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="How to decide (default: Adaptive).")] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Decisions that each person will have, if that is known; 1 tries nothing.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of policies that draw.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Where to write: .csv, .json or .parquet.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say what to do for each person of a table now, how sure that is, and what it rests on."""
    from ilb.cli.recommend import SUFFIXES, compile_for, recommend_for_table

    if out is not None:
        require_file(out, *SUFFIXES)
    compile_for(history)
    with telling_of_stops(*([] if out is None else [out])):
        recommend_for_table(
            model,
            history,
            forbidden=forbid or [],
            forbidden_column=forbid_column,
            earlier=earlier,
            policy=policy,
            horizon=horizon,
            seed=seed,
            out=out,
            as_json=as_json,
        )


@app.command()
def report(
    model: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    logs: Annotated[Path, typer.Argument(help="Table of past cases, best the one it was fitted on.")],
    out: Annotated[Path, typer.Option(help="Page to write, such as report.html.")],
    no_gain: Annotated[bool, typer.Option("--no-gain", help="Leave out what would be gained.")] = False,
    no_checks: Annotated[bool, typer.Option("--no-checks", help="Leave out the checks.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of fits and of chance.")] = 0,
) -> None:
    """Write a page about a model: data, checks, people, what actions do, what would be gained, four examples."""
    require_file(out, ".html", ".htm")
    without = [name for name, asked in (("checks", no_checks), ("gain", no_gain)) if asked]
    left_out = "".join(f" --no-{name}" for name in without)
    command = f"ilb report {shlex.quote(str(model))} {shlex.quote(str(logs))} --out {shlex.quote(str(out))}{left_out}"
    with telling_of_stops(out):
        with busy(STARTING):
            from ilb.cli.report import report_on_table

        report_on_table(model, logs, out, without=without, seed=seed, command=f"{command} --seed {seed}")


@app.command()
def serve(
    model: Annotated[Path, typer.Argument(help="Directory of a saved model.")],
    store: Annotated[
        str, typer.Option(help="Where events are kept: sqlite:///FILE or postgresql://USER@HOST/NAME.")
    ] = "sqlite:///ilb.db",
    policy: Annotated[
        str | None, typer.Option(help="Name of the policy (default: what the model is best for).")
    ] = None,
    fallback: Annotated[
        str, typer.Option(help="What is done when the model does not answer: uniform, or an action.")
    ] = "uniform",
    keys: Annotated[Path | None, typer.Option(help="File of keys, made by `ilb key`; needed off loopback.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    deadline: Annotated[float, typer.Option(min=0.01, help="Seconds that the model has to answer.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of policies that draw.")] = 0,
    hash_people: Annotated[
        Path | None, typer.Option(help="File with a secret; labels of people are hashed with it at the door.")
    ] = None,
    promote: Annotated[
        bool, typer.Option("--promote", help="Put MODEL in charge even if another one was promoted.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compute states, counts and decisions again from the log, compare, and end."),
    ] = False,
) -> None:
    """Answer requests for decisions over HTTP; every answer is stored first."""
    from ilb.cli.serve import Options, check, run_server

    given = Options(model, store, policy, fallback, keys, host, port, deadline, seed, hash_people, promote)
    if verify:
        raise typer.Exit(check(given))
    run_server(given)


@app.command()
def export(
    store: Annotated[str, typer.Argument(help="Store of `ilb serve`: a file, or postgresql://…")],
    out: Annotated[Path, typer.Option(help="Table to write: .parquet or .csv.")],
) -> None:
    """Write the decisions of a store as a table that `ilb fit` and `ilb evaluate` read, with propensities."""
    from ilb.cli.serve import export_log

    export_log(store, out)


@app.command()
def key(
    role: Annotated[str, typer.Argument(help="What it is good for: decide, read or admin.")],
    name: Annotated[str, typer.Argument(help="Whose it is.")],
    file: Annotated[Path, typer.Option(help="File of keys that its hash is added to.")] = Path("keys.txt"),
) -> None:
    """Make a key for `ilb serve --keys`; it is shown once, and only its hash is kept."""
    from ilb.cli.serve import add_key

    add_key(role, name, file)


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
    first_seed: Annotated[int, typer.Option(help="The first of the ten worlds; 10 gives ten others.")] = 0,
    beside: Annotated[
        Path | None, typer.Option(help="The reproduction.json of another run, to show its verdicts beside.")
    ] = None,
    out: Out = Path("reproduction"),
    show_list: Annotated[
        bool, typer.Option("--list", help="List the labels, what they need and how long it takes.")
    ] = False,
) -> None:
    """Reproduce tables and figures of the paper, and test its claims; run it again to go on after a stop."""
    require_directory(out)
    with telling_of_stops():
        from ilb_paper import command as work
        from ilb_paper.results import Size

        if show_list:
            work.list_experiments(labels or ["all"], Size(scale, first_seed), out)
            return
    code = work.reproduce(
        labels or [], Size(scale, first_seed), jobs=jobs, backend=backend, cluster=cluster, out=out, beside=beside
    )
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


STARTING = "Starting"
"""What is shown while the library is loaded."""

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
        return in_options(str(error))
    if isinstance(error, OSError):
        return f"{error.filename}: {reason(error)}." if error.filename else f"{reason(error)}."
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "this takes more memory than there is. Use fewer instances, rows or columns."
    return None
