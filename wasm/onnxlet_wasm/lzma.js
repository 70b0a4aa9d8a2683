// Takes a file in the format .lzma, whose header tells the length, apart. The pure wheel has the kernels in one, as that
// is a fifth smaller than what every Pyodide's Python can take apart. From Igor Pavlov's "LZMA specification".
// The value of this script is the function; browser.py calls it.
(function (data) {
  const header = new DataView(data.buffer, data.byteOffset);
  const length = header.getUint32(5, true);
  const literalBits = data[0] % 9;
  const positionBits = Math.floor(data[0] / 9);
  const out = new Uint8Array(length);
  let size = 0;
  let at = 18;
  // The range coder: how much is left of the range, and where in it the coded number lies.
  const state = Uint32Array.of(-1, header.getUint32(14));
  const narrow = (range) => {
    if (range < 1 << 24) {
      range <<= 8;
      state[1] = (state[1] << 8) | data[at++];
    }
    state[0] = range;
  };

  // Places of the probabilities, which are of a 0, in 2048.
  const IS_MATCH = 0;
  const IS_REPEAT = 192;
  const IS_OLDER = 204; // than the last distance, than the one before, and than that
  const IS_LONG = 240;
  const SLOT = 432;
  const MIDDLE = 688;
  const ALIGN = 816;
  const MATCH = 832;
  const REPEAT = 1346;
  const LITERAL = 1860;
  const chances = new Uint16Array(LITERAL + (0x300 << (literalBits + (positionBits % 5)))).fill(1024);
  const bit = (place) => {
    const chance = chances[place];
    const bound = (state[0] >>> 11) * chance;
    if (state[1] < bound) {
      chances[place] = chance + ((2048 - chance) >> 5);
      narrow(bound);
      return 0;
    }
    chances[place] = chance - (chance >> 5);
    state[1] -= bound;
    narrow(state[0] - bound);
    return 1;
  };
  const number = (place, end) => {
    let node = 1;
    while (node < end) node = 2 * node + bit(place + node);
    return node - end;
  };
  const reversed = (place, bits) => {
    let result = 0;
    for (let i = 0, node = 1; i < bits; i++) {
      const taken = bit(place + node);
      node = 2 * node + taken;
      result += taken << i;
    }
    return result;
  };
  const direct = (bits) => {
    let result = 0;
    while (bits--) {
      const half = state[0] >>> 1;
      const upper = state[1] >= half;
      if (upper) state[1] -= half;
      narrow(half);
      result = 2 * result + upper;
    }
    return result;
  };
  const distance = (copied) => {
    const slot = number(SLOT + 64 * Math.min(copied - 2, 3), 64);
    if (slot < 4) return slot;
    const bits = (slot >> 1) - 1;
    const base = (2 + (slot & 1)) << bits;
    if (slot < 14) return base + reversed(MIDDLE + base - slot, bits);
    return base + 16 * direct(bits - 4) + reversed(ALIGN, 4);
  };

  const last = [0, 0, 0, 0]; // distances, less one
  let history = 0; // what came before: 7 and above are matches
  while (size < length) {
    const position = size & ((1 << (positionBits / 5)) - 1);
    const afterMatch = history > 6;
    if (!bit(IS_MATCH + 16 * history + position)) {
      const context = ((size & ((1 << (positionBits % 5)) - 1)) << literalBits) + (out[size - 1] >> (8 - literalBits));
      // After a match: the byte that it would have gone on with, as long as the bits agree.
      let [node, expected, mask] = [1, out[size - last[0] - 1], afterMatch ? 256 : 0];
      while (node < 256) {
        expected <<= 1;
        const taken = bit(LITERAL + 0x300 * context + mask + (expected & mask) + node);
        node = 2 * node + taken;
        mask &= taken ? expected : ~expected;
      }
      out[size++] = node;
      history -= Math.min(history, history < 10 ? 3 : 6);
      continue;
    }
    const repeated = bit(IS_REPEAT + history);
    let copied = 1;
    let older = 0;
    if (repeated) while (older < 3 && bit(IS_OLDER + 12 * older + history)) older++;
    if (repeated && !older && !bit(IS_LONG + 16 * history + position)) {
      history = afterMatch ? 11 : 9;
    } else {
      const place = repeated ? REPEAT : MATCH;
      const row = place + 2 + 8 * position;
      if (!bit(place)) copied = 2 + number(row, 8);
      else if (!bit(place + 1)) copied = 10 + number(row + 128, 8);
      else copied = 18 + number(place + 258, 256);
      last.unshift(repeated ? last.splice(older, 1)[0] : distance(copied));
      last.length = 4;
      history = afterMatch ? 10 + repeated : 7 + repeated;
    }
    for (let from = size - last[0] - 1; copied-- && size < length; ) out[size++] = out[from++];
  }
  return out;
})
