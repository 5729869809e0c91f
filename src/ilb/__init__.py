"""Identifiable latent bandits: learn from the records of earlier people what is best for the next one.

    logs = ilb.Logs.from_frame(table, instance="person", time="day", action="drug", reward="relief")
    model = ilb.fit(logs)
    decision = ilb.LiveBandit.on(model).start("anna").decide({"age": 61, "pain": 7})

The names are listed in `__init__.pyi` and loaded at their first use: the command line answers without waiting for JAX.
"""

import lazy_loader as _lazy_loader

__getattr__, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)
