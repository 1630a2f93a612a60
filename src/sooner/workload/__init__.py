"""What is served and when: recordings with known text, real durations, arrival processes."""
