"""Worlds, and what is recorded in them, as plain values: a small file names them, and anyone can make them again.

A description is a frozen dataclass that draws a world for each seed; a plan says how much is recorded there.
"""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from ilb.environments.environment import AbstractEnvironment
from ilb.environments.recording import Recorded, UniformLogging, draw_confounded_logging, record
from ilb.errors import WorldError
from ilb.files import write_whole
from ilb.seeds import as_seed
from ilb.streams import Stream


def parameter(default: Any, says: str, *, least: int = 0, positive: bool = False, choices: tuple[str, ...] = ()) -> Any:
    """Declare a value of a description: its default, what the command line says of it, and what it may be.

    The default tells the rest: integers stay integers, other numbers are finite, and None stands for an integer that
    follows from other values.
    """
    return field(default=default, metadata={"says": says, "least": least, "positive": positive, "choices": choices})


def _check_parameters(values: Any) -> None:
    for one in fields(values):
        name, value, rules = one.name, getattr(values, one.name), one.metadata
        if not rules or (value is None and one.default is None):
            continue
        if rules["choices"]:
            if value not in rules["choices"]:
                raise WorldError(f"{name} must be one of {', '.join(rules['choices'])}; got {value!r}.")
        elif isinstance(one.default, float):
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise WorldError(f"{name} must be a number, at least 0; got {value!r}.")
            if rules["positive"] and value == 0:
                raise WorldError(f"{name} must be above 0: without it there is nothing to tell apart.")
        elif type(value) is not int or value < rules["least"]:
            raise WorldError(f"{name} must be an integer, at least {rules['least']}; got {value!r}.")


@dataclass(frozen=True)
class Plan:
    """How much is recorded in a world, and how much the logged actions depend on z and x (fig. scm, dashed)."""

    instances: int = parameter(100, "Instances in the logs.", least=1)
    length: int = parameter(200, "Rows of each instance.", least=1)
    test_instances: int = parameter(500, "Further instances for a test table.")
    confounding: float = parameter(0.0, "How much logged actions depend on z and x.")

    def __post_init__(self) -> None:
        _check_parameters(self)

    def record(self, seed: int, world: AbstractEnvironment) -> Recorded:
        self._require_memory(world)
        logging = (
            draw_confounded_logging(Stream.LOGGING.key(seed), world, self.confounding)
            if self.confounding
            else UniformLogging(world.sizes.actions)
        )
        training, test = Stream.TRAINING_LOGS.key(seed), Stream.TEST_LOGS.key(seed)
        return Recorded(
            record(training, world, logging, self.instances, self.length),
            record(test, world, logging, self.test_instances, self.length) if self.test_instances else None,
        )

    def _require_memory(self, world: AbstractEnvironment) -> None:
        """Refuse what this machine could never hold, before anything is drawn."""
        instances = self.instances + self.test_instances
        numbers = instances * self.length * (world.sizes.context_dim + world.sizes.actions + 4)
        try:
            there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):  # not every system tells
            return
        if numbers * 4 > there:
            raise WorldError(
                f"{instances:,} instances of {self.length:,} rows take {numbers * 4 // 2**30:,} GiB; this machine has "
                f"{there // 2**30:,}. Record fewer or shorter ones."
            )


@dataclass(frozen=True)
class AbstractDescription(ABC):
    """A world as plain values. A subclass with a name is known to `ilb simulate` and to files.

    @dataclass(frozen=True)
    class Mine(AbstractDescription, name="mine"):
        actions: int = parameter(3, "Number K of actions.", least=1)

        def draw(self, seed: int = 0) -> AbstractEnvironment:
            return MyWorld(Stream.WORLD.key(seed), self.actions)
    """

    name: ClassVar[str] = ""
    words: ClassVar[Mapping[str, str]] = {}
    """What the command line calls some of the values, and early files too."""
    plan: ClassVar[Plan] = Plan()
    """How much `ilb simulate` records if it is not told."""

    def __init_subclass__(cls, name: str = "") -> None:
        cls.name = name
        if name:
            WORLDS[name] = cls

    def __post_init__(self) -> None:
        _check_parameters(self)
        self.check()

    def check(self) -> None:
        """Refuse values that do not go together; there may be nothing to refuse."""
        return

    @abstractmethod
    def draw(self, seed: int = 0) -> AbstractEnvironment:
        """Draw the world of a seed."""


WORLDS: dict[str, type[AbstractDescription]] = {}
"""The descriptions by name, those of other packages too once they are imported."""


@dataclass(frozen=True)
class Specification:
    """Everything that determines a world and what was recorded in it.

    >>> from ilb.environments.synthetic import Synthetic
    >>> recorded = Specification(Synthetic(layers=3), Plan(instances=10, length=5), seed=1).record()
    >>> recorded.training.logs.rows, recorded.test.logs.instances
    (50, 500)
    """

    world: AbstractDescription
    plan: Plan = Plan()
    seed: int = parameter(0, "Seed of the world and its logs.")

    def __post_init__(self) -> None:
        _check_parameters(self)
        as_seed(self.seed)

    @staticmethod
    def of(name: str, values: Mapping[str, Any]) -> Specification:
        """Make one from the name of a world and all values together, by their names or by the words of the world."""
        make: Callable[..., AbstractDescription] = WORLDS[name]
        own = {word: value for value, word in WORLDS[name].words.items()}
        left = {own.get(word, word): value for word, value in values.items()}
        world, plan = (
            {one.name: left.pop(one.name) for one in fields(part) if one.name in left} for part in (WORLDS[name], Plan)
        )
        return Specification(make(**world), replace(WORLDS[name].plan, **plan), **left)

    def record(self) -> Recorded:
        return self.plan.record(self.seed, self.world.draw(self.seed))

    def save(self, path: Path) -> None:
        if not self.world.name:
            raise WorldError(f"{type(self.world).__name__} has no name to be saved by: class …(…, name='mine').")
        values = {"environment": self.world.name, "seed": self.seed, **asdict(self.world), **asdict(self.plan)}
        write_whole(path, json.dumps(values, indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Specification:
        """Read a specification that `save` wrote."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            name = values.pop("environment")
            if name in WORLDS:
                return Specification.of(name, values)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WorldError(f"{path} is not a world that `ilb simulate` wrote: {error}.") from error
        raise WorldError(
            f"{path} describes a {name!r} environment; known are {', '.join(WORLDS)}. "
            "If a package of yours defines it, import that first."
        )
