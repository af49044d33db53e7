"""The bench of Cassandra: Atoll's tables in a real cluster, beside plain rows and blobs in the same cluster, PostGIS
and Spark.

`cargo xtask bench cassandra` runs it. Rows, questions, their true answers and the bars' form are those of the bench of
tables around it.
"""
