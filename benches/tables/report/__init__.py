"""What comes out: the bars, for people and for programs."""
