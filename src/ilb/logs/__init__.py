"""Tables of past cases, and what their columns mean."""

from ilb.logs.columns import CategoricalColumn, Column, NumericColumn
from ilb.logs.logs import Logs, Summary
from ilb.logs.schema import Schema

__all__ = ["CategoricalColumn", "Column", "Logs", "NumericColumn", "Schema", "Summary"]
