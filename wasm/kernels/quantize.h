// From float32 to bytes. NumPy twins: onnxlet/ops, QuantizeLinear, DynamicQuantizeLinear.
#pragma once
#include "rows.h"

// y = saturate(round(x / scale) + zero), ties to even; NaN gives the zero point. y is int8 if `is_signed`, else uint8.
void quantize_bytes(const float *x, word count, float scale, int zero, int is_signed, uint8_t *y);

// Scale and zero point (uint8) from the extremes of x, 0 included; scale 1 where all is 0.
void quantize_over_range(const float *x, word count, float *scale, uint8_t *zero);
