"""How large a reproduction is: the paper's size, or a share of it."""

from __future__ import annotations

from dataclasses import dataclass

from ilb.errors import IlbError

WORLDS, INSTANCES, HORIZON = 10, 200, 2000
BLOCK = 5
"""Seeds that are fitted, or played, at once."""


@dataclass(frozen=True)
class Size:
    """What `--scale` stands for.

    Tables have ten fits for each row, as in the paper. Figures have 200 new instances in each of the same ten worlds,
    each with its own fit, where the paper has one fit and 200 or 1000 instances. Below 0.2, logs, training
    and horizon shrink as well: such a run shows that everything works and says nothing about the paper.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise IlbError(f"--scale must be above 0 and at most 1 (the paper's size); got {self.scale}.")

    @property
    def seeds(self) -> range:
        """The seeds of the worlds, each with a fit of its own: the same for tables and figures."""
        return range(max(1, round(WORLDS * self.scale)))

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """The seeds in blocks that are fitted, or played, at once."""
        return tuple(tuple(self.seeds[first : first + BLOCK]) for first in range(0, len(self.seeds), BLOCK))

    @property
    def instances(self) -> int:
        """Instances played in each world."""
        return max(3, round(INSTANCES * self.scale))

    def horizon(self, full: int = HORIZON) -> int:
        """Rounds of each instance."""
        return max(12, round(full * self.effort))

    @property
    def effort(self) -> float:
        """The share of training, logs and horizon that is left."""
        return min(1.0, 5 * self.scale)
