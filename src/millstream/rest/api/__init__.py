"""The resources: v2_* and v3_*, what is around them, and how they answer."""
