"""Training on an unmodified verl: the CPU platform."""
