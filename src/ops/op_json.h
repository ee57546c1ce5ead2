// Writes and reads ops as JSON, by the lists of their fields (ops/op.h). The JSON that is read is
// untrusted: every attribute must be present, with a value that its type can hold. infer checks
// whether the op is valid.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "ops/op.h"
#include "tensor/encoding.h"
#include "tensor/spec.h"

namespace volta {

/// Writes two members into the open object: "op": "Norm", "fields": {"kind": "rms", "bias": false,
/// "eps": 9.999999974752427e-07}. Finite floats are written so that reading gives the same bits.
/// The others are written as "nan", "inf" and "-inf".
void write_op(JsonWriter& json, const Op& op);
/// Reads the op that write_op() wrote into this object. kInvalidFile for an unknown op, and for
/// fields that are missing, unknown or of the wrong type.
Result<Op> read_op(const JsonRef& json);

/// Writes members into the open object: "dtype": "f32", "shape": [2, 3], and "encoding": {..}
/// unless the tensor is plain.
void write_spec(JsonWriter& json, const TensorSpec& spec);
/// Reads the spec that write_spec() wrote into this object. kInvalidFile also if check_spec()
/// rejects it.
Result<TensorSpec> read_spec(const JsonRef& json);

}  // namespace volta
