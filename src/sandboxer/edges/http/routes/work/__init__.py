"""Routes of what runs inside: executions, jobs, sessions, services, languages."""
