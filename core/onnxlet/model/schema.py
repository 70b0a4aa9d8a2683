"""The messages of onnx.proto as a table: field number, name, kind.

Kinds: ``int`` (signed varint), ``float`` and ``double``, ``string`` (UTF-8), ``bytes``, ``span`` (where the payload
lies, never copied), or the name of a message. ``*`` marks a repeated field. A repeated number in a tensor is ``span*``
too: the pieces of its packed form, however it was written.

Numbers and names are those of the onnx project's onnx.proto, IR version 14.
"""

from __future__ import annotations

from .wire import Schema, compile_schemas

_TABLE = {
    "ModelProto": """
        1 ir_version int, 2 producer_name string, 3 producer_version string, 4 domain string, 5 model_version int,
        6 doc_string string, 7 graph GraphProto, 8 opset_import OperatorSetIdProto*,
        14 metadata_props StringStringEntryProto*, 25 functions FunctionProto*""",
    "OperatorSetIdProto": "1 domain string, 2 version int",
    "StringStringEntryProto": "1 key string, 2 value string",
    "FunctionProto": """
        1 name string, 4 input string*, 5 output string*, 6 attribute string*, 7 node NodeProto*, 8 doc_string string,
        9 opset_import OperatorSetIdProto*, 10 domain string, 11 attribute_proto AttributeProto*,
        12 value_info ValueInfoProto*, 13 overload string, 14 metadata_props StringStringEntryProto*""",
    "GraphProto": """
        1 node NodeProto*, 2 name string, 5 initializer TensorProto*, 10 doc_string string, 11 input ValueInfoProto*,
        12 output ValueInfoProto*, 13 value_info ValueInfoProto*, 15 sparse_initializer SparseTensorProto*,
        16 metadata_props StringStringEntryProto*""",
    "NodeProto": """
        1 input string*, 2 output string*, 3 name string, 4 op_type string, 5 attribute AttributeProto*,
        6 doc_string string, 7 domain string, 8 overload string, 9 metadata_props StringStringEntryProto*""",
    "AttributeProto": """
        1 name string, 2 f float, 3 i int, 4 s bytes, 5 t TensorProto, 6 g GraphProto, 7 floats float*, 8 ints int*,
        9 strings bytes*, 10 tensors TensorProto*, 11 graphs GraphProto*, 13 doc_string string, 14 tp TypeProto,
        15 type_protos TypeProto*, 20 type int, 21 ref_attr_name string, 22 sparse_tensor SparseTensorProto,
        23 sparse_tensors SparseTensorProto*""",
    "TensorProto": """
        1 dims int*, 2 data_type int, 4 float_data span*, 5 int32_data span*, 6 string_data bytes*, 7 int64_data span*,
        8 name string, 9 raw_data span, 10 double_data span*, 11 uint64_data span*, 12 doc_string string,
        13 external_data StringStringEntryProto*, 14 data_location int, 16 metadata_props StringStringEntryProto*""",
    "SparseTensorProto": "1 values TensorProto, 2 indices TensorProto, 3 dims int*",
    "ValueInfoProto": "1 name string, 2 type TypeProto, 3 doc_string string, 4 metadata_props StringStringEntryProto*",
    "TypeProto": """
        1 tensor_type TypeProto.Tensor, 4 sequence_type TypeProto.Sequence, 5 map_type TypeProto.Map,
        6 denotation string, 8 sparse_tensor_type TypeProto.Tensor, 9 optional_type TypeProto.Sequence""",
    "TypeProto.Tensor": "1 elem_type int, 2 shape TensorShapeProto",
    "TypeProto.Sequence": "1 elem_type TypeProto",
    "TypeProto.Map": "1 key_type int, 2 value_type TypeProto",
    "TensorShapeProto": "1 dim TensorShapeProto.Dimension*",
    "TensorShapeProto.Dimension": "1 dim_value int, 2 dim_param string, 3 denotation string",
}

SCHEMAS: dict[str, Schema] = compile_schemas(_TABLE)
MODEL = SCHEMAS["ModelProto"]
