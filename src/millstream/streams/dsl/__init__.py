"""The DSL: streams and tables as objects whose methods draw the plan of a topology."""
