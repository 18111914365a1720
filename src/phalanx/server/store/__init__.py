"""The store: everything that must survive, in one database. SQLite by default, PostgreSQL by its URL."""
