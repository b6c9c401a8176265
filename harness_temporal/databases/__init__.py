"""How each database is opened, brought to its schema and asked. Stores of several kinds share one database."""
