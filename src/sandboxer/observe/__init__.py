"""What happened and how much: events, metrics."""
