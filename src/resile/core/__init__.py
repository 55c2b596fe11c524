"""The pure core: `react(state, event) -> (state, actions)`. No clock, no IO, no randomness, no dialect."""
