"""What can go wrong, as one tree.

IlbError
├── LogsError            the table of past cases, or a new row, does not fit what was promised
│   └── SchemaError      a new table does not have the columns or labels the model was fitted with
├── FitError             the logs are readable, but no model can be learned from them
├── DecisionError        a decision or reward that can't be, or a saved instance that can't be read
├── WorldError           a simulated world can't be made, or a file does not describe one
├── ModelFileError       a saved model is damaged, foreign, or from a newer version
├── FileError            a file can't be read or written: the disk is full, the name too long, a directory in the way
└── SeedError            what was given as a seed is not one

IlbWarning
├── LogsWarning              a row or column gets a stated treatment that you may want to know about
├── IdentifiabilityWarning   a column stands still within instances, so it tells, or helps to tell, which one it is
└── RareActionWarning        an action has too few rewards for its own regression and is shrunk
"""


class IlbError(Exception):
    """Any error that ILB raises on purpose."""


class LogsError(IlbError, ValueError):
    """The table of past cases is not what was promised."""


class SchemaError(LogsError):
    """New data do not have the columns or labels that the schema was made from."""


class FitError(IlbError, ValueError):
    """No model can be learned from these logs."""


class DecisionError(IlbError, ValueError):
    """A decision can't be made, a reward belongs to none, or a saved instance can't be read."""


class WorldError(IlbError, ValueError):
    """A simulated world can't be made from these numbers or this file."""


class ModelFileError(IlbError, ValueError):
    """A saved model is damaged, foreign, or written by a newer version."""


class FileError(IlbError, OSError):
    """A file can't be read or written."""


class SeedError(IlbError, ValueError):
    """A seed is not an integer, or too large for one."""


class IlbWarning(UserWarning):
    """Any warning that ILB gives."""


class LogsWarning(IlbWarning):
    """Some rows or columns get a stated treatment."""


class IdentifiabilityWarning(IlbWarning):
    """A column that never changes gives the instance away, which misleads mean-contrastive learning."""


class RareActionWarning(IlbWarning):
    """An action has too few rewards to stand on its own and borrows from the others."""
