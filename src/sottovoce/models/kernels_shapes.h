/* Say what a job is, what follows from the shapes of its layers, and how weights are packed. */
#ifndef SOTTOVOCE_SHAPES_H
#define SOTTOVOCE_SHAPES_H

#include "kernels_vector.h"

enum { MAX_LAYERS = 32, TILE = 6, GROUP = 96, DEPTH = 256, TILES = 48 };
/* Panels that a tile of a product is wide: as many as have room in the registers. */
enum { LINES = LEVEL == 2 ? 2 : 1 };
enum { DIRECT = 0, LOW_RANK = 1, SPARSE = 2, BY_RECORD = 3 };
enum { TRAINING = 1, UNITS = 2 }; /* 0: only scores; UNITS: one step, and no weights of one's own */
enum { SOFTMAX = 0, LOGISTIC, SQUARED, ABSOLUTE, HUBER, ORDINAL, ANSWERS, LOSSES };
enum { INACTIVE = 255 };

typedef struct {
    int32_t conv, in, out, relu;
    int32_t height, width, kernel, pad_before, pad_total, pool;
    int32_t mode, records; /* records: the most of a client, for BY_RECORD */
    int64_t weight, bias; /* places in the flat vector */
    int64_t kept;         /* trainable weights, for SPARSE */
} Layer;

typedef struct {
    int32_t layers, steps, chunk, batch; /* clients a chunk, largest batch */
    int32_t bytes, loss, training, lowest; /* lowest: the first layer with anything trainable */
    float scale, lr;
    Layer layer[MAX_LAYERS];
} Job;

typedef struct {
    int32_t at; /* offset of a patch, or an output channel */
    float value;
} Entry;

/* What follows from a layer's shape, and where its first weights are packed. */
typedef struct {
    Layer is;
    int taps_row, taps, width_padded, row_stride, out_padded, panels;
    int cells_high, cells_wide, cells, window, positions;
    int winograd;
    int block_rows, block_vectors, chunks, blocks, block;
    int64_t in_stride, back_size;
    const float *panel, *back, *bias;
    int32_t *position, *cell; /* offsets in the input, and in the input of the next layer */
    uint32_t *mask, *mask_back, *mask_bias;
    int32_t *kept_in, *kept_out, *by_in, *by_out, *order; /* SPARSE: entries, starts by row and by column */
} Shape;

/* One layer of one client of the chunk. */
typedef struct {
    float *x, *gradient, *panel, *back, *sum, *sum_back, *bias, *bias_sum, *transposed;
    float *first, *products; /* BY_RECORD: z by the first weights, and -lr <x_i, x_j> */
    uint8_t *where;
} Slot;

typedef struct {
    const Job *job;
    const uint8_t *trainable;
    const float *weight; /* of each class in the loss; NULL: 1 */
    const int64_t *index; /* of the records of each batch */
    const int32_t *records; /* of each client */
    int first_dense;
    Shape shape[MAX_LAYERS];
    Slot *slot;
    const float **row;
    float *z, *d, *dots, *gradient, *bias_gradient, *sums, *dx[2], *packed;
    float *spread, *close, *tiles, *products; /* of winograd_forward */
    const float *spread_of;                   /* the panel that `spread` was made from */
    int32_t *again, *again_count;             /* by panel: cells to convolve the plain way */
    Entry *by_channel, *by_position;
    int32_t *channel_count, *position_count;
} Plan;

typedef struct {
    char *base;
    int64_t used;
} Arena;

static void *take(Arena *arena, int64_t bytes) {
    void *place = arena->base ? arena->base + arena->used : NULL;
    arena->used += (bytes + 63) / 64 * 64;
    return place;
}

static float *floats(Arena *arena, int64_t count) { return take(arena, count * (int64_t)sizeof(float)); }

static int up(int value, int unit) { return (value + unit - 1) / unit * unit; }

static int smaller(int a, int b) { return a < b ? a : b; }

static Shape shape_of(const Layer *layer) {
    Shape s;
    memset(&s, 0, sizeof s);
    s.is = *layer;
    s.out_padded = up(layer->out, 16);
    s.panels = s.out_padded / 16;
    if (!layer->conv) {
        s.in_stride = up(layer->in, 16);
        s.taps = layer->in;
        s.back_size = s.in_stride * layer->out;
        return s;
    }
    const int kernel = layer->kernel;
    s.taps_row = kernel * layer->in;
    s.taps = kernel * s.taps_row;
    s.width_padded = layer->width + layer->pad_total;
    s.row_stride = s.width_padded * layer->in;
    s.cells_high = (layer->height + layer->pad_total - kernel + 1) / layer->pool;
    s.cells_wide = (layer->width + layer->pad_total - kernel + 1) / layer->pool;
    s.cells = s.cells_high * s.cells_wide;
    s.window = layer->pool * layer->pool;
    s.positions = s.cells * s.window;
    s.winograd = kernel == 5 && layer->pool == 2 && layer->in % 16 == 0;
    const int vectors = up(s.taps_row, 8) / 8;
    const int whole = vectors <= 2 && (kernel == 3 || kernel == 5 || (kernel == 7 && vectors == 1));
    s.block_rows = whole ? kernel : 1;
    s.chunks = up(vectors, 10) / 10;
    s.block_vectors = up(vectors, s.chunks) / s.chunks;
    if (LEVEL == 2 && s.chunks % 2 == 0) { /* registers hold two chunks at a time */
        s.chunks /= 2;
        s.block_vectors *= 2;
    }
    s.blocks = kernel / s.block_rows * s.chunks;
    s.block = s.block_rows * s.block_vectors * 8;
    s.back_size = (int64_t)s.blocks * layer->out * s.block;
    /* Vectors may read past the last patch, never past the room of its image. */
    s.in_stride = up((layer->height + layer->pad_total) * s.row_stride + s.chunks * s.block_vectors * 8, 16);
    return s;
}

/* Place of tap (row, column) of channel 0 in the back layout; channel c is c * block further. */
static int64_t back_place(const Shape *s, int row, int column) {
    const int vector = column / 8, chunk = vector / s->block_vectors;
    const int64_t block = row / s->block_rows * s->chunks + chunk;
    return block * s->is.out * s->block +
           (row % s->block_rows * s->block_vectors + vector % s->block_vectors) * 8 + column % 8;
}

static void pack_panels(float *to, const float *weights, int rows, int columns) {
    for (int first = 0; first < columns; first += 16) {
        const int width = smaller(16, columns - first);
        for (int row = 0; row < rows; row++, to += 16) {
            for (int j = 0; j < 16; j++) to[j] = j < width ? weights[(int64_t)row * columns + first + j] : 0;
        }
    }
}

static void pack_transposed(float *to, const float *weights, int rows, int columns) {
    for (int first = 0; first < rows; first += 16) {
        const int width = smaller(16, rows - first);
        for (int column = 0; column < columns; column++, to += 16) {
            for (int j = 0; j < 16; j++) to[j] = j < width ? weights[(int64_t)(first + j) * columns + column] : 0;
        }
    }
}

static void pack_back(float *to, const float *weights, const Shape *s) {
    memset(to, 0, (size_t)s->back_size * sizeof(float));
    for (int tap = 0; tap < s->taps; tap++) {
        float *place = to + back_place(s, tap / s->taps_row, tap % s->taps_row);
        for (int c = 0; c < s->is.out; c++) place[c * s->block] = weights[(int64_t)tap * s->is.out + c];
    }
}

static void panels_from_back(float *to, const float *back, const Shape *s) {
    for (int tap = 0; tap < s->taps; tap++) {
        const float *place = back + back_place(s, tap / s->taps_row, tap % s->taps_row);
        for (int c = 0; c < s->is.out; c++) {
            to[((int64_t)(c / 16) * s->taps + tap) * 16 + c % 16] = place[(int64_t)c * s->block];
        }
    }
}

static void packed_places(Shape *s, Arena *arena) {
    s->panel = floats(arena, (int64_t)s->panels * s->taps * 16);
    s->back = floats(arena, s->back_size);
    s->bias = floats(arena, s->out_padded);
}

#endif
