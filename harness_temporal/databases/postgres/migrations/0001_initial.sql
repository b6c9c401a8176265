-- A released migration is never edited: its checksum is in every database that it made.
--
-- Columns have the names of the record's fields. Text and the JSON of metadata are escaped (`harness_temporal.text`),
-- because PostgreSQL has no U+0000. There are only text, bytea, bigint and timestamptz: nobody changes the codecs of
-- these on a pool that others use too.
--
-- Keys and ids have no length limit, but an entry of a B-tree has one (2,704 bytes). So an index holds the first 200
-- characters of a key, and a query compares these and the key. Before them stands the run's id, as part of the same
-- text (it has no space): while a table is small, the planner likes any index whose first column is the run as much.
-- That a key is there once is the work of `commit_batch`, through which every write goes, one writer per run at a time.

CREATE TABLE {schema}.schema_versions (
  version bigint PRIMARY KEY,
  name text NOT NULL,
  checksum text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE {schema}.runs (
  run_id text PRIMARY KEY,
  conversation_id text,
  parent_run_id text,
  agent_name text,
  metadata text NOT NULL,
  started_at timestamptz NOT NULL,
  registration_id text,
  registration_number bigint NOT NULL GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX runs_by_start ON {schema}.runs (started_at, registration_number);
CREATE INDEX runs_by_conversation ON {schema}.runs (left(conversation_id, 200), started_at, registration_number)
  WHERE conversation_id IS NOT NULL;
CREATE INDEX runs_by_parent ON {schema}.runs (left(parent_run_id, 200), started_at, registration_number)
  WHERE parent_run_id IS NOT NULL;

-- Not only for registered runs: a run's events, snapshots and tool effects share its numbers. Whoever writes to a run
-- holds the lock of its row, also to make the run's first tool effect, which has no row of its own to lock yet.
CREATE TABLE {schema}.run_sequences (
  run_id text PRIMARY KEY,
  next_seq bigint NOT NULL
);

CREATE TABLE {schema}.events (
  run_id text NOT NULL,
  seq bigint NOT NULL,
  kind text NOT NULL,
  step_index bigint NOT NULL,
  timestamp timestamptz NOT NULL,
  conversation_id text,
  parent_run_id text,
  agent_name text,
  tool_call_id text,
  tool_name text,
  error text,
  metadata text NOT NULL,
  idempotency_key text,
  PRIMARY KEY (run_id, seq)
);
CREATE INDEX events_by_key ON {schema}.events ((run_id || ' ' || left(idempotency_key, 200)))
  WHERE idempotency_key IS NOT NULL;

CREATE TABLE {schema}.messages (
  digest bytea PRIMARY KEY,
  body bytea NOT NULL
);

-- The foreign keys see to it that a link which is here has all its parents and their messages here.
CREATE TABLE {schema}.history_links (
  digest bytea PRIMARY KEY,
  parent bytea REFERENCES {schema}.history_links,
  message bytea NOT NULL REFERENCES {schema}.messages,
  length bigint NOT NULL
);

CREATE TABLE {schema}.snapshots (
  run_id text NOT NULL,
  seq bigint NOT NULL,
  step_index bigint NOT NULL,
  state text NOT NULL,
  timestamp timestamptz NOT NULL,
  conversation_id text,
  parent_run_id text,
  agent_name text,
  idempotency_key text,
  head bytea REFERENCES {schema}.history_links,
  length bigint NOT NULL,
  PRIMARY KEY (run_id, seq)
);
CREATE INDEX snapshots_by_state ON {schema}.snapshots (run_id, state, seq);

-- A table of its own, because a key outlives its snapshot.
CREATE TABLE {schema}.snapshot_idempotency_keys (
  run_id text NOT NULL,
  idempotency_key text NOT NULL
);
CREATE INDEX snapshot_idempotency_keys_by_key
  ON {schema}.snapshot_idempotency_keys ((run_id || ' ' || left(idempotency_key, 200)));

CREATE TABLE {schema}.tool_effects (
  run_id text NOT NULL,
  ledger_key text NOT NULL,
  seq bigint NOT NULL,
  tool_call_id text NOT NULL,
  tool_name text NOT NULL,
  call_key text,
  status text NOT NULL,
  step_index bigint NOT NULL,
  attempts bigint NOT NULL,
  holder text NOT NULL,
  started_at timestamptz NOT NULL,
  ended_at timestamptz,
  idempotency_key text,
  effect_summary text,
  outcome text,
  value bytea,
  error text,
  -- Random, and another with every change: a writer names the revision it worked out its change from.
  revision text NOT NULL,
  PRIMARY KEY (run_id, seq)
);
CREATE INDEX tool_effects_by_ledger_key ON {schema}.tool_effects ((run_id || ' ' || left(ledger_key, 200)));
CREATE INDEX tool_effects_by_call ON {schema}.tool_effects ((run_id || ' ' || left(tool_call_id, 200)), seq);
CREATE INDEX tool_effects_unresolved ON {schema}.tool_effects (run_id, seq) WHERE status = 'started';

CREATE TABLE {schema}.model_responses (
  run_id text PRIMARY KEY,
  key text NOT NULL,
  body bytea NOT NULL
);

-- Writes all records of one moment, or nothing. One call is one round trip.
--
-- `document` holds rows by column name. Bytes are beside it: `content` is all of them in a row, and a row of the
-- document says where its own start and how long they are. The ledger's rule is not here: the client works out the new
-- entries, and names in `expected` the revision of each entry that it started from (null: no entry). If one has another
-- by now, nothing is written and the client does it again.
--
-- `outcome` is `written`, `effects_moved`, or `duplicate_run` with the run's id in `subject`. A parent or head of a
-- history that is not here violates a foreign key.
CREATE FUNCTION {schema}.commit_batch(
  document text, content bytea, snapshot_limit bigint, OUT outcome text, OUT subject text
)
LANGUAGE plpgsql
-- These settings hold in the function only. The second is there because a session keeps its plans, and may make them
-- while the tables are empty.
SET search_path = {schema}, pg_temp
SET enable_seqscan = off
AS $commit_batch$
DECLARE
  batch CONSTANT jsonb := document::jsonb;
  item jsonb;
  run runs;
  effect tool_effects;
  event events;
  snapshot snapshots;
  sequence run_sequences;
  run_ids text[];
  next_seqs bigint[];
  place int;
BEGIN
  -- Lock the runs, which all writers name in the same order. What follows sees all that the writers before us did.
  FOR item IN SELECT jsonb_array_elements(batch -> 'run_ids') LOOP
    LOOP
      INSERT INTO run_sequences VALUES (item #>> '{}', 1) ON CONFLICT DO NOTHING;
      SELECT * INTO sequence FROM run_sequences WHERE run_id = item #>> '{}' FOR UPDATE;
      -- Whoever held the lock may have deleted the run.
      EXIT WHEN FOUND;
    END LOOP;
    run_ids := run_ids || sequence.run_id;
    next_seqs := next_seqs || sequence.next_seq;
  END LOOP;

  FOR run IN SELECT * FROM jsonb_populate_recordset(NULL::runs, batch -> 'runs') LOOP
    PERFORM FROM runs AS known
      WHERE known.run_id = run.run_id AND (known.registration_id = run.registration_id) IS NOT TRUE;
    IF FOUND THEN
      outcome := 'duplicate_run';
      subject := run.run_id;
      RETURN;
    END IF;
  END LOOP;

  FOR effect IN SELECT * FROM jsonb_populate_recordset(NULL::tool_effects, batch -> 'expected') LOOP
    IF effect.revision IS DISTINCT FROM (
      SELECT known.revision FROM tool_effects AS known
      WHERE known.ledger_key = effect.ledger_key
        AND known.run_id || ' ' || left(known.ledger_key, 200)
          = effect.run_id || ' ' || left(effect.ledger_key, 200)
    ) THEN
      outcome := 'effects_moved';
      RETURN;
    END IF;
  END LOOP;

  INSERT INTO runs OVERRIDING USER VALUE
    SELECT * FROM jsonb_populate_recordset(NULL::runs, batch -> 'runs')
    ON CONFLICT DO NOTHING;

  FOR item IN SELECT jsonb_array_elements(batch -> 'effects') LOOP
    effect := jsonb_populate_record(NULL::tool_effects, item);
    effect.value := substr(content, (item ->> 'start')::int, (item ->> 'length')::int);
    DELETE FROM tool_effects AS known
      WHERE known.ledger_key = effect.ledger_key
        AND known.run_id || ' ' || left(known.ledger_key, 200)
          = effect.run_id || ' ' || left(effect.ledger_key, 200)
      RETURNING known.seq INTO effect.seq;
    IF NOT FOUND THEN
      place := array_position(run_ids, effect.run_id);
      effect.seq := next_seqs[place];
      next_seqs[place] := next_seqs[place] + 1;
    END IF;
    INSERT INTO tool_effects VALUES (effect.*);
  END LOOP;

  FOR event IN SELECT * FROM jsonb_populate_recordset(NULL::events, batch -> 'events') LOOP
    CONTINUE WHEN EXISTS (
      SELECT FROM events AS known
      WHERE known.idempotency_key = event.idempotency_key
        AND known.run_id || ' ' || left(known.idempotency_key, 200)
          = event.run_id || ' ' || left(event.idempotency_key, 200)
    );
    place := array_position(run_ids, event.run_id);
    event.seq := next_seqs[place];
    next_seqs[place] := next_seqs[place] + 1;
    INSERT INTO events VALUES (event.*);
  END LOOP;

  FOR item IN SELECT jsonb_array_elements(batch -> 'snapshots') LOOP
    snapshot := jsonb_populate_record(NULL::snapshots, item);
    CONTINUE WHEN EXISTS (
      SELECT FROM snapshot_idempotency_keys AS known
      WHERE known.idempotency_key = snapshot.idempotency_key
        AND known.run_id || ' ' || left(known.idempotency_key, 200)
          = snapshot.run_id || ' ' || left(snapshot.idempotency_key, 200)
    );
    IF snapshot.idempotency_key IS NOT NULL THEN
      INSERT INTO snapshot_idempotency_keys VALUES (snapshot.run_id, snapshot.idempotency_key);
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
    place := array_position(run_ids, snapshot.run_id);
    snapshot.seq := next_seqs[place];
    next_seqs[place] := next_seqs[place] + 1;
    INSERT INTO snapshots VALUES (snapshot.*);
    -- The newest of all is one of the newest N. Where a subquery finds nothing, nothing is pruned or spared by it.
    DELETE FROM snapshots AS old
      WHERE snapshot_limit IS NOT NULL
      AND old.run_id = snapshot.run_id
      AND old.seq <= (
        SELECT seq FROM snapshots WHERE run_id = snapshot.run_id ORDER BY seq DESC LIMIT 1 OFFSET snapshot_limit
      )
      AND old.seq IS DISTINCT FROM (
        SELECT max(seq) FROM snapshots WHERE run_id = snapshot.run_id AND state = 'complete'
      );
  END LOOP;

  INSERT INTO model_responses
    SELECT run_id, key, substr(content, start, length)
    FROM jsonb_to_recordset(batch -> 'responses') AS response(run_id text, key text, start int, length int)
    ON CONFLICT (run_id) DO UPDATE SET key = excluded.key, body = excluded.body;

  FOR place IN 1 .. cardinality(run_ids) LOOP
    UPDATE run_sequences SET next_seq = next_seqs[place] WHERE run_id = run_ids[place] AND next_seq < next_seqs[place];
  END LOOP;
  outcome := 'written';
END
$commit_batch$;
