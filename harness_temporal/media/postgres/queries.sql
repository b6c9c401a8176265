-- Each query is named by the line above its comment. Whoever changes the pieces of a blob holds the lock of its row of
-- `media` first, so that writers and deleters of one blob wait for each other and cannot deadlock.

-- name: put_small
-- Store a blob of one piece, or touch the one that is there. The piece waits for the row, because it is made from it.
WITH manifest AS (
  INSERT INTO {schema}.media (digest, size, media_type, metadata, touched_at)
  VALUES ($1::bytea, $2::bigint, $3::text, $4::bytea, clock_timestamp())
  ON CONFLICT (digest) DO UPDATE SET touched_at = clock_timestamp()
  RETURNING digest
)
INSERT INTO {schema}.media_chunks (digest, index, data)
SELECT digest, 0, $5::bytea FROM manifest
ON CONFLICT DO NOTHING;

-- name: touch
-- Touch a blob; one row if it is there.
UPDATE {schema}.media SET touched_at = clock_timestamp() WHERE digest = $1::bytea RETURNING size;

-- name: begin_large
-- Claim a blob for the transaction that sends its pieces; one row if nobody else has stored it. Another writer waits
-- here for the end of the transaction, though not for that of a client which fell silent for so many milliseconds.
WITH bound AS (SELECT set_config('idle_in_transaction_session_timeout', $5::text, true) AS milliseconds)
INSERT INTO {schema}.media (digest, size, media_type, metadata, touched_at)
SELECT $1::bytea, $2::bigint, $3::text, $4::bytea, clock_timestamp() FROM bound WHERE milliseconds IS NOT NULL
ON CONFLICT DO NOTHING
RETURNING size;

-- name: put_chunk
-- Add a piece. One that is there already belongs to no blob: somebody deleted rows by hand.
INSERT INTO {schema}.media_chunks (digest, index, data) VALUES ($1::bytea, $2::bigint, $3::bytea)
ON CONFLICT (digest, index) DO UPDATE SET data = excluded.data;

-- name: read_chunk
-- One piece, and the size of the whole; no row if there is no blob, no data if the piece is missing.
SELECT blob.size, chunk.data
FROM {schema}.media AS blob
LEFT JOIN {schema}.media_chunks AS chunk ON chunk.digest = blob.digest AND chunk.index = $2::bigint
WHERE blob.digest = $1::bytea;

-- name: about
SELECT metadata FROM {schema}.media WHERE digest = $1::bytea;

-- name: list_blobs
-- A page of blobs after a digest.
SELECT digest, size, touched_at FROM {schema}.media WHERE digest > $1::bytea ORDER BY digest LIMIT $2::bigint;

-- name: delete
-- Delete a blob unless it was put since then; one row if it was deleted. A writer that touches it meanwhile is waited
-- for, and the condition looked at again. The subquery makes the pieces be found by index, and after the row is locked.
WITH deleted AS (
  DELETE FROM {schema}.media WHERE digest = $1::bytea AND touched_at < $2::timestamptz RETURNING digest
),
pieces AS (
  DELETE FROM {schema}.media_chunks WHERE digest = (SELECT digest FROM deleted)
)
SELECT digest FROM deleted;
