-- The log: one row a chunk, the key of durability rule 1. Never updated; deleted only by retention.
CREATE TABLE chunks (
  run      TEXT    NOT NULL,
  first    INTEGER NOT NULL CHECK (first >= 1),
  last     INTEGER NOT NULL CHECK (last >= first),
  session  TEXT    NOT NULL,
  gen      INTEGER NOT NULL,
  writer   TEXT    NOT NULL,
  terminal INTEGER NOT NULL,
  cursors  TEXT,
  facts    TEXT,
  sha256   BLOB    NOT NULL CHECK (length(sha256) = 32),
  body     BLOB    NOT NULL,
  PRIMARY KEY (run, first)
) STRICT, WITHOUT ROWID;

-- Documents: the body is the document, the columns are copies of what is looked up or must be unique.
CREATE TABLE sessions (
  id          TEXT    NOT NULL PRIMARY KEY,
  rev         INTEGER NOT NULL,
  environment TEXT    NOT NULL,
  subject     TEXT    NOT NULL,
  agent       TEXT    NOT NULL,
  busy        INTEGER NOT NULL, -- an active or draining run
  body        TEXT    NOT NULL
) STRICT;
CREATE INDEX sessions_by_owner ON sessions (environment, subject, id);
CREATE INDEX sessions_by_agent ON sessions (environment, subject, agent, id);
CREATE INDEX sessions_busy ON sessions (id) WHERE busy = 1;

CREATE TABLE runs (
  id          TEXT    NOT NULL PRIMARY KEY,
  rev         INTEGER NOT NULL,
  environment TEXT    NOT NULL,
  subject     TEXT    NOT NULL,
  session     TEXT    NOT NULL,
  epoch       INTEGER NOT NULL,
  ord         INTEGER NOT NULL, -- 0: none yet
  agent       TEXT    NOT NULL,
  status      TEXT    NOT NULL,
  listed      INTEGER NOT NULL, -- 0: ADMITTING or REJECTED
  ended       INTEGER NOT NULL,
  created     INTEGER NOT NULL, -- nanoseconds since 1970
  body        TEXT    NOT NULL
) STRICT;
CREATE INDEX runs_by_owner ON runs (environment, subject, created, id);
CREATE INDEX runs_by_agent ON runs (environment, subject, agent, created, id);
CREATE INDEX runs_by_session ON runs (session, created, id);
CREATE INDEX runs_by_ord ON runs (session, epoch, ord) WHERE ord > 0;
CREATE INDEX runs_unfinished ON runs (id) WHERE ended = 0;

CREATE TABLE agents (
  id          TEXT    NOT NULL PRIMARY KEY,
  rev         INTEGER NOT NULL,
  state       TEXT    NOT NULL,
  environment TEXT    NOT NULL,
  owner       TEXT    NOT NULL,
  slug        TEXT    NOT NULL,
  unsettled   INTEGER NOT NULL, -- CREATING, DELETING, or tuples not applied
  body        TEXT    NOT NULL
) STRICT;
CREATE UNIQUE INDEX agents_by_slug ON agents (environment, owner, slug) WHERE state <> 'DELETED';
CREATE INDEX agents_by_owner ON agents (environment, owner, id) WHERE state = 'ACTIVE';
CREATE INDEX agents_unsettled ON agents (id) WHERE unsettled = 1;

CREATE TABLE versions (
  agent  TEXT    NOT NULL,
  number INTEGER NOT NULL CHECK (number >= 1),
  body   TEXT    NOT NULL,
  PRIMARY KEY (agent, number)
) STRICT;

CREATE TABLE named_values (
  name  TEXT NOT NULL PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
