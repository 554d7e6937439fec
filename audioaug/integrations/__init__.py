"""Integrations: code for other libraries, which are imported only when it is used."""
