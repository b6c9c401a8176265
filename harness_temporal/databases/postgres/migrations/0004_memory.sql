-- Notebooks of agents. What names them has no U+0000, so text holds it as it is.

CREATE TABLE {schema}.memory_notebooks (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  agent text COLLATE "C" NOT NULL,
  namespace text COLLATE "C" NOT NULL,
  -- How many operations there were. Whoever changes a notebook changes this first, and so holds the lock of the row.
  operations bigint NOT NULL,
  UNIQUE (agent, namespace)
);

CREATE TABLE {schema}.memory_notes (
  notebook_id bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  text text NOT NULL,
  PRIMARY KEY (notebook_id, name)
);

-- The newest operations of each notebook: the revision that one of them gave its note, empty if it deleted it.
CREATE TABLE {schema}.memory_operations (
  notebook_id bigint NOT NULL,
  key text COLLATE "C" NOT NULL,
  number bigint NOT NULL,
  revision text NOT NULL,
  PRIMARY KEY (notebook_id, key)
);

CREATE INDEX memory_operations_by_number ON {schema}.memory_operations (notebook_id, number);
