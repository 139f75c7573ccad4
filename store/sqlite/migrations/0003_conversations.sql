-- What users attach to messages. The content is elsewhere, by its hash.
CREATE TABLE attachments (
  id          TEXT NOT NULL PRIMARY KEY,
  environment TEXT NOT NULL,
  owner       TEXT NOT NULL,
  body        TEXT NOT NULL
) STRICT;

-- A conversation is busy while an interrupt waits for a decision, too.
UPDATE sessions SET busy = json_extract(body, '$.active') IS NOT NULL
  OR coalesce(json_extract(body, '$.draining'), '') <> ''
  OR json_extract(body, '$.pending') IS NOT NULL;

-- The pinned version as a column of its own, which a query does not have to take out of each document.
ALTER TABLE sessions ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET version = coalesce(json_extract(body, '$.agentVersion'), 0);
DROP INDEX sessions_pinned;
CREATE INDEX sessions_pinned ON sessions (environment, agent) WHERE version <> 0;
