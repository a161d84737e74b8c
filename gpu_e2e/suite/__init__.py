"""What the scenarios share: options, servers, one scenario's play and its books, the report."""
