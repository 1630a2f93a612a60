"""Evidence: the load generator, the demo, and what benchmarks and tests need to measure a real server."""
