"""Live and hindsight repair, similarity, re-scoring and replay."""
