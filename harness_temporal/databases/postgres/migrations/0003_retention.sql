-- Deleting runs, and messages that no snapshot has. For what the types and the escaped text are about, see the first
-- migration.

-- They find what builds on a link or has a message, also for the foreign keys.
CREATE INDEX snapshots_by_head ON {schema}.snapshots (head);
CREATE INDEX history_links_by_parent ON {schema}.history_links (parent);
CREATE INDEX history_links_by_message ON {schema}.history_links (message);

-- Delete all that these runs have, unless one of them was active since `idle_since`. `names` is a JSON list, in the
-- order in which writers lock runs.
CREATE FUNCTION {schema}.delete_runs(names text, idle_since timestamptz) RETURNS boolean
LANGUAGE plpgsql
SET search_path = {schema}, pg_temp
SET enable_seqscan = off
AS $delete_runs$
DECLARE
  run_ids CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(names::jsonb));
  wanted text;
BEGIN
  FOREACH wanted IN ARRAY run_ids LOOP
    PERFORM FROM run_sequences WHERE run_id = wanted FOR UPDATE;
  END LOOP;
  IF EXISTS (SELECT FROM runs WHERE run_id = ANY (run_ids) AND started_at >= idle_since)
    OR EXISTS (SELECT FROM events WHERE run_id = ANY (run_ids) AND timestamp >= idle_since)
    OR EXISTS (SELECT FROM snapshots WHERE run_id = ANY (run_ids) AND timestamp >= idle_since)
    OR EXISTS (SELECT FROM tool_effects WHERE run_id = ANY (run_ids) AND coalesce(ended_at, started_at) >= idle_since)
  THEN
    RETURN false;
  END IF;
  DELETE FROM runs WHERE run_id = ANY (run_ids);
  DELETE FROM events WHERE run_id = ANY (run_ids);
  DELETE FROM snapshots WHERE run_id = ANY (run_ids);
  -- The index of the keys has the run's id in front, with a space behind.
  FOREACH wanted IN ARRAY run_ids LOOP
    DELETE FROM snapshot_idempotency_keys
      WHERE run_id = wanted
        AND run_id || ' ' || left(idempotency_key, 200) COLLATE "C" BETWEEN wanted || ' ' AND wanted || '!';
  END LOOP;
  DELETE FROM tool_effects WHERE run_id = ANY (run_ids);
  DELETE FROM model_responses WHERE run_id = ANY (run_ids);
  DELETE FROM run_sequences WHERE run_id = ANY (run_ids);
  RETURN true;
END
$delete_runs$;

-- Delete the links in a JSON list of hexadecimal digests, and those before them, as far as nothing else builds on them.
-- Messages go with the last link that has them.
CREATE FUNCTION {schema}.collect_links(digests text) RETURNS bigint
LANGUAGE plpgsql
SET search_path = {schema}, pg_temp
SET enable_seqscan = off
AS $collect_links$
DECLARE
  step bytea;
  link history_links;
  count bigint := 0;
BEGIN
  FOR step IN SELECT decode(jsonb_array_elements_text(digests::jsonb), 'hex') LOOP
    WHILE step IS NOT NULL LOOP
      BEGIN
        DELETE FROM history_links AS loose
          WHERE loose.digest = step
            AND NOT EXISTS (SELECT FROM snapshots WHERE head = step)
            AND NOT EXISTS (SELECT FROM history_links AS next WHERE next.parent = step)
          RETURNING loose.* INTO link;
        EXIT WHEN NOT FOUND;
        DELETE FROM messages
          WHERE digest = link.message
            AND NOT EXISTS (SELECT FROM history_links AS other WHERE other.message = link.message);
      EXCEPTION WHEN foreign_key_violation THEN
        -- While the delete waited, a writer began to build on it.
        EXIT;
      END;
      count := count + 1;
      step := link.parent;
    END LOOP;
  END LOOP;
  RETURN count;
END
$collect_links$;
