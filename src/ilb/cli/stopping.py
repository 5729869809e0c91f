"""How the command line stops: no signal is lost, nothing crashes on the way out, and it says what was written."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ilb.cli.console import tell
from ilb.files import reason

received: list[int] = []
"""The signals that asked this program to stop, as they came."""

AGAIN_AFTER = 0.05
"""Seconds until a signal that was lost is sent again."""

PATIENCE = 2.0
"""Seconds after a signal in which further ones change nothing: a second Ctrl-C must not cut the tidying up short."""

_heard: list[float] = []
"""When a signal last raised."""


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal: remember it and raise `KeyboardInterrupt`."""
    del frame
    if _heard and time.monotonic() < _heard[-1] + PATIENCE:
        return
    _heard[:] = [time.monotonic()]
    received.append(number)
    raise KeyboardInterrupt


def send_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Send a signal again whose `KeyboardInterrupt` was lost in a callback; print all else as Python does.

    JAX cleans up in a callback of the garbage collector, where an exception goes nowhere.
    """
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    _heard.clear()
    number = received[-1] if received else signal.SIGINT
    timer = threading.Timer(AGAIN_AFTER, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


@contextmanager
def interruptible(number: int) -> Iterator[None]:
    """Let a signal raise `KeyboardInterrupt` while the block runs, unless it is ignored, as in the background."""
    handler, hook = signal.getsignal(number), sys.unraisablehook
    if handler == signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    _heard.clear()
    signal.signal(number, interrupt)
    sys.unraisablehook = send_again
    try:
        yield
    finally:
        signal.signal(number, handler)
        sys.unraisablehook = hook


def stop_if_asked() -> None:
    """Raise what a signal has asked for, once more: compiled code may call Python and clear whatever that raised."""
    if received:
        raise KeyboardInterrupt


@contextmanager
def telling_of_stops(*places: Path) -> Iterator[None]:
    """When the block is interrupted, say whether it has written something to these places."""
    before = _changes(places)
    try:
        yield
        stop_if_asked()
    except KeyboardInterrupt:
        wrote = _changes(places) != before
        said = "only what was reported as written is there and whole" if wrote else "nothing was written"
        tell(f"Stopped; {said}.")
        raise


def flushed() -> bool:
    """Write out what is still to be written; if that can't be, say so, and let nothing of it trouble the exit."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        tell(f"can't write to standard output: {reason(error)}.", "Error", "red")
        return False
    return True


def _changes(places: tuple[Path, ...]) -> dict[Path, int]:
    files = [file for place in places for file in (place, *(place.iterdir() if place.is_dir() else ()))]
    return {file: file.stat().st_mtime_ns for file in files if file.exists()}


def leave(code: int) -> NoReturn:
    """End this process at once: compiled programs may still run in threads, and tearing Python down can crash then."""
    ignore_signals()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def ignore_signals() -> None:
    """Stop no more: the program is about to end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
