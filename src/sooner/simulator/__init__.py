"""The scheduler in virtual time: what each policy would give on an engine described by a few numbers."""
