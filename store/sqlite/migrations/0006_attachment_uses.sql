-- Which runs name which attachments, and which attachments have which content: what nothing names is removed.
CREATE TABLE attachment_uses (
  attachment TEXT NOT NULL,
  run        TEXT NOT NULL,
  PRIMARY KEY (attachment, run)
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO attachment_uses
  SELECT json_extract(a.value, '$.id'), runs.id FROM runs, json_each(runs.body, '$.input.attachments') AS a
  WHERE json_extract(a.value, '$.id') IS NOT NULL;

ALTER TABLE attachments ADD COLUMN hash TEXT NOT NULL DEFAULT '';
ALTER TABLE attachments ADD COLUMN created INTEGER NOT NULL DEFAULT 0; -- nanoseconds since 1970
UPDATE attachments SET hash = coalesce(json_extract(body, '$.hash'), ''),
  created = CAST(round(unixepoch(json_extract(body, '$.createdAt'), 'subsec') * 1000) AS INTEGER) * 1000000;
CREATE INDEX attachments_by_hash ON attachments (hash);
