"""Identifiable latent bandits: learn from the records of earlier people what is best for the next one.

Names are those of `ilb.api`, loaded at the first use: the command line answers without waiting for JAX.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ilb.version import __version__ as __version__

if TYPE_CHECKING:
    from ilb.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return import_module("ilb.api").__all__
    if not name.startswith("_"):
        api = import_module("ilb.api")
        if name in api.__all__:
            return getattr(api, name)
        if find_spec(f"ilb.{name}") is not None:
            return import_module(f"ilb.{name}")
    raise AttributeError(f"module 'ilb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *import_module("ilb.api").__all__]
