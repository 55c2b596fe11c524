"""Commands about failed runs: recover them, watch over them."""
