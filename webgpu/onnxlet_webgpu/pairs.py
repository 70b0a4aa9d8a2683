"""Helper functions for integers of 64 bits, kept as pairs of u32 with the low word first, and for casts of float64.

Each one's twin is NumPy's operation on int64 or uint64: results wrap around, a division truncates.
"""

from __future__ import annotations

PAIR_HELPERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "pair_of_int": ("fn pair_of_int(x: i32) -> vec2<u32> {\n"
                    "    return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u));\n}", ()),
    "pair_add": ("""fn pair_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}""", ()),
    "pair_negate": ("fn pair_negate(a: vec2<u32>) -> vec2<u32> { return pair_add(~a, vec2<u32>(1u, 0u)); }",
                    ("pair_add",)),
    "pair_subtract": ("fn pair_subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {\n"
                      "    return pair_add(a, pair_negate(b));\n}",
                      ("pair_add", "pair_negate")),
    "word_product": ("""// The product of two words in full.
fn word_product(a: u32, b: u32) -> vec2<u32> {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let middle = ah * bl + ((al * bl) >> 16u);
    let other = al * bh + (middle & 0xffffu);
    return vec2<u32>(a * b, ah * bh + (middle >> 16u) + (other >> 16u));
}""", ()),
    "pair_multiply": ("""fn pair_multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = word_product(a.x, b.x);
    return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}""", ("word_product",)),
    "pair_equal": ("fn pair_equal(a: vec2<u32>, b: vec2<u32>) -> bool { return a.x == b.x && a.y == b.y; }", ()),
    "pair_below": ("""// a < b for unsigned numbers.
fn pair_below(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }""", ()),
    "pair_less": ("""// a < b for signed numbers.
fn pair_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return bitcast<i32>(a.y) < bitcast<i32>(b.y) || (a.y == b.y && a.x < b.x);
}""", ()),
    "pair_is_negative": ("fn pair_is_negative(a: vec2<u32>) -> bool { return (a.y >> 31u) == 1u; }", ()),
    "pair_absolute": ("fn pair_absolute(a: vec2<u32>) -> vec2<u32> { return select(a, pair_negate(a), "
                      "pair_is_negative(a)); }", ("pair_negate", "pair_is_negative")),
    "pair_sign": ("""fn pair_sign(a: vec2<u32>) -> vec2<u32> {
    if (pair_is_negative(a)) { return vec2<u32>(0xffffffffu); }
    return vec2<u32>(select(1u, 0u, (a.x | a.y) == 0u), 0u);
}""", ("pair_is_negative",)),
    "pair_max": ("fn pair_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, pair_less(a, b)); }",
                 ("pair_less",)),
    "pair_min": ("fn pair_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, pair_less(b, a)); }",
                 ("pair_less",)),
    "pair_highest": ("fn pair_highest(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {\n"
                     "    return select(a, b, pair_below(a, b));\n}",
                     ("pair_below",)),
    "pair_lowest": ("fn pair_lowest(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {\n"
                     "    return select(a, b, pair_below(b, a));\n}",
                    ("pair_below",)),
    "pair_shift_left": ("""fn pair_shift_left(a: vec2<u32>, n: u32) -> vec2<u32> {
    if (n == 0u) { return a; }
    if (n > 63u) { return vec2<u32>(0u); }
    if (n > 31u) { return vec2<u32>(0u, a.x << (n - 32u)); }
    return vec2<u32>(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}""", ()),
    "pair_shift_right": ("""fn pair_shift_right(a: vec2<u32>, n: u32) -> vec2<u32> {
    if (n == 0u) { return a; }
    if (n > 63u) { return vec2<u32>(0u); }
    if (n > 31u) { return vec2<u32>(a.y >> (n - 32u), 0u); }
    return vec2<u32>((a.x >> n) | (a.y << (32u - n)), a.y >> n);
}""", ()),
    "pair_division": ("""// Quotient (x, y) and remainder (z, w) of unsigned numbers, bit by bit where they are long.
fn pair_division(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
    if (a.y == 0u && b.y == 0u && b.x != 0u) { return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u); }
    var quotient = vec2<u32>(0u);
    var rest = vec2<u32>(0u);
    for (var bit = 0u; bit < 64u; bit++) {
        let carry = rest.y >> 31u;
        let next = pair_shift_right(a, 63u - bit).x & 1u;
        rest = pair_shift_left(rest, 1u) | vec2<u32>(next, 0u);
        quotient = pair_shift_left(quotient, 1u);
        if (carry == 1u || !pair_below(rest, b)) {
            rest = pair_subtract(rest, b);
            quotient.x |= 1u;
        }
    }
    return vec4<u32>(quotient, rest);
}""", ("pair_shift_left", "pair_shift_right", "pair_below", "pair_subtract")),
    "pair_quotient": ("fn pair_quotient(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return pair_division(a, b).xy; }",
                      ("pair_division",)),
    "pair_rest": ("fn pair_rest(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return pair_division(a, b).zw; }",
                  ("pair_division",)),
    "pair_divide": ("""fn pair_divide(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let quotient = pair_division(pair_absolute(a), pair_absolute(b)).xy;
    return select(quotient, pair_negate(quotient), pair_is_negative(a) != pair_is_negative(b));
}""", ("pair_division", "pair_absolute", "pair_negate", "pair_is_negative")),
    "pair_remainder": ("""// The remainder with the sign of the dividend.
fn pair_remainder(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let rest = pair_division(pair_absolute(a), pair_absolute(b)).zw;
    return select(rest, pair_negate(rest), pair_is_negative(a));
}""", ("pair_division", "pair_absolute", "pair_negate", "pair_is_negative")),
    "pair_floor_mod": ("""// The remainder with the sign of the divisor.
fn pair_floor_mod(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let rest = pair_remainder(a, b);
    let shifted = (rest.x | rest.y) != 0u && pair_is_negative(rest) != pair_is_negative(b);
    return select(rest, pair_add(rest, b), shifted);
}""", ("pair_remainder", "pair_is_negative", "pair_add")),
    "pair_power": ("""fn pair_power(x: vec2<u32>, e: vec2<u32>) -> vec2<u32> {
    let one = vec2<u32>(1u, 0u);
    if (pair_is_negative(e)) {
        if (pair_equal(x, one)) { return one; }
        if (!pair_equal(x, vec2<u32>(0xffffffffu))) { return vec2<u32>(0u); }
        return select(one, x, (e.x & 1u) == 1u);
    }
    var n = e;
    var base = x;
    var result = one;
    while ((n.x | n.y) != 0u) {
        if ((n.x & 1u) == 1u) { result = pair_multiply(result, base); }
        base = pair_multiply(base, base);
        n = pair_shift_right(n, 1u);
    }
    return result;
}""", ("pair_is_negative", "pair_equal", "pair_multiply", "pair_shift_right")),
    "float_of_word": ("""// The nearest f32: some devices round large words wrongly, but not numbers with a sign.
fn float_of_word(x: u32) -> f32 {
    if (x < 0x80000000u) { return f32(bitcast<i32>(x)); }
    return 2.0 * f32(bitcast<i32>((x >> 1u) | (x & 1u)));
}""", ()),
    "float_of_unsigned_pair": ("""// The nearest f32: 32 leading bits, the last one stands for all that are cut off.
fn float_of_unsigned_pair(a: vec2<u32>) -> f32 {
    if (a.y == 0u) { return float_of_word(a.x); }
    let zeros = countLeadingZeros(a.y);
    let m = pair_shift_left(a, zeros);
    return float_of_word(m.y | select(0u, 1u, m.x != 0u)) * f32(1u << (31u - zeros)) * 2.0;
}""", ("pair_shift_left", "float_of_word")),
    "float_of_pair": ("""fn float_of_pair(a: vec2<u32>) -> f32 {
    let magnitude = float_of_unsigned_pair(pair_absolute(a));
    return select(magnitude, -magnitude, pair_is_negative(a));
}""", ("float_of_unsigned_pair", "pair_absolute", "pair_is_negative")),
    "pair_of_magnitude": ("""// A whole number that is not negative and below 2 ** 64.
fn pair_of_magnitude(x: f32) -> vec2<u32> {
    let high = floor(x / 4294967296.0);
    return vec2<u32>(u32(x - high * 4294967296.0), u32(high));
}""", ()),
    "pair_of_float": ("""// The integer below in magnitude, the nearest that int64 has; NaN is 0.
fn pair_of_float(x: f32) -> vec2<u32> {
    if (is_nan(x)) { return vec2<u32>(0u); }
    if (x >= 9223372036854775808.0) { return vec2<u32>(0xffffffffu, 0x7fffffffu); }
    if (x <= -9223372036854775808.0) { return vec2<u32>(0u, 0x80000000u); }
    let magnitude = pair_of_magnitude(floor(abs(x)));
    return select(magnitude, pair_negate(magnitude), x < 0.0);
}""", ("is_nan", "pair_of_magnitude", "pair_negate")),
    "unsigned_pair_of_float": ("""fn unsigned_pair_of_float(x: f32) -> vec2<u32> {
    if (x >= 18446744073709551616.0) { return vec2<u32>(0xffffffffu); }
    if (x >= 9223372036854775808.0) { return pair_of_magnitude(x); }
    return pair_of_float(x);
}""", ("pair_of_float", "pair_of_magnitude")),
    "double_of_float": ("""// The bits of a float64 of the same value.
fn double_of_float(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    let sign = bits & 0x80000000u;
    var exponent = (bits >> 23u) & 255u;
    var mantissa = bits & 0x7fffffu;
    if (exponent == 255u) { return vec2<u32>(mantissa << 29u, sign | 0x7ff00000u | (mantissa >> 3u)); }
    if (exponent == 0u) {
        if (mantissa == 0u) { return vec2<u32>(0u, sign); }
        let zeros = countLeadingZeros(mantissa) - 8u;
        mantissa = (mantissa << zeros) & 0x7fffffu;
        return vec2<u32>(mantissa << 29u, sign | ((897u - zeros) << 20u) | (mantissa >> 3u));
    }
    return vec2<u32>(mantissa << 29u, sign | ((exponent + 896u) << 20u) | (mantissa >> 3u));
}""", ()),
    "float_of_double": ("""// The f32 nearest to a float64, ties to even.
fn float_of_double(a: vec2<u32>) -> f32 {
    let sign = a.y & 0x80000000u;
    let exponent = i32((a.y >> 20u) & 0x7ffu);
    let top = a.y & 0xfffffu;
    if (exponent == 0x7ff) {
        let quiet = select(0u, 0x400000u, (top | a.x) != 0u);
        return bitcast<f32>(sign | 0x7f800000u | quiet);
    }
    // 24 bits of the mantissa, two more for rounding, and whether there is anything beyond.
    var m = ((top | 0x100000u) << 5u) | (a.x >> 27u);
    var rest = (a.x & 0x7ffffffu) != 0u;
    var e = exponent - 896;
    if (exponent == 0 || e < -24) { return bitcast<f32>(sign); }
    if (e <= 0) {
        let cut = u32(1 - e);
        rest = rest || (m & ((1u << cut) - 1u)) != 0u;
        m = m >> cut;
        e = 0;
    }
    var kept = m >> 2u;
    let half = (m & 2u) != 0u;
    let more = (m & 1u) != 0u || rest;
    if (e > 0) { kept = (u32(e) << 23u) | (kept & 0x7fffffu); }
    if (half && (more || (kept & 1u) == 1u)) { kept += 1u; }
    if (e >= 255 || kept >= 0x7f800000u) { kept = 0x7f800000u; }
    return bitcast<f32>(sign | kept);
}""", ()),
}  # fmt: skip
"""Helper functions by name: their text and the helpers that it uses."""
