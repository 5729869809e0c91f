"""Identifiable latent bandits: learn from the records of earlier people what is best for the next one.

    logs = ilb.Logs.from_frame(table, instance="person", time="day", action="drug", reward="relief")
    model = ilb.fit(logs)
    decision = ilb.LiveBandit.on(model).start("anna").decide({"age": 61, "pain": 7})

Names are those of `ilb.api`, loaded at the first use: the command line answers without waiting for JAX.
"""

import importlib as _importlib
import importlib.util as _importlib_util
import pkgutil as _pkgutil
import typing as _typing

from ilb.version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from ilb.api import *  # noqa: F403


def __getattr__(name: str) -> _typing.Any:
    if name == "__all__":
        return _importlib.import_module("ilb.api").__all__
    if not name.startswith("_"):
        api = _importlib.import_module("ilb.api")
        if name in api.__all__:
            return getattr(api, name)
        if _importlib_util.find_spec(f"ilb.{name}") is not None:
            return _importlib.import_module(f"ilb.{name}")
    raise AttributeError(f"module 'ilb' has no attribute {name!r}")


def __dir__() -> list[str]:
    modules = (
        module.name
        for module in _pkgutil.iter_modules(__spec__.submodule_search_locations)
        if not module.name.startswith("_")
    )
    return sorted({*_importlib.import_module("ilb.api").__all__, *modules})
