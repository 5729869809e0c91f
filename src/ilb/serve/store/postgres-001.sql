CREATE TABLE IF NOT EXISTS events (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    person TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    kind TEXT NOT NULL,
    at TEXT NOT NULL,
    decision TEXT,
    key TEXT,
    body TEXT NOT NULL,
    UNIQUE (person, number)
);
CREATE UNIQUE INDEX IF NOT EXISTS events_by_key ON events (person, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS events_deciding ON events (decision) WHERE kind = 'decision';
CREATE INDEX IF NOT EXISTS events_by_decision ON events (decision) WHERE decision IS NOT NULL;

CREATE TABLE IF NOT EXISTS people (
    person TEXT COLLATE "C" PRIMARY KEY,
    events BIGINT NOT NULL,
    decisions BIGINT NOT NULL,
    first_at TEXT NOT NULL,
    last_at TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS states (
    person TEXT COLLATE "C" PRIMARY KEY,
    events BIGINT NOT NULL,
    bandit TEXT NOT NULL,
    state TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS counts (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS versions (
    number INTEGER PRIMARY KEY
);
INSERT INTO versions VALUES (1) ON CONFLICT DO NOTHING;
