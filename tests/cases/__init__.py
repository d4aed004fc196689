"""Views and scenarios that several tests run on, most of them from papers."""
