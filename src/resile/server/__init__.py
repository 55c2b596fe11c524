"""`resile server`: drives the runs of a database, and offers them over HTTP.

declarations  what a route is: method, path, role, query, body, answers     table     every route
app           from a request to an answer                                   openapi   the document of the API
access        tokens, roles, and where requests may come from               problems  refusals
endpoints     one module for each subject                                   streams   events and output as they come
stores        threads with their own connections                            main      the process: start, signals, stop

The packages of the extra `server` are imported only here.
"""
