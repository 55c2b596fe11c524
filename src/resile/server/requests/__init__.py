"""What the server does with a request before an endpoint gets it: bounds it, parses it, carries out no call twice."""
