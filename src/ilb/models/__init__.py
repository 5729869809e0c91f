"""What crosses from the offline stage to the online stage, and how it is kept on disk."""
