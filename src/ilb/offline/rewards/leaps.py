"""Leaps between steps of EM: where the last two steps point to (SQUAREM, Varadhan and Roland 2008)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

FARTHEST = 4.0
"""How far a leap may go at first, in steps; where such leaps prove their worth, so many times as far."""

WIDEST = 3.0
"""How far a leap may move any number, all of which are of about one, or logarithms: exponentials must not overflow."""


class Leaps:
    """Where to leap after every second step; whoever steps judges each leap, and refuses one that is no improvement."""

    def __init__(self) -> None:
        self._points: list[Float[np.ndarray, " free"]] = []
        self._farthest, self._reached = FARTHEST, False

    def after(self, point: Float[np.ndarray, " free"]) -> Float[np.ndarray, " free"] | None:
        r"""Take in where a step led; give where to leap from there, or nothing.

        With $r = x_1 - x_0$ and $v = (x_2 - x_1) - r$ a leap goes to $x_0 + 2 \alpha r + \alpha^2 v$, where
        $\alpha = |r| / |v|$: the limit of steps that shrink at one rate, if all do. $\alpha = 1$ is $x_2$ itself.
        """
        self._points.append(point)
        if len(self._points) < 3:
            return None
        first, second, third = self._points
        self._points = []
        step, bend = second - first, third - 2 * second + first
        far = float(np.linalg.norm(step)) / max(float(np.linalg.norm(bend)), 1e-300)
        if self._reached:  # the last leap that went as far as it might was not refused
            self._farthest, self._reached = FARTHEST * self._farthest, False
        if far <= 1:
            self._points = [third]
            return None
        self._reached = far >= self._farthest
        far = min(far, self._farthest)
        leap = first + 2 * far * step + far**2 * bend - third
        return np.asarray(third + leap * min(1.0, WIDEST / max(float(np.abs(leap).max()), 1e-300)))

    def refuse(self, point: Float[np.ndarray, " free"]) -> None:
        """Begin again from where the leap began, and be more careful."""
        self._points = [point]
        self._farthest, self._reached = max(self._farthest / FARTHEST, 2.0), False
