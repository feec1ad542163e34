"""One node: its processes, its sessions, and who decides what became of a run."""
