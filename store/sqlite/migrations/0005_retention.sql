-- What retention takes: expired is the last sequence that may be removed from an ended run's log, pruning says that some of
-- it may still be there.
ALTER TABLE runs ADD COLUMN ended_at INTEGER NOT NULL DEFAULT 0; -- nanoseconds since 1970; 0: not ended
ALTER TABLE runs ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN pruning INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET ended_at = CAST(round(unixepoch(json_extract(body, '$.endedAt'), 'subsec') * 1000) AS INTEGER) * 1000000
  WHERE json_extract(body, '$.endedAt') IS NOT NULL;
CREATE INDEX runs_ended ON runs (ended_at, id) WHERE ended = 1 AND expired = 0 AND listed = 1;
CREATE INDEX runs_pruning ON runs (id) WHERE pruning = 1;
