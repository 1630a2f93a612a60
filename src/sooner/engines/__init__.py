"""Engines: what turns audio into text, one window at a time."""
