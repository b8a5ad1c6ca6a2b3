"""The Paillier cryptosystem: keys and encryption, packed vectors, threshold decryption."""
