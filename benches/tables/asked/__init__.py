"""Questions from a seed, and their true answers from plain scans."""
