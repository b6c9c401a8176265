-- Blobs under the SHA-256 of their content. For what the types and the escaped text are about, see the first migration.

CREATE TABLE {schema}.media (
  digest bytea PRIMARY KEY,
  size bigint NOT NULL,
  media_type text,
  metadata bytea NOT NULL,
  -- When the blob was last put. It has no index: with one, every touch would write to all of the table's indexes.
  touched_at timestamptz NOT NULL
);

-- The pieces of a blob, counted from 0; an empty blob has an empty one. There is no foreign key: whoever adds or deletes
-- pieces has written the blob's row of `media` before, and holds its lock.
CREATE TABLE {schema}.media_chunks (
  digest bytea NOT NULL,
  index bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (digest, index)
);
-- Media is compressed as it is.
ALTER TABLE {schema}.media_chunks ALTER COLUMN data SET STORAGE EXTERNAL;
