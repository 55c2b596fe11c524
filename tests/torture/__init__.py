"""Everything that can happen to a machine, at random, by one seed, while workflows with every feature go on."""
