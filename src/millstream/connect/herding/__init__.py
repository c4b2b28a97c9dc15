"""How workers of one group share connectors and tasks: who is there, who runs what, and the running."""
