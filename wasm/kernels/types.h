// Element types on the tape: the numbers of onnx.TensorProto.DataType.
#pragma once
#include "kernel.h"

enum {
    TYPE_F32 = 1,
    TYPE_U8 = 2,
    TYPE_I8 = 3,
    TYPE_U16 = 4,
    TYPE_I16 = 5,
    TYPE_I32 = 6,
    TYPE_I64 = 7,
    TYPE_BOOL = 9,
    TYPE_F16 = 10,
    TYPE_F64 = 11,
    TYPE_U32 = 12,
    TYPE_U64 = 13,
};

// Bytes of an element.
INLINE word type_size(word type) {
    switch (type) {
    case TYPE_U8:
    case TYPE_I8:
    case TYPE_BOOL: return 1;
    case TYPE_U16:
    case TYPE_I16:
    case TYPE_F16: return 2;
    case TYPE_F32:
    case TYPE_I32:
    case TYPE_U32: return 4;
    default: return 8;
    }
}
