"""The programs that are asked the same questions: one adapter each, with the settings that suit it best.

`everyone` lists them; it needs all of their packages, and nothing else here does.
"""
