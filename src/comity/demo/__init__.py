"""The demonstration: small studies on generated and bundled data, in under a minute."""

from comity.demo.run import run_demo

__all__ = ["run_demo"]
