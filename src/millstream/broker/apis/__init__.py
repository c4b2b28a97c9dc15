"""One module per family of APIs. Each states at its top the versions served and what is left out."""
