// Element types on the tape: the numbers of onnx.TensorProto.DataType.
#pragma once

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
