// A parsed template: a list of nodes that refer to their children by index. Knows nothing of
// execution.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace volta::jinja {

using NodeId = int;
/// A missing child.
inline constexpr NodeId kNone = -1;

/// The kind of a node. The comments list its children in order, then its other members.
enum class NodeKind : std::uint8_t {
  // Expressions.
  kConstant,   ///< value
  kName,       ///< name
  kList,       ///< items
  kTuple,      ///< items; also a target of assignments
  kDict,       ///< key, value, key, value, ...
  kAttribute,  ///< object; name
  kItem,       ///< object, index
  kSlice,      ///< begin, end, step, each of them or kNone; only as an index
  kCall,       ///< function, arguments; the last names.size() of them have names
  kFilter,     ///< input, arguments as in a call; name
  kTest,       ///< input, arguments; name
  kNot,        ///< operand
  kAnd,        ///< operands
  kOr,         ///< operands
  kCompare,    ///< left, right; op
  kBinary,     ///< left, right; op
  kNegate,     ///< operand
  kConcat,     ///< operands of ~
  kCondition,  ///< test, then, else or kNone
  // Statements.
  kText,      ///< value
  kPrint,     ///< expression
  kBlock,     ///< statements
  kIf,        ///< test, block, test, block, ..., then the block of else if it exists
  kFor,       ///< target, sequence, condition or kNone, block, block of else or kNone
  kSet,       ///< target, expression
  kSetBlock,  ///< target, block
  kMember,    ///< no children; a namespace's member as target; name, names[0]
  kMacro,     ///< block, defaults of the last parameters; name, names: parameters
  kScope,     ///< a block whose names are its own
  kBreak,
  kContinue,
};

enum class Operator : std::uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
  kAdd,
  kSubtract,
  kConcat,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
};

struct Node {
  NodeKind kind = NodeKind::kBlock;
  int line = 1;
  int depth = 1;  ///< Of the tree below the node. The parser bounds it, and thus recursion.
  Operator op{};
  std::string name{};
  Value value{};
  std::vector<NodeId> children{};
  std::vector<std::string> names{};
};

struct Ast {
  std::vector<Node> nodes;
  NodeId root = kNone;

  const Node& operator[](NodeId id) const { return nodes[static_cast<std::size_t>(id)]; }
};

/// kInvalidFile, with the line, for an invalid template; kUnsupported for parts of the language
/// that Volta does not have.
Result<Ast> parse(std::string_view source);

}  // namespace volta::jinja
