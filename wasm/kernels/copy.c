// Copies of N-dimensional blocks: Slice, Split, Concat, Pad (its inside), Expand, Tile, Transpose, and any other move
// of elements from strided to strided places. NumPy twin: y[...] = x on views of these strides.
//
// Unit: one element of the block. `size` is the bytes of an element (1, 2, 4 or 8); `rank`, and the addresses `shape`,
// `x_strides`, `y_strides` of int64 arrays describe the block: strides in elements, those of x may be 0 (repeats) or
// negative. x and y point to the block's first element and must not overlap.
#include "moving.h"
#include "strided.h"

enum { TILE_ROWS = 256, TILE_COLUMNS = 16 };  // what is transposed together: long runs of x, whole cache lines of y

INLINE void transpose_4x4(const float *x, ptrdiff_t sx, float *y, ptrdiff_t sy) {
    v4f a = v4load(x), b = v4load(x + sx), c = v4load(x + 2 * sx), d = v4load(x + 3 * sx);
    v4f ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    v4f cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    v4store(y, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    v4store(y + sy, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    v4store(y + 2 * sy, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    v4store(y + 3 * sy, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

enum { LINE = 16, HALF_PAGE = 512 };  // floats

// A block of LINE x LINE elements by way of a small buffer, so that each line of x and of y is touched once: where rows
// are pages apart, a cache holds few of them.
static void transpose_lines(const float *x, ptrdiff_t sx, float *y, ptrdiff_t sy) {
    float lines[LINE * LINE] __attribute__((aligned(64)));
    for (float *to = lines; to < lines + LINE; to += 4, x += 4 * sx)
        UNROLL for (int r = 0; r < LINE; r += 4) transpose_4x4(x + r, sx, to + r * LINE, LINE);
    for (const float *from = lines; from < lines + LINE * LINE; from += LINE, y += sy)
        UNROLL for (int i = 0; i < LINE; i += LANES) vstore(y + i, vload(from + i));
}

// y[r * sy + c] = x[c * sx + r] for `rows` rows r and `columns` columns c, of float32 or as wide elements.
static void transpose_f32(const float *x, ptrdiff_t sx, float *y, ptrdiff_t sy, ptrdiff_t rows, ptrdiff_t columns) {
    const ptrdiff_t whole = rows & ~3, full = columns & ~3;
    const int pages = sx % HALF_PAGE == 0 || sy % HALF_PAGE == 0;
    for (ptrdiff_t first = 0; first < full; first += LINE) {
        const ptrdiff_t width = full - first < LINE ? full - first : LINE;
        ptrdiff_t r = 0;
        if (width == LINE && pages)
            for (; r + LINE <= rows; r += LINE) transpose_lines(x + first * sx + r, sx, y + r * sy + first, sy);
        for (; r < whole; r += 4) {
            const float *from = x + first * sx + r;
            float *to = y + r * sy + first;
            for (ptrdiff_t c = 0; c < width; c += 4, from += 4 * sx, to += 4) transpose_4x4(from, sx, to, sy);
        }
    }
    for (ptrdiff_t r = whole; r < rows; r++)
        for (ptrdiff_t c = 0; c < full; c++) y[r * sy + c] = x[c * sx + r];
    for (ptrdiff_t c = full; c < columns; c++)
        for (ptrdiff_t r = 0; r < rows; r++) y[r * sy + c] = x[c * sx + r];
}

#define TRANSPOSE(type)                                                                  \
    {                                                                                    \
        const type *from = x;                                                            \
        type *to = y;                                                                    \
        for (word first = 0; first < columns; first += TILE_COLUMNS)                     \
            for (word r = 0, stop = min_word(columns, first + TILE_COLUMNS); r < rows; r++) \
                for (word c = first; c < stop; c++) to[r * sy + c] = from[c * sx + r];   \
        break;                                                                           \
    }

static void transpose_rows(word size, const void *x, word sx, void *y, word sy, word rows, word columns) {
    switch (size) {
    case 1: TRANSPOSE(uint8_t)
    case 2: TRANSPOSE(uint16_t)
    case 4: transpose_f32(x, sx, y, sy, rows, columns); break;
    default: TRANSPOSE(uint64_t)
    }
}

#define STRIDED_ROW(type)                                                  \
    {                                                                      \
        const type *from = x;                                              \
        type *to = y;                                                      \
        if (sx == 0) {                                                     \
            type value = *from;                                            \
            for (word i = 0; i < n; i++) to[i * sy] = value;               \
        } else                                                             \
            for (word i = 0; i < n; i++) to[i * sy] = from[i * sx];        \
        break;                                                             \
    }

static void copy_row(word size, const void *x, word sx, void *y, word sy, word n) {
    if (sx == 1 && sy == 1) {
        copy_bytes(y, x, n * size);
        return;
    }
    switch (size) {
    case 1: STRIDED_ROW(uint8_t)
    case 2: STRIDED_ROW(uint16_t)
    case 4: STRIDED_ROW(uint32_t)
    default: STRIDED_ROW(uint64_t)
    }
}

// Moves dimension `from` to place `to`, later in the order.
static void move_dimension(Walk *w, word from, word to) {
    word size = w->shape[from], sx = w->strides[0][from], sy = w->strides[1][from];
    for (word d = from; d < to; d++) {
        w->shape[d] = w->shape[d + 1];
        for (int k = 0; k < 2; k++) w->strides[k][d] = w->strides[k][d + 1];
    }
    w->shape[to] = size;
    w->strides[0][to] = sx;
    w->strides[1][to] = sy;
}

KERNEL(copy, size, x, y, rank, shape, x_strides, y_strides) {
    word strides[] = {a->x_strides, a->y_strides}, n, size = a->size;
    Walk w;
    walk_shape(&w, a->rank, a->shape, strides, 2);
    word last = w.rank - 1, sx = w.strides[0][last], sy = w.strides[1][last];
    // Where x runs along another dimension than y, that one comes next to last, and rows are transposed together.
    int transposed = 0;
    for (word d = 0; d < last && sx != 1 && sx != 0 && sy == 1 && !transposed; d++)
        if (w.strides[0][d] == 1) {
            move_dimension(&w, d, last - 1);
            transposed = 1;
        }
    walk_to(&w, begin, end, 2);
    while ((n = walk_count(&w)) > 0) {
        const char *x = PTR(const char, a->x) + w.offset[0] * size;
        char *y = PTR(char, a->y) + w.offset[1] * size;
        if (transposed && n == w.inner) {
            word rows = min_word(w.shape[last - 1] - w.index[last - 1], min_word(w.left / w.inner, TILE_ROWS));
            transpose_rows(size, x, sx, y, w.strides[1][last - 1], rows, w.inner);
            walk_down(&w, rows - 1, 2);
            walk_on(&w, w.inner, 2);
        } else {
            copy_row(size, x, sx, y, sy, n);
            walk_on(&w, n, 2);
        }
    }
}

// Unit: one element of y, `size` bytes (1, 2, 4 or 8). `value` holds the element's bits.
KERNEL(fill, size, y, value) {
    switch (a->size) {
    case 1:
        for (word i = begin; i < end; i++) PTR(uint8_t, a->y)[i] = (uint8_t)a->value;
        break;
    case 2:
        for (word i = begin; i < end; i++) PTR(uint16_t, a->y)[i] = (uint16_t)a->value;
        break;
    case 4:
        for (word i = begin; i < end; i++) PTR(uint32_t, a->y)[i] = (uint32_t)a->value;
        break;
    default:
        for (word i = begin; i < end; i++) PTR(uint64_t, a->y)[i] = (uint64_t)a->value;
    }
}

// Trilu. Unit: one row of `columns` elements of `size` bytes; `rows` rows are a matrix. Keeps the elements on and above
// (`upper` 1) or on and below (0) diagonal k; the others become 0.
KERNEL(trilu, size, x, y, rows, columns, k, upper) {
    word size = a->size, columns = a->columns;
    for (word row = begin; row < end; row++) {
        const char *x = PTR(const char, a->x) + row * columns * size;
        char *y = PTR(char, a->y) + row * columns * size;
        word edge = row % a->rows + a->k + (a->upper ? 0 : 1);
        edge = edge < 0 ? 0 : min_word(edge, columns);
        word from = a->upper ? edge : 0, to = a->upper ? columns : edge;
        memset(y, 0, (size_t)(from * size));
        copy_bytes(y + from * size, x + from * size, (to - from) * size);
        memset(y + to * size, 0, (size_t)((columns - to) * size));
    }
}
