"""`harness-temporal effects`: tool calls whose outcome nobody recorded, and what became of them."""
