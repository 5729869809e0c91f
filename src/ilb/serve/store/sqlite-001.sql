CREATE TABLE events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    person TEXT NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at TEXT NOT NULL,
    decision TEXT,
    key TEXT,
    body TEXT NOT NULL,
    UNIQUE (person, number)
) STRICT;
CREATE UNIQUE INDEX events_by_key ON events (person, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX events_deciding ON events (decision) WHERE kind = 'decision';
CREATE INDEX events_by_decision ON events (decision) WHERE decision IS NOT NULL;

CREATE TABLE people (
    person TEXT PRIMARY KEY,
    events INTEGER NOT NULL,
    decisions INTEGER NOT NULL,
    first_at TEXT NOT NULL,
    last_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A table of its own, so that lists of people do not read past it.
CREATE TABLE states (
    person TEXT PRIMARY KEY,
    events INTEGER NOT NULL,
    bandit TEXT NOT NULL,
    state TEXT NOT NULL
) STRICT;

CREATE TABLE counts (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 1;
