"""`harness-temporal doctor`: tries all that is configured, and says what is wrong."""
