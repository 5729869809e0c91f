"""Do the tests notice when the code is wrong? Change one operator or number at a time, and count what they catch.

Mutants are made by cosmic-ray's operators; a seeded sample of each module's is run against the tests that concern it.
A mutant is killed when a test fails, when the module can no longer be imported, or when the tests never end. Each run
is a fork of a process that has imported everything but ILB, because importing JAX costs more than most of the tests.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "mutants.json"

TESTS: dict[str, str] = {
    "online/arms.py": "test_arm_policies.py",
    "online/cholesky.py": "test_cholesky.py",
    "online/discrete.py": "test_discrete_policies.py",
    "online/evidence.py": "test_latent_beliefs.py test_arm_policies.py",
    "online/latent.py": "test_latent_beliefs.py",
    "online/linear.py": "test_linear_policies.py",
    "online/policy.py": "test_arm_policies.py test_latent_beliefs.py",
    "online/roster.py": "test_policies.py",
    "offline/encoders/tied.py": "test_contrastive.py",
    "offline/rewards/linear.py": "test_reward_model.py",
    "offline/rewards/mlp.py": "test_mlp_reward.py",
    "offline/rewards/recipe.py": "test_reward_model.py",
    "models/latent.py": "test_model_file.py test_latent_beliefs.py",
    "models/storage.py": "test_model_file.py test_hostile_models.py",
}
"""The files of tests that concern each module; the examples in its own docstrings are run as well."""

KNOWN: dict[str, tuple[str, str, str, str]] = {
    "the VAE ignores beta": (
        "offline/encoders/vae.py",
        "self.beta * jax.vmap(divergence_from_prior)",
        "jax.vmap(divergence_from_prior)",
        "test_vae.py::test_beta_weighs_the_divergence_from_the_prior",
    ),
    "the paper's recipe throws its first stage away": (
        "offline/encoders/paper.py",
        "FreeParams(networks, head.params)",
        "FreeParams(networks, stack(heads))",
        "test_encoder_recipes.py::test_the_papers_second_stage_starts_from_the_head_of_the_first",
    ),
    "the best dimension is taken, not the smallest within one standard error of it": (
        "offline/choice.py",
        "if mean - means[best] <= error",
        "if mean == means[best]",
        "test_dimension.py::test_the_smallest_dimension_within_one_standard_error_of_the_best_is_chosen",
    ),
    "leftover variance does not make up for fitted coefficients": (
        "offline/rewards/recipe.py",
        "len(residual) / max(len(residual) - parameters, 1)",
        "1.0",
        "test_reward_model.py::test_leftover_variance_makes_up_for_the_coefficients_that_were_fitted",
    ),
    "fit stores the population's covariance as that of encodings": (
        "offline/fit.py",
        "jnp.asarray(scatter.encoding_covariance, ",
        "jnp.asarray(scatter.population_covariance, ",
        "test_fit.py",
    ),
    "fit stores no leftover variance": (
        "offline/fit.py",
        "jnp.asarray(fitted.leftover_variance, ",
        "jnp.asarray(0.0, ",
        "test_fit.py",
    ),
}
"""Mistakes that are easily made and must be noticed: file, code, what stands there by mistake, tests."""

PRELOADED = (
    "jax.scipy.stats", "equinox", "optax", "jaxtyping", "scipy.stats", "scipy.optimize", "sklearn.decomposition",
    "sklearn.cluster", "narwhals", "pyarrow", "safetensors.numpy", "hypothesis", "joblib", "pytest",
)  # fmt: skip
"""What ILB and its tests import."""

CPU_SECONDS = 120
WALL_SECONDS = 600
"""How long the tests of one mutant may take; some mutants never end."""

ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow", "FloorDiv", "Mod")
LOGIC = ("BitOr", "BitAnd", "BitXor")
SAME_FOR_NONE = {"Is_Eq", "Eq_Is", "IsNot_NotEq", "NotEq_IsNot"}
WITHOUT_EFFECT = ("abc.abstractmethod", "runtime_checkable", "jax.jit", "partial(jax.jit")
"""Decorators whose loss changes no result."""


@dataclass(frozen=True)
class Mutant:
    """A module with one thing changed."""

    module: str
    operator: str
    line: int
    source: str
    tests: str

    def diff(self, original: str) -> str:
        lines = difflib.unified_diff(original.splitlines(), self.source.splitlines(), n=0, lineterm="")
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def operators() -> Iterator[str]:
    """Name cosmic-ray's operators that make a program which may run.

    Shifts of floats, or `a | b` for `a + b`, would only be counted as killed by the first import.
    """
    from cosmic_ray.plugins import operator_names

    for full_name in operator_names():
        name = full_name.split("/")[-1]
        kind, _, swap = name.partition("_")
        before, _, after = swap.partition("_")
        if kind == "ReplaceBinaryOperator":
            wanted = any(before in group and after in group for group in (ARITHMETIC, LOGIC))
        else:
            wanted = swap not in SAME_FOR_NONE and not kind.startswith("Variable") and "UAdd" not in swap
        if wanted:
            yield full_name


def draw_mutants(module: str, source: str, number: int, seed: int) -> tuple[list[Mutant], int]:
    """Draw some of a module's mutants, and count the places for one.

    Left out are those that can't matter: in annotations, in texts of errors and warnings.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    nodes, idle = list(ast_nodes(get_ast(source))), set(_idle_positions(source))
    places = []
    for name in operators():
        found = ((start, node) for node in nodes for start, _ in get_operator(name)().mutation_positions(node))
        for occurrence, (start, node) in enumerate(found):
            decorator = node.get_code().strip()[1:] if name.endswith("RemoveDecorator") else ""
            if start not in idle and not decorator.startswith(WITHOUT_EFFECT):
                places.append((name, occurrence, start[0]))
    mutants: list[Mutant] = []
    for name, occurrence, line in random.Random(f"{seed} {module}").sample(places, len(places)):
        changed = mutate_code(source, get_operator(name)(), occurrence)
        if changed is not None and _parses(changed):
            mutants.append(Mutant(module, name.split("/")[-1], line, changed, TESTS[module]))
        if len(mutants) == number:
            break
    return mutants, len(places)


def _idle_positions(source: str) -> Iterator[tuple[int, int]]:
    """List the positions (line, column) inside annotations, aliases of types, and raised or warned texts."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.Raise):
            parts = [node.exc]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
            parts = [*node.args, *node.keywords]
        elif isinstance(node, ast.Assign) and node in tree.body and "Float[" in ast.unparse(node.value):
            parts = [node.value]
        for inner in (inner for part in parts if part is not None for inner in ast.walk(part)):
            if hasattr(inner, "lineno"):
                yield from _covered(source, inner)


def _covered(source: str, node: ast.AST) -> Iterator[tuple[int, int]]:
    lines = source.splitlines()
    for line in range(node.lineno, node.end_lineno + 1):  # type: ignore[attr-defined]
        first = node.col_offset if line == node.lineno else 0  # type: ignore[attr-defined]
        last = node.end_col_offset if line == node.end_lineno else len(lines[line - 1])  # type: ignore[attr-defined]
        yield from ((line, column) for column in range(first, last))


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


class Bench:
    """A copy of the project in which one file at a time is changed and tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        os.chdir(folder)
        sys.path.insert(0, str(folder / "src"))
        _import_all_but_ilb(folder)

    def file(self, module: str) -> Path:
        return self.folder / "src" / "ilb" / module

    def require_that_tests_pass(self, module: str, tests: str) -> None:
        """Without this, tests that fail anyway would seem to kill everything."""
        if status := self.run_tests(module, tests, keep_compiled=True):
            raise SystemExit(f"{tests} fail without any change in {module} (status {status})")

    def killed(self, mutant: Mutant) -> bool:
        file = self.file(mutant.module)
        original = file.read_text()
        # A change within the same second and of the same length would go unseen by the cache of compiled modules.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()
        file.write_text(mutant.source)
        try:
            return self.run_tests(mutant.module, mutant.tests, keep_compiled=False) != 0
        finally:
            file.write_text(original)

    def run_tests(self, module: str, tests: str, *, keep_compiled: bool) -> int:
        """Run the tests of a module in a fork; give pytest's exit status, or minus the signal that ended it."""
        import pytest

        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            sys.dont_write_bytecode = not keep_compiled
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            signal.alarm(WALL_SECONDS)
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            files = [f"tests/{name}" for name in tests.split()]
            if module in TESTS:
                files.append(f"src/ilb/{module}")
            # Plain asserts: what was imported before the fork can't be rewritten any more.
            os._exit(
                int(pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-m", "not slow", *files]))
            )
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _import_all_but_ilb(folder: Path) -> None:
    """Import what ILB and its tests import, but start no threads: JAX's begin with the first computation."""
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.02"
    os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"  # as in tests/conftest.py, which comes too late here
    for name in PRELOADED:
        __import__(name)
    if any(name.split(".")[0] == "ilb" for name in sys.modules):
        raise RuntimeError("ILB was imported before it was changed")


def main(
    sample: Annotated[int, typer.Option(help="mutants of each module")] = 25,
    seed: Annotated[int, typer.Option(help="of the sample")] = 0,
    only: Annotated[str, typer.Option(help="modules whose path contains this; `known`: the mistakes by name")] = "",
    record: Annotated[bool, typer.Option("--record", help=f"write docs/results/{RESULTS.name}")] = False,
) -> None:
    """Print how many mutants of each module the tests kill, and the survivors as diffs."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        known = {mistake: _make_mistake(bench, mistake) for mistake in KNOWN} if only in ("", "known") else {}
        rows = [_test_module(bench, module, sample, seed) for module in TESTS if only in module]
    sampled, killed = (sum(row[name] for row in rows) for name in ("sampled", "killed"))
    print(f"{killed} of {sampled} killed: {killed / max(sampled, 1):.0%}")
    if record:
        report = {"seed": seed, "sampled": sampled, "killed": killed, "known mistakes noticed": known, "modules": rows}
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")


def _test_module(bench: Bench, module: str, sample: int, seed: int) -> dict[str, Any]:
    source = bench.file(module).read_text()
    drawn, places = draw_mutants(module, source, sample, seed)
    bench.require_that_tests_pass(module, TESTS[module])
    survivors = [mutant for mutant in drawn if not bench.killed(mutant)]
    killed = len(drawn) - len(survivors)
    print(f"{module:26} {places:>4} mutants, {len(drawn):>3} run, {killed:>3} killed: {killed / len(drawn):.0%}")
    for mutant in survivors:
        print(f"  line {mutant.line}, {mutant.operator}\n{mutant.diff(source)}", flush=True)
    listed = [{"line": each.line, "operator": each.operator, "diff": each.diff(source)} for each in survivors]
    return {"module": module, "mutants": places, "sampled": len(drawn), "killed": killed, "survivors": listed}


def _make_mistake(bench: Bench, mistake: str) -> bool:
    """Make one of the mistakes by name; say whether the tests noticed."""
    module, code, wrong, tests = KNOWN[mistake]
    source = bench.file(module).read_text()
    if source.count(code) != 1:
        raise SystemExit(f"{module} no longer has the line in which {mistake!r} would be: {code}")
    bench.require_that_tests_pass(module, tests)
    noticed = bench.killed(Mutant(module, mistake, 0, source.replace(code, wrong), tests))
    print(f"{'noticed' if noticed else 'NOT NOTICED'}: {mistake}", flush=True)
    return noticed


if __name__ == "__main__":
    typer.run(main)
