"""Plays the case files of tests/requests: their language (language.py), values and expectations, the stage (kvway and
workers) and what clients, workers and kvway do in a step."""
