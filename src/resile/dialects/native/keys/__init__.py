"""The tables of keys of the native file: each key with its reader and its documentation."""
