"""A broker and its name servers: registration, metadata, and the roles that follow from it."""
