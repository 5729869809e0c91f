"""The labels of actions as JSON has them: scalars stay themselves, everything else goes by its text."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ilb.errors import DecisionError
from ilb.logs import Schema
from ilb.serve.problems import ProblemError

Scalar = str | int | float | bool


class ActionNames:
    """Actions by name. In mappings, and wherever it is clear enough, an action goes by its text."""

    def __init__(self, labels: Sequence[Hashable]) -> None:
        self.labels = tuple(labels)
        self._by_text = {str(label): label for label in self.labels}
        if len(self._by_text) != len(self.labels):
            raise DecisionError(
                "two actions have the same text, such as 1 and '1', and can't be told apart in requests. "
                "Fit the model on labels that differ."
            )
        self.all = [self.name(label) for label in self.labels]

    @classmethod
    def of(cls, schema: Schema) -> ActionNames:
        return cls(schema.actions)

    @property
    def by_text(self) -> dict[str, Scalar]:
        """The names of all actions, by their texts."""
        return {str(name): name for name in self.all}

    def name(self, label: Hashable) -> Scalar:
        """Give an action as it is sent.

        >>> ActionNames(["A", 3]).name(3)
        3
        """
        return label if type(label) in (str, int, float, bool) else str(label)  # type: ignore[return-value]

    def label(self, name: Scalar) -> Hashable:
        """Find the action that a request means.

        >>> ActionNames(["A", 3]).label("3")
        3
        """
        try:
            return self._by_text[str(name)]
        except KeyError:
            shown = ", ".join(map(str, self.all[:10])) + (", …" if len(self.all) > 10 else "")
            raise ProblemError(
                422, "unknown-action", f"No action goes by a name that was given. Known are {shown}."
            ) from None

    def find(self, name: Scalar) -> Hashable | None:
        """Find an action, or None."""
        return self._by_text.get(str(name))

    def by_name(self, numbers: Mapping[Hashable, float]) -> dict[str, float]:
        """Put numbers under the texts of their actions; nine digits tell any two float32 numbers apart."""
        texts = ("%.9g " * len(numbers) % tuple(numbers.values())).split()  # what `shortened` does, for all at once
        return dict(zip(map(str, numbers), map(float, texts), strict=True))


def shortened(value: float) -> float:
    """Write off what float32 never held.

    >>> shortened(0.30000001192092896)
    0.300000012
    """
    return float(f"{value:.9g}")


def as_plain(value: Any) -> Any:
    """Give JSON numbers that are whole as integers, so that equal requests are equal whoever wrote them."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
