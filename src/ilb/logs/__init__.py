"""Tables of past cases, and what their columns mean."""

from ilb.logs.columns import CategoricalColumn, ClockColumn, Column, NumericColumn
from ilb.logs.logs import Logs, Summary, require_logs
from ilb.logs.schema import Schema

__all__ = ["CategoricalColumn", "ClockColumn", "Column", "Logs", "NumericColumn", "Schema", "Summary", "require_logs"]
