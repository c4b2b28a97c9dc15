"""TLS of the broker's listeners: certificates, the contexts made of them, and who a client's certificate
names."""
