// 3x3 convolution of stride 1 by Winograd's minimal filtering F(4x4, 3x3), float32, channels last. NumPy twin: ops' Conv.
//
// An output tile of 4x4 costs 36 multiplications per channel pair instead of 144. The transforms lose accuracy: on data
// of unit size the error is about four times that of the direct sum, 1e-5 of the result's scale at worst; a plan asks
// for it where it pays. Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, with the points
// 0, 1, -1, 2, -2.
#include "tile.h"
#include "vecmath.h"

#define POINTS 36
#define TILE 4
#define APART 16  // floats between the values of one point and the next: without, they fall into the same cache sets

static const float filter_transform[6][3] = {
    {1.0f / 4, 0.0f, 0.0f},
    {-1.0f / 6, -1.0f / 6, -1.0f / 6},
    {-1.0f / 6, 1.0f / 6, -1.0f / 6},
    {1.0f / 24, 1.0f / 12, 1.0f / 6},
    {1.0f / 24, -1.0f / 12, 1.0f / 6},
    {0.0f, 0.0f, 1.0f},
};

// Packs weights [oc][ic][3][3] for `winograd`: for each of 36 points panels of [ic][8].
// `panels` holds 36 * round_up(oc, 8) * ic floats. Unit: a panel.
KERNEL(pack_winograd, w, panels, oc, ic) {
    const word plane = div_up(a->oc, PANEL) * PANEL * a->ic;
    for (word u = begin; u < end; u++)
        for (word i = 0; i < a->ic; i++)
            for (word lane = 0; lane < PANEL; lane++) {
                const word n = u * PANEL + lane;
                const float *g = F32(a->w) + (n * a->ic + i) * 9;
                float *to = F32(a->panels) + (u * a->ic + i) * PANEL + lane;
                float half[6][3];
                for (int p = 0; p < 6; p++)
                    for (int q = 0; q < 3; q++) {
                        const float *t = filter_transform[p];
                        half[p][q] = n < a->oc ? t[0] * g[q] + t[1] * g[3 + q] + t[2] * g[6 + q] : 0.0f;
                    }
                for (int p = 0; p < 6; p++)
                    for (int q = 0; q < 6; q++, to += plane) {
                        const float *t = filter_transform[q];
                        *to = half[p][0] * t[0] + half[p][1] * t[1] + half[p][2] * t[2];
                    }
            }
}

// Six values of the input to six points.
INLINE void input_transform(const vf d[6], vf out[6]) {
    const vf even = vmadd(vconst(-4.0f), d[2], d[4]), odd = vmadd(vconst(-4.0f), d[1], d[3]);
    const vf difference = d[4] - d[2], twice = (d[3] - d[1]) * vconst(2.0f);
    out[0] = vmadd(vconst(4.0f), d[0], vmadd(vconst(-5.0f), d[2], d[4]));
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = difference + twice;
    out[4] = difference - twice;
    out[5] = vmadd(vconst(4.0f), d[1], vmadd(vconst(-5.0f), d[3], d[5]));
}

// Six points to four values of the output.
INLINE void output_transform(const vf m[6], vf out[4]) {
    const vf sum1 = m[1] + m[2], difference1 = m[1] - m[2], sum2 = m[3] + m[4], difference2 = m[3] - m[4];
    out[0] = m[0] + sum1 + sum2;
    out[1] = vmadd(vconst(2.0f), difference2, difference1);
    out[2] = vmadd(vconst(4.0f), sum2, sum1);
    out[3] = vmadd(vconst(8.0f), difference2, difference1) + m[5];
}

// `zeros` points at c zeros, bias has oc floats or is 0, residual is laid out as y, or 0. Unit: `columns` output channels
// (a multiple of 16) of `block` tiles of 4x4 outputs, of batch * ceil(oh / 4) * ceil(ow / 4); the channels of a block
// follow each other. Scratch: 144 * (block * (round_up(c, 8) + min(columns, round_up(oc, 8))) + 32) bytes.
KERNEL_ARGUMENTS(winograd, x, panels, bias, residual, y, batch, h, w, c, oh, ow, oc, pad_top, pad_left, zeros, block,
                 columns, activation, low, high)

typedef struct {
    word image, top, left;  // of the first output
} Position;

INLINE Position position(const winograd_args *a, word tile) {
    const word across = div_up(a->ow, TILE), per_image = div_up(a->oh, TILE) * across;
    return (Position){tile / per_image, tile % per_image / across * TILE, tile % across * TILE};
}

static NOINLINE void transform_input(const winograd_args *a, Position at, float *to, word plane) {
    const float *x = F32(a->x) + at.image * a->h * a->w * a->c, *zeros = F32(a->zeros), *from[POINTS];
    for (word i = 0; i < 6; i++)
        for (word j = 0; j < 6; j++) {
            const word row = at.top + i - a->pad_top, column = at.left + j - a->pad_left;
            const int inside = row >= 0 && row < a->h && column >= 0 && column < a->w;
            from[i * 6 + j] = inside ? x + (row * a->w + column) * a->c : zeros;
        }
    for (word channel = 0; channel < a->c; channel += LANES) {
        vf columns[6][6];
        UNROLL for (int j = 0; j < 6; j++) {
            vf d[6], out[6];
            UNROLL for (int i = 0; i < 6; i++) d[i] = vload(from[i * 6 + j] + channel);
            input_transform(d, out);
            UNROLL for (int i = 0; i < 6; i++) columns[i][j] = out[i];
        }
        UNROLL for (int i = 0; i < 6; i++) {
            vf out[6];
            input_transform(columns[i], out);
            UNROLL for (int j = 0; j < 6; j++) vstore(to + (i * 6 + j) * plane + channel, out[j]);
        }
    }
}

// The output channels from n0 to n1; `from` holds them alone.
static NOINLINE void transform_output(const winograd_args *a, Position at, const float *from, word plane, word n0,
                                      word n1) {
    const word corner = (at.image * a->oh + at.top) * a->ow + at.left;
    const word rows = min_word(TILE, a->oh - at.top), columns = min_word(TILE, a->ow - at.left);
    const int activation = (int)a->activation;
    const vf low = (vf)as_f32(a->low), high = (vf)as_f32(a->high);
    for (word channel = n0; channel < n1; channel += LANES, from += LANES) {
        const word lanes = min_word(LANES, n1 - channel);
        vf half[4][6];
        UNROLL for (int j = 0; j < 6; j++) {
            vf m[6], out[4];
            UNROLL for (int i = 0; i < 6; i++) m[i] = vload(from + (i * 6 + j) * plane);
            output_transform(m, out);
            UNROLL for (int i = 0; i < 4; i++) half[i][j] = out[i];
        }
        const vf bias = a->bias ? vload(F32(a->bias) + channel) : (vf)0.0f;
        for (word i = 0; i < rows; i++) {
            vf out[4];
            output_transform(half[i], out);
            const word offset = (corner + i * a->ow) * a->oc + channel;
            for (word j = 0; j < columns; j++) {
                const word to = offset + j * a->oc;
                vf value = out[j] + bias;
                if (a->residual) value += vload(F32(a->residual) + to);
                if (activation == 1) value = vclamp(value, low, high);
                if (lanes == LANES)
                    vstore(F32(a->y) + to, value);
                else
                    vstore_part(F32(a->y) + to, value, lanes);
            }
        }
    }
    if (activation > 1)
        for (word i = 0; i < rows; i++)
            activate_block(F32(a->y) + (corner + i * a->ow) * a->oc + n0, a->oc, columns, n1 - n0, activation,
                           as_f32(a->low), as_f32(a->high));
}

KERNEL_BODY(winograd) {
    const word tiles = a->batch * div_up(a->oh, TILE) * div_up(a->ow, TILE);
    const word c = div_up(a->c, PANEL) * PANEL, oc = div_up(a->oc, PANEL) * PANEL, parts = div_up(oc, a->columns);
    float *inputs = (float *)scratch, *outputs = inputs + POINTS * (a->block * c + APART);
    for (word u = begin; u < end; u++) {
        const word first = u / parts * a->block, count = min_word(a->block, tiles - first);
        const word n0 = u % parts * a->columns, width = min_word(a->columns, oc - n0);
        const word in_plane = count * c + APART, out_plane = count * width + APART;
        if (u == begin || n0 == 0)
            for (word t = 0; t < count; t++) transform_input(a, position(a, first + t), inputs + t * c, in_plane);
        for (word p = 0; p < POINTS; p++) {
            Product product = {
                .a = inputs + p * in_plane, .lda = c, .b = F32(a->panels) + (p * oc + n0) * a->c,
                .c = outputs + p * out_plane, .ldc = width, .columns = width, .depth = a->c,
            };
            multiply(&product, 0, count, 0, width);
        }
        for (word t = 0; t < count; t++)
            transform_output(a, position(a, first + t), outputs + t * width, out_plane, n0,
                             min_word(a->oc, n0 + width));
    }
}
