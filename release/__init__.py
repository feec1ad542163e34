"""What a release is checked by; see docs/release.md."""
