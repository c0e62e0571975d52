/* The wire format's words: checksum, packing, and adding words that are packed (core/wire.py, secagg/masks.py). */

enum { MIX_LANES = 64 };

/* h = h * odd + word in 64 lanes. */
EXPORT void LEVEL_OF(mix)(const loose32 *restrict words, int64_t blocks, uint32_t *restrict lanes)
{
    uint32_t h[MIX_LANES];
    memcpy(h, lanes, sizeof h);
    for (int64_t block = 0; block < blocks; block++, words += MIX_LANES)
        for (int lane = 0; lane < MIX_LANES; lane++)
            h[lane] = h[lane] * 0x9E3779B1u + words[lane];
    memcpy(lanes, h, sizeof h);
}

/* Put `joined` words at a time behind the others; a store of eight bytes takes with it what is not known yet, and the
 * next one mends it. So there is no branch that depends on the width. */
INLINE void pack_joined(const uint32_t *restrict values, int64_t count, int32_t bits, uint8_t *restrict packed,
                        int32_t joined)
{
    uint64_t buffer = 0;
    int32_t filled = 0; /* at most 7, and at most 56 more */
    int64_t index = 0;
    for (; index + joined <= count; index += joined) {
        uint64_t word = 0;
        for (int32_t next = 0; next < joined; next++)
            word |= (uint64_t)values[index + next] << (next * bits);
        buffer |= word << filled;
        *(loose64 *)packed = buffer;
        filled += joined * bits;
        packed += filled >> 3;
        buffer >>= filled & 56;
        filled &= 7;
    }
    for (; index < count; index++) {
        buffer |= (uint64_t)values[index] << filled;
        *(loose64 *)packed = buffer;
        filled += bits;
        packed += filled >> 3;
        buffer >>= filled & 56;
        filled &= 7;
    }
}

/* Up to eight bytes after the last word may be written. */
EXPORT void LEVEL_OF(pack_bits)(const uint32_t *restrict values, int64_t count, int32_t bits, uint8_t *restrict packed)
{
    if (bits <= 7)
        pack_joined(values, count, bits, packed, 8);
    else if (bits <= 14)
        pack_joined(values, count, bits, packed, 4);
    else if (bits <= 28)
        pack_joined(values, count, bits, packed, 2);
    else
        pack_joined(values, count, bits, packed, 1);
}

/* Eight bytes may be read from the place of the last value on. */
EXPORT void LEVEL_OF(unpack_bits)(const uint8_t *restrict packed, int64_t count, int32_t bits,
                                       uint32_t *restrict words)
{
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int64_t index = 0; index < count; index++) {
        uint64_t place = (uint64_t)index * (uint64_t)bits;
        uint64_t near = *(const loose64 *)(packed + (place >> 3)); /* 7 + 32 bits at most are wanted of 64 */
        words[index] = (uint32_t)((near >> (place & 7)) & mask);
    }
}

#define ADD_PACKED(width)                                                                                              \
    EXPORT void LEVEL_OF(add_packed_##width)(uint##width##_t *restrict total, int64_t count,                           \
                                             const uint8_t *restrict packed, int64_t size, int32_t bits)               \
    {                                                                                                                  \
        uint64_t mask = ((uint64_t)1 << bits) - 1;                                                                     \
        int64_t easy = size < 8 ? 0 : (size - 7) * 8 / bits; /* words before it lie within eight bytes */              \
        easy = easy < count ? easy : count;                                                                            \
        for (int64_t index = 0; index < easy; index++) {                                                               \
            uint64_t place = (uint64_t)index * (uint64_t)bits;                                                         \
            uint64_t near = *(const loose64 *)(packed + (place >> 3));                                                 \
            total[index] = (uint##width##_t)(total[index] + (near >> (place & 7) & mask));                             \
        }                                                                                                              \
        for (int64_t index = easy; index < count; index++) {                                                           \
            int64_t place = index * bits, from = place >> 3;                                                           \
            uint64_t near = 0;                                                                                         \
            memcpy(&near, packed + from, (size_t)(size - from < 8 ? size - from : 8));                                 \
            total[index] = (uint##width##_t)(total[index] + (near >> (place & 7) & mask));                             \
        }                                                                                                              \
    }

ADD_PACKED(8)
ADD_PACKED(16)
ADD_PACKED(32)

INLINE uint32_t crc32_of(const uint32_t *restrict table, uint32_t check, const uint8_t *restrict bytes, int64_t count)
{
    check = ~check;
    for (int64_t at = 0; at < count; at++)
        check = table[(check ^ bytes[at]) & 255] ^ (check >> 8);
    return ~check;
}

/* The checksum of a frame whose header begins with `fields`, 16 bytes (`_check` in core/wire.py). */
INLINE uint32_t frame_check(const uint32_t *restrict table, const uint8_t *restrict fields,
                            const uint8_t *restrict body, int64_t size)
{
    uint32_t lanes[MIX_LANES] = {0};
    int64_t blocks = size / (4 * MIX_LANES);
    LEVEL_OF(mix)((const loose32 *)body, blocks, lanes);
    uint32_t check = crc32_of(table, 0, fields, 16);
    check = crc32_of(table, check, (const uint8_t *)lanes, sizeof lanes);
    return crc32_of(table, check, body + blocks * 4 * MIX_LANES, size - blocks * 4 * MIX_LANES);
}

/* Write rows of words as frames, `size` bytes of packed words and 24 before them; eight bytes after the last are used. */
EXPORT void LEVEL_OF(frame_rows)(const uint32_t *restrict words, int64_t rows, int64_t count, int32_t bits,
                                      const uint8_t *restrict fields, const uint32_t *restrict table, int64_t size,
                                      uint8_t *restrict frames)
{
    for (int64_t row = 0; row < rows; row++, words += count, frames += 24 + size) {
        LEVEL_OF(pack_bits)(words, count, bits, frames + 24);
        memcpy(frames, fields, 16);
        *(loose32 *)(frames + 16) = frame_check(table, fields, frames + 24, size);
        *(loose32 *)(frames + 20) = 0;
    }
}

/* Add the words of a frame, if it is exactly what is expected; else return 0 and change nothing. */
EXPORT int32_t LEVEL_OF(add_frame)(uint32_t *restrict total, int64_t count, const uint8_t *restrict frame, int64_t size,
                                   int32_t bits, const uint8_t *restrict fields, const uint32_t *restrict table)
{
    int64_t body = (count * bits + 7) / 8, spare = 8 * body - count * bits;
    if (size != 24 + body || memcmp(frame, fields, 16) != 0 || *(const loose32 *)(frame + 20) != 0)
        return 0;
    if (*(const loose32 *)(frame + 16) != frame_check(table, fields, frame + 24, body))
        return 0;
    if (spare && frame[size - 1] >> (8 - spare))
        return 0;
    LEVEL_OF(add_packed_32)(total, count, frame + 24, body, bits);
    return 1;
}
