"""The worker that ships."""
