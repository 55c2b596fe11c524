/* FNV-1a turns the seed into a number, mulberry32 the number into a sequence. */
(function () {
  const {imul} = Math, seed = SEED;
  let state = 2166136261;
  for (let i = 0; i < seed.length; i++) state = imul(state ^ seed.charCodeAt(i), 16777619);
  return () => {
    state = state + 0x6D2B79F5 | 0;
    let mixed = imul(state ^ state >>> 15, state | 1);
    mixed = mixed + imul(mixed ^ mixed >>> 7, mixed | 61) ^ mixed;
    return ((mixed ^ mixed >>> 14) >>> 0) / 4294967296;
  };
})()
