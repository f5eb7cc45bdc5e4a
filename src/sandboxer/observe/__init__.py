"""What happened and how much: events, metrics, traces, the log."""
