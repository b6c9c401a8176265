-- Each query is named by the line above its comment.

-- name: get_summary
-- What a writer starts from.
SELECT version, metadata FROM {schema}.conversation_heads WHERE key = $1::bytea;

-- name: put_conversation
SELECT {schema}.put_conversation($1::bytea, $2::text, $3::text, $4::bytea) AS done;

-- name: delete_conversation
SELECT {schema}.delete_conversation($1::bytea, $2::text, $3::text, $4::timestamptz, $5::boolean) AS outcome;

-- name: read_conversation
-- A head, and every link of its history with its message. The row of the last link has the head too.
WITH RECURSIVE wanted AS MATERIALIZED (
  SELECT head, metadata FROM {schema}.conversation_heads WHERE key = $1::bytea
),
walk (link, parent, message) AS (
  -- The limits keep the planner from reading the whole table, here and for each step of the walk.
  SELECT last.* FROM wanted CROSS JOIN LATERAL (
    SELECT digest, parent, message FROM {schema}.history_links WHERE digest = wanted.head LIMIT 1
  ) AS last
  UNION ALL
  SELECT next.* FROM walk CROSS JOIN LATERAL (
    SELECT digest, parent, message FROM {schema}.history_links WHERE digest = walk.parent LIMIT 1
  ) AS next
)
SELECT
  wanted.*, walk.link, walk.parent, walk.message,
  (SELECT body FROM {schema}.messages WHERE digest = walk.message) AS body
FROM walk FULL JOIN wanted ON wanted.head = walk.link;

-- name: list_conversations
-- The summaries of the heads with some characters in a searched text, the latest first.
SELECT metadata FROM {schema}.conversation_heads
WHERE $1::text = '' OR strpos(metadata_text, $1::text) > 0 OR strpos(message_text, $1::text) > 0
ORDER BY updated_at DESC, key LIMIT $2::bigint OFFSET $3::bigint;

-- name: oldest_conversations
-- The next summaries of heads that were saved before a moment.
SELECT metadata FROM {schema}.conversation_heads
WHERE updated_at < $1::timestamptz
  AND ($2::timestamptz IS NULL OR updated_at > $2::timestamptz OR updated_at = $2::timestamptz AND key > $3::bytea)
ORDER BY updated_at, key LIMIT $4::bigint;
