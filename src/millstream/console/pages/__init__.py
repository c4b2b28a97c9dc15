"""The parts of the site, one module each. Handlers gather what a template needs; blocking calls go through
the pool."""
