-- Conversation heads. For what the types and the escaped text are about, see the first migration.

-- The key is the SHA-256 of the conversation's id. Messages are where those of snapshots are; the foreign key keeps them
-- from being collected.
CREATE TABLE {schema}.conversation_heads (
  key bytea PRIMARY KEY,
  -- Random, and another with every change: a writer names the version it worked out its change from.
  version text NOT NULL,
  updated_at timestamptz NOT NULL,
  head bytea REFERENCES {schema}.history_links,
  length bigint NOT NULL,
  metadata text NOT NULL,
  -- What a search looks through: folded text, in which nothing is escaped.
  metadata_text text NOT NULL,
  message_text text NOT NULL
);
CREATE INDEX conversation_heads_by_activity ON {schema}.conversation_heads (updated_at DESC, key);
-- It finds what has a link, also for the foreign key.
CREATE INDEX conversation_heads_by_head ON {schema}.conversation_heads (head);

-- Write a head, and what is new of its history, and return true; or return false and write nothing, if the version that
-- is there is not the `expected` one (null: there is none).
--
-- `document` is the row by column name, and without `head` the messages stay as they are. For `content`, see
-- `commit_batch`. Doing it twice is the same as doing it once.
CREATE FUNCTION {schema}.put_conversation(wanted bytea, expected text, document text, content bytea) RETURNS boolean
LANGUAGE plpgsql
SET search_path = {schema}, pg_temp
SET enable_seqscan = off
AS $put_conversation$
DECLARE
  item CONSTANT jsonb := document::jsonb;
  given CONSTANT conversation_heads := jsonb_populate_record(NULL::conversation_heads, item);
  known text;
BEGIN
  SELECT version INTO known FROM conversation_heads WHERE key = wanted FOR UPDATE;
  IF known = given.version THEN
    RETURN true;
  END IF;
  IF known IS DISTINCT FROM expected THEN
    RETURN false;
  END IF;
  -- Sorted, so that writers which share messages wait for each other instead of deadlocking.
  INSERT INTO messages
    SELECT digest, substr(content, start, length)
    FROM jsonb_to_recordset(item -> 'messages') AS message(digest bytea, start int, length int)
    ORDER BY digest
    ON CONFLICT DO NOTHING;
  INSERT INTO history_links
    SELECT * FROM jsonb_populate_recordset(NULL::history_links, item -> 'links') ORDER BY digest
    ON CONFLICT DO NOTHING;
  IF expected IS NULL THEN
    INSERT INTO conversation_heads VALUES (
      wanted, given.version, given.updated_at, given.head, given.length, given.metadata, given.metadata_text,
      given.message_text
    )
    ON CONFLICT DO NOTHING;
    -- Another writer of the same key may have been faster.
    RETURN FOUND;
  END IF;
  UPDATE conversation_heads
    SET version = given.version, updated_at = given.updated_at, metadata = given.metadata,
      metadata_text = given.metadata_text,
      head = CASE WHEN item ? 'head' THEN given.head ELSE head END,
      length = CASE WHEN item ? 'head' THEN given.length ELSE length END,
      message_text = CASE WHEN item ? 'head' THEN given.message_text ELSE message_text END
    WHERE key = wanted;
  RETURN true;
END
$put_conversation$;

-- Delete a head with the runs of its conversation, and say `deleted`. Or delete nothing and say why: it has `moved` to
-- another version, or it is `spared`, because a run was active since `idle_since` or, if they are spared, has an effect
-- whose outcome is unknown.
CREATE FUNCTION {schema}.delete_conversation(
  wanted bytea, expected text, conversation text, idle_since timestamptz, spare_unresolved boolean
) RETURNS text
LANGUAGE plpgsql
SET search_path = {schema}, pg_temp
SET enable_seqscan = off
AS $delete_conversation$
DECLARE
  run_ids text[];
BEGIN
  PERFORM FROM conversation_heads WHERE key = wanted AND version = expected FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 'moved';
  END IF;
  -- In the order in which writers lock runs.
  run_ids := ARRAY(
    SELECT run_id FROM runs
    WHERE left(conversation_id, 200) = left(conversation, 200) AND conversation_id = conversation
    ORDER BY run_id COLLATE "C"
  );
  IF spare_unresolved
    AND EXISTS (SELECT FROM tool_effects WHERE run_id = ANY (run_ids) AND status = 'started')
  THEN
    RETURN 'spared';
  END IF;
  IF NOT delete_runs(to_jsonb(run_ids)::text, idle_since) THEN
    RETURN 'spared';
  END IF;
  DELETE FROM conversation_heads WHERE key = wanted;
  RETURN 'deleted';
END
$delete_conversation$;
