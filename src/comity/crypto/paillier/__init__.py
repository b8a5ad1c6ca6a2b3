"""The Paillier cryptosystem: keys, packing, tables, a threshold."""
