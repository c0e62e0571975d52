/* Packed signs: making them, stepping by them, counting them without unpacking (schemes/packed_signs.py). */

/* The signs of 32 values: bits of those above zero, and of those that are zero or NaN. */
INLINE void signs_of(const float *restrict values, uint32_t *positive, uint32_t *signless)
{
    uint32_t above = 0, below = 0;
#if defined(__x86_64__) && LEVEL > 0
    typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
    for (int lane = 0; lane < 32; lane += 8) {
        eight some = *(const eight *)(values + lane), zero = {0};
        above |= (uint32_t)__builtin_ia32_movmskps256((eight)(some > zero)) << lane;
        below |= (uint32_t)__builtin_ia32_movmskps256((eight)(some < zero)) << lane;
    }
#else
    for (int lane = 0; lane < 32; lane++) {
        above |= (values[lane] > 0.0f ? 1u : 0u) << lane;
        below |= (values[lane] < 0.0f ? 1u : 0u) << lane;
    }
#endif
    *positive = above;
    *signless = ~(above | below);
}

/* Fill both masks; what follows the last value counts as -1. Return whether any value has no sign. */
EXPORT int32_t LEVEL_OF(pack_signs)(const float *restrict values, int64_t count, uint32_t *restrict positive,
                                    uint32_t *restrict signless)
{
    uint32_t found = 0;
    int64_t whole = count / 32;
    for (int64_t word = 0; word < whole; word++) {
        signs_of(values + 32 * word, positive + word, signless + word);
        found |= signless[word];
    }
    if (32 * whole < count) {
        float last[32];
        for (int lane = 0; lane < 32; lane++)
            last[lane] = 32 * whole + lane < count ? values[32 * whole + lane] : -1.0f;
        signs_of(last, positive + whole, signless + whole);
        found |= signless[whole];
    }
    return found != 0;
}

/* A sign bit is set where the step is backwards. */
INLINE float stepped(float from, uint32_t size, uint32_t forward)
{
    uint32_t bits = size ^ (~forward & 1) << 31;
    float by;
    memcpy(&by, &bits, sizeof by);
    return from + by;
}

EXPORT void LEVEL_OF(step)(const float *restrict params, const uint8_t *restrict signs, int64_t count, float size,
                           float *restrict moved)
{
    uint32_t by;
    memcpy(&by, &size, sizeof by);
    for (int64_t byte = 0; byte < count / 8; byte++) {
        uint32_t bits = signs[byte];
        for (int bit = 0; bit < 8; bit++)
            moved[8 * byte + bit] = stepped(params[8 * byte + bit], by, bits >> bit);
    }
    for (int64_t index = count / 8 * 8; index < count; index++)
        moved[index] = stepped(params[index], by, (uint32_t)signs[index / 8] >> (index % 8));
}

#define FULL_ADD(sum, carry, a, b, c)                                                                                  \
    do {                                                                                                               \
        uint64_t a_ = (a), b_ = (b), c_ = (c), half_ = a_ ^ b_;                                                        \
        sum = half_ ^ c_;                                                                                              \
        carry = (a_ & b_) | (half_ & c_);                                                                              \
    } while (0)

/* Add fifteen bits of each coordinate by carry-save adders: eleven of them, four digits out. */
EXPORT void LEVEL_OF(compress)(const uint64_t *restrict pending, int64_t words, uint64_t *restrict digits)
{
    for (int64_t word = 0; word < words; word++) {
        const uint64_t *p = pending + word;
        uint64_t ones[5], twos[8], fours[4], one, two, four, eight;
        for (int group = 0; group < 5; group++)
            FULL_ADD(ones[group], twos[group], p[3 * group * words], p[(3 * group + 1) * words],
                     p[(3 * group + 2) * words]);
        FULL_ADD(one, twos[5], ones[0], ones[1], ones[2]);
        FULL_ADD(one, twos[6], ones[3], ones[4], one);
        FULL_ADD(twos[7], fours[0], twos[0], twos[1], twos[2]);
        FULL_ADD(two, fours[1], twos[3], twos[4], twos[5]);
        FULL_ADD(two, fours[2], twos[6], twos[7], two);
        FULL_ADD(four, eight, fours[0], fours[1], fours[2]);
        digits[word] = one;
        digits[words + word] = two;
        digits[2 * words + word] = four;
        digits[3 * words + word] = eight;
    }
}

/* Add a bit-sliced number to another that has room for the sum; `carry` is zero at first. */
EXPORT void LEVEL_OF(accumulate)(const uint64_t *restrict digits, int64_t count, uint64_t *restrict planes,
                                      int64_t rows, int64_t words, uint64_t *restrict carry)
{
    for (int64_t plane = 0; plane < rows; plane++) {
        uint64_t *kept = planes + plane * words;
        if (plane < count) {
            const uint64_t *added = digits + plane * words;
            for (int64_t word = 0; word < words; word++)
                FULL_ADD(kept[word], carry[word], kept[word], added[word], carry[word]);
        } else {
            for (int64_t word = 0; word < words; word++) {
                uint64_t old = kept[word];
                kept[word] = old ^ carry[word];
                carry[word] &= old;
            }
        }
    }
}

/* Add up to eight planes of bits, `stride` bytes apart, to the total: digit `plane` counts 2^(plane + shift). */
EXPORT void LEVEL_OF(add_digits)(const uint8_t *restrict planes, int64_t rows, int64_t stride,
                                      const uint64_t *restrict spread, int32_t shift, int32_t *restrict total,
                                      int64_t count)
{
    for (int64_t byte = 0; 8 * byte < count; byte++) {
        uint64_t counts = 0;
        for (int64_t plane = 0; plane < rows; plane++)
            counts |= spread[planes[plane * stride + byte]] << plane;
        int32_t *target = total + 8 * byte;
        if (8 * byte + 8 <= count) {
            for (int bit = 0; bit < 8; bit++)
                target[bit] += (int32_t)(counts >> (8 * bit) & 255) << shift;
        } else {
            for (int bit = 0; bit < count - 8 * byte; bit++)
                target[bit] += (int32_t)(counts >> (8 * bit) & 255) << shift;
        }
    }
}
