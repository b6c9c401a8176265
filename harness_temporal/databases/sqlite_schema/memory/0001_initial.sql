-- A released migration is never edited: its checksum is in every database that it made.
--
-- Texts of notes are UTF-8 as bytes, so that their beginning is cut by bytes, whatever encoding the database has.

CREATE TABLE memory_notebooks (
  id INTEGER PRIMARY KEY,
  agent TEXT NOT NULL,
  namespace TEXT NOT NULL,
  -- How many operations there were.
  operations INTEGER NOT NULL,
  UNIQUE (agent, namespace)
);

CREATE TABLE memory_notes (
  notebook_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  text BLOB NOT NULL,
  PRIMARY KEY (notebook_id, name)
);

-- The newest operations of each notebook: the revision that one of them gave its note, empty if it deleted it.
CREATE TABLE memory_operations (
  notebook_id INTEGER NOT NULL,
  key TEXT NOT NULL,
  number INTEGER NOT NULL,
  revision TEXT NOT NULL,
  PRIMARY KEY (notebook_id, key)
);

CREATE INDEX memory_operations_by_number ON memory_operations (notebook_id, number);
