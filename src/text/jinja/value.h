// Values of the template language: Python values as a chat template sees them. Values are
// immutable, except namespaces and iterators, so a shared value is as good as a copy. Knows nothing
// of syntax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja/budget.h"
#include "text/quoted_text.h"

namespace volta::jinja {

class Value;

/// A missing name or member. It prints as nothing; most other uses fail with the message.
struct Undefined {
  std::shared_ptr<const std::string> message;
};
struct None {};

/// A string (valid UTF-8; its length and indices count code points), and its parts that come from
/// the template's inputs. Those parts stay quoted in all strings that are made from it.
struct Text {
  std::shared_ptr<const QuotedText> content;
  /// Made by `safe`. Python's Markup escapes other text when they are combined, so combining is
  /// unsupported.
  bool markup = false;
};

/// The kind of a sequence in Python. A list and a tuple print differently. An iterator can be read
/// once. A view (the keys, values or items of a dict) has a length but no indices.
enum class SequenceKind : std::uint8_t { kList, kTuple, kRange, kIterator, kView };
struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  int depth = 1;         ///< Of nested containers. It is bounded, and thus recursion is.
  std::size_t next = 0;  ///< For an iterator: the first item that was not read yet.
};

struct Dict {
  std::vector<std::pair<Value, Value>> members;  ///< In the order of insertion; keys are unique.
  int depth = 1;
};

/// namespace(...), the only value that a template can change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
};

/// The `loop` of a for block; defined by the interpreter.
struct LoopState;

struct Builtin;

/// A global function, a method with its object, or a macro with its node.
struct Function {
  const Builtin* builtin = nullptr;  ///< Null for a macro.
  std::shared_ptr<const Value> self{};
  int node = -1;
};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  explicit Value(None none) : data_(none) {}
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}
  explicit Value(bool flag) : data_(flag) {}
  explicit Value(std::int64_t number) : data_(number) {}
  explicit Value(double number) : data_(number) {}
  explicit Value(Text text) : data_(std::move(text)) {}
  explicit Value(std::shared_ptr<Sequence> sequence) : data_(std::move(sequence)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(std::shared_ptr<Namespace> names) : data_(std::move(names)) {}
  explicit Value(std::shared_ptr<LoopState> loop) : data_(std::move(loop)) {}
  explicit Value(std::shared_ptr<const Function> function) : data_(std::move(function)) {}

  /// Text whose size is known to be small (constants, names, single characters): text of the
  /// template, text from its inputs, and a part of another string (`part` is a view of it).
  static Value text(std::string_view bytes);
  static Value quoted(std::string_view bytes);
  static Value part(const Text& whole, std::string_view part);
  static Value undefined(std::string message);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const Undefined* if_undefined() const { return std::get_if<Undefined>(&data_); }
  const bool* if_bool() const { return std::get_if<bool>(&data_); }
  /// Not for bool; see as_int().
  const std::int64_t* if_int() const { return std::get_if<std::int64_t>(&data_); }
  const double* if_double() const { return std::get_if<double>(&data_); }
  const Text* if_text() const { return std::get_if<Text>(&data_); }
  /// The bytes of a string; null for other types.
  const std::string* if_string() const;
  Sequence* if_sequence() const { return pointed<Sequence>(); }
  const Dict* if_dict() const { return pointed<const Dict>(); }
  Namespace* if_namespace() const { return pointed<Namespace>(); }
  LoopState* if_loop() const { return pointed<LoopState>(); }
  const Function* if_function() const { return pointed<const Function>(); }
  /// Whether it is a list or a tuple, which are the sequences that have indices and can be printed.
  bool is_list() const {
    const Sequence* sequence = if_sequence();
    return sequence != nullptr &&
           (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple);
  }
  /// Whether its items have indices: a string, a list, a tuple or a range.
  bool has_places() const {
    return if_text() != nullptr || is_list() ||
           (if_sequence() != nullptr && if_sequence()->kind == SequenceKind::kRange);
  }
  bool is_markup() const { return if_text() != nullptr && if_text()->markup; }

  /// Whether it is an integer or, as in Python, a bool; stores it in `out`.
  bool as_int(std::int64_t& out) const;
  bool is_number() const;

  /// The name of its type in Python, for messages: "str", "dict", ...
  std::string_view type_name() const;
  /// 0 for a value that is not a container.
  int depth() const;

 private:
  template <typename T>
  T* pointed() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<Sequence>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<LoopState>,
               std::shared_ptr<const Function>>
      data_;
};

/// Collects text until the budget is spent; then finish() fails.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(&budget) {}
  /// Adds text of the template, or text that comes from no string (numbers, brackets).
  void add(std::string_view piece) {
    if (budget_->make_bytes(piece.size())) content_.append(piece);
  }
  void add(std::size_t count, std::string_view piece) {
    if (piece.empty() || !budget_->make_many(count, piece.size())) return;
    for (std::size_t i = 0; i < count; ++i) content_.append(piece);
  }
  /// Adds a string with its quoted ranges, or a part of one (`part` is a view of it).
  void add(const Text& text) { add_part(text, text.content->text); }
  void add_part(const Text& whole, std::string_view part);
  /// Adds text that was made from a string. It is quoted if any part of the string is. `origin` may
  /// be null.
  void add_changed(const Text* origin, std::string_view changed) {
    if (!budget_->make_bytes(changed.size())) return;
    if (is_quoting(origin)) {
      content_.append_quoted(changed);
    } else {
      content_.append(changed);
    }
  }
  static bool is_quoting(const Text* text) {
    return text != nullptr && !text->content->quoted.empty();
  }
  /// Charges for reading text that is to be added.
  bool scan(std::size_t bytes) { return budget_->scan(bytes); }
  bool full() const { return budget_->spent(); }
  Result<Value> finish();

 private:
  Budget* budget_;
  QuotedText content_;
};

/// A part of a string, and text that was made from a string (see TextBuilder).
Result<Value> make_part(Budget& budget, const Text& whole, std::string_view part);
Result<Value> make_changed(Budget& budget, const Text* origin, std::string_view changed);
/// Charges for making `count` values; the error of a spent budget.
Status charge_values(Budget& budget, std::size_t count);
/// A list, tuple, ... of values; kInvalidFile when it would be nested too deeply or contain a value
/// that cannot be stored (a namespace, a macro, a loop).
Result<Value> make_sequence(Budget& budget, SequenceKind kind, std::vector<Value> items);
Result<Value> make_dict(Budget& budget, std::vector<std::pair<Value, Value>> members);
/// The result of dict.items().
Result<Value> dict_items(Budget& budget, const Dict& dict);
/// Whether a container or a namespace can contain the value.
Status check_storable(const Value& value);
/// A parsed document as a value; all its text is quoted. The parser has limited its size.
Result<Value> from_json(const JsonValue& json);

/// Python's bool().
bool truth(const Value& value);
/// Python's ==. Charged to the budget.
bool equal(Budget& budget, const Value& a, const Value& b);
/// -1, 0 or 1 for a < b, a == b, a > b. kInvalidFile for types without an order.
Result<int> compare(Budget& budget, const Value& a, const Value& b);
/// Python's `item in container`. An iterator is read up to and including the item.
Result<bool> contains(Budget& budget, const Value& container, const Value& item);
/// The value for a key of a dict; null when there is none or the budget is spent.
const Value* find(Budget& budget, const Dict& dict, const Value& key);

/// Python's str(). kUnsupported for values whose Python text contains an address.
Status print(TextBuilder& out, const Value& value);
Result<Value> to_text(Budget& budget, const Value& value);

/// kInvalidFile; kInvalidFile with an undefined value's own message; and kUnsupported.
std::unexpected<Error> type_error(std::string message);
std::unexpected<Error> undefined_error(const Value& value);
std::unexpected<Error> unsupported(std::string message);
/// kUnsupported for the operation `what` on text that `safe` made.
std::unexpected<Error> markup_error(std::string_view what);

/// Python's json.dumps. With `indent`, the number of spaces per level, it has line breaks.
Result<Value> to_json(Budget& budget, const Value& value, std::optional<std::size_t> indent);

/// The items of a for loop; reads an iterator to its end. kInvalidFile for a value that is not
/// iterable.
Result<std::vector<Value>> iterate(Budget& budget, const Value& value);
/// Python's len().
Result<std::int64_t> length(Budget& budget, const Value& value);

}  // namespace volta::jinja
