-- A released migration is never edited: its checksum is in every database that it made.
--
-- The key is the SHA-256 of the conversation's id. Times are microseconds since 1970 in UTC, metadata is escaped JSON
-- (`harness_temporal.text`). Messages are where those of snapshots are, and `head` is the last link of their history.

-- With a rowid: the texts are large, and a listing reads none of them.
CREATE TABLE conversation_heads (
  key BLOB PRIMARY KEY NOT NULL,
  updated_at INTEGER NOT NULL,
  head BLOB,
  length INTEGER NOT NULL,
  metadata TEXT NOT NULL,
  metadata_text TEXT NOT NULL,
  message_text TEXT NOT NULL
);
CREATE INDEX conversation_heads_by_activity ON conversation_heads (updated_at DESC, key);
