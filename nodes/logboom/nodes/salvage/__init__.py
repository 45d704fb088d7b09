"""What a damaged store still holds, read from the bytes of its files, and brought back."""
