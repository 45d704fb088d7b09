"""What producers and readers ask of a queue's leader."""
