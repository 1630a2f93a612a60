"""The asyncio shell around the core: it owns the clock, the worker threads and the futures."""
