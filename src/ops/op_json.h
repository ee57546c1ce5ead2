// Ops as JSON, in both directions, from the lists of their fields (ops/op.h). What is read comes
// from strangers: every attribute must be there, with a value that its type can hold. Whether the
// op makes sense is for infer to say.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "ops/op.h"
#include "tensor/encoding.h"
#include "tensor/spec.h"

namespace volta {

/// Two members of an object that is open: "op": "Norm", "fields": {"kind": "rms", "bias": false,
/// "eps": 9.999999974752427e-07}. Floats are written so that the same bits are read; those that are
/// not finite as "nan", "inf" and "-inf".
void write_op(JsonWriter& json, const Op& op);
/// The op whose members these are. kInvalidFile for one that does not exist, and for fields that
/// are missing, unknown, or of another type.
Result<Op> read_op(const JsonRef& json);

/// Members of an object that is open: "dtype": "f32", "shape": [2, 3], and "encoding": {..} unless
/// the tensor is plain.
void write_spec(JsonWriter& json, const TensorSpec& spec);
/// The spec whose members these are; check_spec() holds.
Result<TensorSpec> read_spec(const JsonRef& json);

}  // namespace volta
