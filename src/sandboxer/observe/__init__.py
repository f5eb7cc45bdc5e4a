"""Records what happened and how much: events, webhooks, metrics, traces, the log."""
