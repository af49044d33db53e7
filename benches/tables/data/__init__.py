"""The rows that every question is about: made once, and kept in the bench's folder, never in the repository."""
