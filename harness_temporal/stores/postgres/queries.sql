-- Each query is named by the line above its comment. A condition on `left(..., 200)` is there for an index; the first
-- migration says why.

-- name: commit_batch
-- Write a batch in one transaction.
SELECT outcome, subject FROM {schema}.commit_batch($1::text, $2::bytea, $3::bigint);

-- name: get_run
SELECT * FROM {schema}.runs WHERE run_id = $1::text;

-- name: list_runs
-- The newest runs, newest first.
SELECT * FROM {schema}.runs ORDER BY started_at DESC, registration_number DESC LIMIT $1::bigint;

-- name: list_runs_of_conversation
-- The newest runs of a conversation, newest first.
SELECT * FROM {schema}.runs
WHERE left(conversation_id, 200) = left($2::text, 200) AND conversation_id = $2::text
ORDER BY started_at DESC, registration_number DESC LIMIT $1::bigint;

-- name: list_runs_of_parent
-- The newest runs that a run started, newest first; with a conversation, only those in it. A run starts few.
SELECT * FROM {schema}.runs
WHERE left(parent_run_id, 200) = left($2::text, 200) AND parent_run_id = $2::text
  AND ($3::text IS NULL OR conversation_id = $3::text)
ORDER BY started_at DESC, registration_number DESC LIMIT $1::bigint;

-- name: list_events
SELECT * FROM {schema}.events WHERE run_id = $1::text AND seq > $2::bigint ORDER BY seq LIMIT $3::bigint;

-- name: read_snapshots
-- The newest snapshots, of which interrupted ones only on demand, and every link of their histories once, with its
-- message. A row has a snapshot, or a link, or both if the link is the head of the snapshot's history.
WITH RECURSIVE wanted AS MATERIALIZED (
  SELECT newest.*
  FROM (VALUES ('complete'), ('interrupted')) AS kind (state)
  CROSS JOIN LATERAL (
    SELECT * FROM {schema}.snapshots WHERE run_id = $1::text AND state = kind.state ORDER BY seq DESC LIMIT $3::bigint
  ) AS newest
  WHERE $2::boolean OR kind.state = 'complete'
  ORDER BY seq DESC LIMIT $3::bigint
),
walk (link, parent, message) AS (
  -- The limits keep the planner from reading the whole table, here and for each step of the walk.
  SELECT head.* FROM wanted CROSS JOIN LATERAL (
    SELECT digest, parent, message FROM {schema}.history_links WHERE digest = wanted.head LIMIT 1
  ) AS head
  UNION
  SELECT next.* FROM walk CROSS JOIN LATERAL (
    SELECT digest, parent, message FROM {schema}.history_links WHERE digest = walk.parent LIMIT 1
  ) AS next
)
SELECT
  wanted.*, walk.link, walk.parent, walk.message,
  (SELECT body FROM {schema}.messages WHERE digest = walk.message) AS body
FROM walk FULL JOIN wanted ON wanted.head = walk.link;

-- name: get_tool_effect
-- The newest entry with a tool call id.
SELECT * FROM {schema}.tool_effects
WHERE run_id || ' ' || left(tool_call_id, 200) = $1::text || ' ' || left($2::text, 200) AND tool_call_id = $2::text
ORDER BY seq DESC LIMIT 1;

-- name: list_tool_effects
SELECT * FROM {schema}.tool_effects WHERE run_id = $1::text ORDER BY seq;

-- name: list_unresolved_tool_effects
SELECT * FROM {schema}.tool_effects WHERE run_id = $1::text AND status = 'started' ORDER BY seq;

-- name: ledger_entries
-- The entries that a JSON list of objects names.
SELECT effect.*
FROM jsonb_to_recordset($1::text::jsonb) AS wanted (run_id text, ledger_key text)
CROSS JOIN LATERAL (
  SELECT * FROM {schema}.tool_effects
  WHERE run_id || ' ' || left(ledger_key, 200) = wanted.run_id || ' ' || left(wanted.ledger_key, 200)
    AND ledger_key = wanted.ledger_key
  LIMIT 1
) AS effect;

-- name: get_model_response
SELECT * FROM {schema}.model_responses WHERE run_id = $1::text AND key = $2::text;

-- name: runs_by_id
SELECT * FROM {schema}.runs
WHERE run_id > $1::text AND started_at < $2::timestamptz ORDER BY run_id LIMIT $3::bigint;

-- name: delete_runs
SELECT {schema}.delete_runs($1::text, $2::timestamptz) AS deleted;

-- name: loose_links
-- The next links that no snapshot or conversation ends at and no link follows.
SELECT digest FROM {schema}.history_links AS link
WHERE digest > $1::bytea
  AND NOT EXISTS (SELECT FROM {schema}.snapshots WHERE head = link.digest)
  AND NOT EXISTS (SELECT FROM {schema}.conversation_heads WHERE head = link.digest)
  AND NOT EXISTS (SELECT FROM {schema}.history_links AS next WHERE next.parent = link.digest)
ORDER BY digest LIMIT $2::bigint;

-- name: collect_links
SELECT {schema}.collect_links($1::text) AS count;

-- name: external_messages
-- The next messages with parts elsewhere, which start with a byte that no body starts with (`stores.external`).
SELECT digest, body FROM {schema}.messages
WHERE digest > $1::bytea AND substr(body, 1, 1) = '\x02'::bytea ORDER BY digest LIMIT $2::bigint;

-- name: external_values
SELECT run_id, seq, value FROM {schema}.tool_effects
WHERE (run_id, seq) > ($1::text, $2::bigint) AND substr(value, 1, 1) = '\x02'::bytea
ORDER BY run_id, seq LIMIT $3::bigint;

-- name: external_responses
SELECT run_id, body FROM {schema}.model_responses
WHERE run_id > $1::text AND substr(body, 1, 1) = '\x02'::bytea ORDER BY run_id LIMIT $2::bigint;
