"""Measurements of whole methods, beside what a user would pick instead."""
