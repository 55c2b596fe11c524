"""The store on SQLite: schema, connections, rows and group commits."""
