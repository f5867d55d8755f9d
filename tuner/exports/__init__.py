"""Stored winners as tables that other libraries load. One module a format; ``formats`` finds them by name."""
