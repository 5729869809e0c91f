"""Whole computations as one program: operation by operation, each would be compiled by itself."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx

R = TypeVar("R")


@eqx.filter_jit
def compiled(method: Callable[..., R], *args: Any) -> R:
    """Call it. Methods of beliefs, policies and worlds are pytrees: equal shapes share one program."""
    return method(*args)
