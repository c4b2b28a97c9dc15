"""Sinks that write files: into folders, S3 and HDFS."""
