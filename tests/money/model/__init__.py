"""The money of the platform as a model: random schedules against the real packages, and an oracle of its
own.
"""
