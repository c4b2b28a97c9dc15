"""The REST Proxy: Kafka over HTTP, by Confluent's API, versions 2 and 3.

settings, kafka_settings   Confluent's names; what of them goes to librdkafka
kafka                      questions to the cluster, by our own client in threads
producing                  records out, by librdkafka, with their offsets
instances, instance        consumers that live between requests, by librdkafka
schemas, avro_json         JSON to bytes and back by the registry's schemas
formats                    binary, json, string and the formats with schemas behind one face
errors                     Confluent's codes, and Kafka's errors as such
api                        the resources
"""
