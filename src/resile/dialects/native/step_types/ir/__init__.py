"""Step types that stand under `ir`: only files of other systems have them."""
