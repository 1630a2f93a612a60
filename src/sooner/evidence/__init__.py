"""Records of runs, measured or simulated, and what can be concluded from them."""
