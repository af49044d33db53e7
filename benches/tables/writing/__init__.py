"""The programs that store a run step by step: one adapter each, with each step acknowledged as durable.

`everyone` lists them; it needs all of their packages, and nothing else here does.
"""
