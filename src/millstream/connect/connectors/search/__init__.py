"""The sink into OpenSearch and Elasticsearch."""
