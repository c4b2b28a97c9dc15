"""The REST Proxy: Kafka over HTTP, by Confluent's API, versions 2 and 3.

rest_config, librdkafka_config             Confluent's names; what of them goes to librdkafka
cluster_queries                            questions to the cluster, by our own client in threads
producer                                   records out, by librdkafka, with their offsets
consumer_instances, consumer_instance      consumers that live between requests, by librdkafka
schemas                                    JSON to bytes and back by the registry's schemas
formats                                    binary, json, string and the formats with schemas
errors                                     Confluent's codes, and Kafka's errors as such
api                                        the resources
"""
