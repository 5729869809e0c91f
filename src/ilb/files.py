"""Files that are whole: written beside, flushed to disk and moved into place, so that nobody ever meets half of one."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ilb.errors import FileError

if sys.platform != "win32":
    import fcntl

LONGEST_NAME = 200
"""Bytes of a name that its draft repeats; file systems take 255, and the rest is the draft's own."""


def draft_beside(file: Path) -> Path:
    """Name a draft that no other process or thread has: a file's own name, chance, and `.draft`."""
    name = file.name if len(os.fsencode(file.name)) <= LONGEST_NAME else "long"
    return file.with_name(f"{name}.{os.getpid()}-{secrets.token_hex(8)}.draft")


def flush_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a directory, would survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def put_in_place(*files: Path) -> Iterator[tuple[Path, ...]]:
    """Give a draft for each file; when the block is done all of them become the files, and if it fails none does.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with put_in_place(Path(folder) / "note.txt") as (draft,):
    ...         _ = draft.write_text("whole")
    ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
    [('note.txt', 'whole')]
    """
    targets = [file.resolve() if file.is_symlink() else file for file in files]
    drafts = tuple(draft_beside(target) for target in targets)
    try:
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
        yield drafts
        for draft, target in zip(drafts, targets, strict=True):
            if target.is_file():
                shutil.copymode(target, draft)
            elif target.is_dir():
                raise FileError(f"can't write {target}: it is a directory. Choose another name.")
            flush_to_disk(draft)
        for draft, target in zip(drafts, targets, strict=True):
            draft.replace(target)
    except FileError:
        raise
    except OSError as error:
        named = ", ".join(map(str, files))
        raise FileError(f"can't write {named}: {reason(error)}. What was there before is as it was.") from error
    finally:
        for draft in drafts:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def write_whole(file: Path, text: str) -> None:
    """Write a text file in one step."""
    with put_in_place(file) as (draft,):
        draft.write_text(text, encoding="utf-8")


def reason(error: OSError) -> str:
    """Say why the system refused, on one line and without its number.

    >>> reason(OSError(28, "No space left on device"))
    'no space left on device'
    """
    said = os.strerror(error.errno) if error.errno else " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return said[:1].lower() + said[1:]


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep every other process and thread that asks for the same directory waiting while the block runs.

    The lock is on the directory itself and ends with the process, so nothing is left behind. Where the system has no
    such locks (Windows, some network disks) the block runs without.
    """
    if sys.platform == "win32":
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
