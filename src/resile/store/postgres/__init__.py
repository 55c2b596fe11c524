"""The store on PostgreSQL: address, sessions, schema, rows, group commits and the bell."""
