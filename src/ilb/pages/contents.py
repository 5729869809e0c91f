"""The sections of a report, in order, and what they share."""

from __future__ import annotations

CONTENTS = (
    ("data", "The data"),
    ("choice", "The model"),
    ("checks", "May it be believed?"),
    ("people", "The people"),
    ("directions", "What sets them apart"),
    ("rewards", "What actions do"),
    ("amount", "Is there enough data?"),
    ("gain", "What would be gained"),
    ("examples", "Four people"),
    ("making", "How this was made"),
)
TITLES = dict(CONTENTS)

MOST_ROWS = 40
"""Rows of a table of columns or actions."""
