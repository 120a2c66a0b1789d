"""Wire types, and the CRDs that are generated from them."""
