"""The results: the bars, for people and for programs."""
