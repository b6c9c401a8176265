"""The workflows that ship."""
