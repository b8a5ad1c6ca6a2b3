"""The auction, corrected: owners bid record by record towards a noisy broadcast, and few are asked (proof.md)."""
