-- A released migration is never edited: its checksum is in every database that it made.
--
-- Times are microseconds since 1970 in UTC, digests are raw SHA-256, text is escaped (`harness_temporal.text`).
-- There are no foreign keys: whether they are enforced is a setting of the connection, which may be the caller's.

CREATE TABLE runs (
  registration_number INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id TEXT NOT NULL UNIQUE,
  conversation_id TEXT,
  parent_run_id TEXT,
  agent_name TEXT,
  metadata TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  registration_id TEXT
);
CREATE INDEX runs_by_start ON runs (started_at);
CREATE INDEX runs_by_conversation ON runs (conversation_id, started_at) WHERE conversation_id IS NOT NULL;
CREATE INDEX runs_by_parent ON runs (parent_run_id, started_at) WHERE parent_run_id IS NOT NULL;

-- Not only for registered runs: events, snapshots and tool effects of a run share its numbers.
CREATE TABLE run_sequences (
  run_id TEXT PRIMARY KEY NOT NULL,
  next_seq INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE events (
  run_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  kind TEXT NOT NULL,
  step_index INTEGER NOT NULL,
  timestamp INTEGER NOT NULL,
  conversation_id TEXT,
  parent_run_id TEXT,
  agent_name TEXT,
  tool_call_id TEXT,
  tool_name TEXT,
  error TEXT,
  metadata TEXT NOT NULL,
  idempotency_key TEXT,
  PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX events_by_key ON events (run_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- With a rowid, unlike the tables of small rows: bodies are large and digests random, so new ones go to the end.
CREATE TABLE messages (
  digest BLOB PRIMARY KEY NOT NULL,
  body BLOB NOT NULL
);

-- A link that is here has all its parents and their messages here.
CREATE TABLE history_links (
  digest BLOB PRIMARY KEY NOT NULL,
  parent BLOB,
  message BLOB NOT NULL,
  length INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE snapshots (
  run_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  step_index INTEGER NOT NULL,
  state TEXT NOT NULL,
  timestamp INTEGER NOT NULL,
  conversation_id TEXT,
  parent_run_id TEXT,
  agent_name TEXT,
  idempotency_key TEXT,
  head BLOB,
  length INTEGER NOT NULL,
  PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;

-- A table of its own, because a key outlives its snapshot.
CREATE TABLE snapshot_idempotency_keys (
  run_id TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  PRIMARY KEY (run_id, idempotency_key)
) WITHOUT ROWID;

CREATE TABLE tool_effects (
  run_id TEXT NOT NULL,
  ledger_key TEXT NOT NULL,
  seq INTEGER NOT NULL,
  tool_call_id TEXT NOT NULL,
  tool_name TEXT NOT NULL,
  call_key TEXT,
  status TEXT NOT NULL,
  step_index INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  holder TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at INTEGER,
  idempotency_key TEXT,
  effect_summary TEXT,
  outcome TEXT,
  value BLOB,
  error TEXT,
  PRIMARY KEY (run_id, ledger_key)
);
CREATE UNIQUE INDEX tool_effects_by_seq ON tool_effects (run_id, seq);
CREATE INDEX tool_effects_by_call ON tool_effects (run_id, tool_call_id, seq);
CREATE INDEX tool_effects_unresolved ON tool_effects (run_id, seq) WHERE status = 'started';

CREATE TABLE model_responses (
  run_id TEXT PRIMARY KEY NOT NULL,
  key TEXT NOT NULL,
  body BLOB NOT NULL
);
