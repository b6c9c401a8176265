"""PostgreSQL: the schema and the connections that stores of several kinds share."""
