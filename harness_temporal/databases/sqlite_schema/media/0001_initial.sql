-- A released migration is never edited: its checksum is in every database that it made. `{table}` is the name of the
-- table, `media` unless its store was given another one.
--
-- Times are microseconds since 1970 in UTC, the digest is the raw SHA-256 of the data, metadata is JSON, text is escaped
-- (`harness_temporal.text`).

-- With a rowid, by which SQLite reads and writes a part of the data.
CREATE TABLE "{table}" (
  digest BLOB PRIMARY KEY NOT NULL,
  data BLOB NOT NULL,
  media_type TEXT,
  metadata BLOB NOT NULL,
  touched_at INTEGER NOT NULL
);
