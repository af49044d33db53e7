"""The rows that everything is asked of: made once, kept below the bench's folder, never in the repository."""
