"""Cryptographic building blocks. They know nothing of data or privacy."""
