"""The bench of tables: Atoll beside DuckDB, Polars, PostgreSQL with PostGIS, PySpark, HDF5, ADIOS2 and plain text.

`cargo xtask bench tables` makes an environment with the packages that `requirements.txt` pins, builds Atoll into it,
and runs this package. `data` makes the rows, `asked` the questions and their true answers; `peers` holds one adapter
for each program that answers, `writing` one for each that stores, `phases` the measurements, and `report` the bars.

Invariant: a bar whose part was not measured is reported as not measured, never as holding.
Invariant: every timed answer is compared with the truth, and one wrong answer fails the run.
"""
