"""The measurements, one file for each kind of figure."""
