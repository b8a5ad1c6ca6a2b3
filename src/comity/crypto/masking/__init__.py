"""What a secure sum is made of: masks from seeds, shares of secrets, and who holds whose."""
