"""Verbs of what runs inside: run, jobs, sessions, services, languages."""
