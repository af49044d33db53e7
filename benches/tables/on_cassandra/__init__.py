"""The bench of Cassandra: Atoll's tables in a real cluster, beside plain rows and blobs in the same cluster, PostGIS
and Spark.

`cargo xtask bench cassandra` runs it. The rows, the questions, their true answers and the form of the bars are those of
the surrounding bench of tables.
"""
