// Values of the template language: what Python values look like to a chat template. Values do not
// change once made, namespaces and iterators excepted, so sharing them is copying them. Knows
// nothing of syntax.
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

/// A name or member that is not there. Prints as nothing; most other uses fail with the message.
struct Undefined {
  std::shared_ptr<const std::string> message;
};
struct None {};

/// A string (valid UTF-8; its length and indices count code points), and which parts of it come
/// from what the template was given: those stay quoted in whatever is made of the string.
struct Text {
  std::shared_ptr<const QuotedText> content;
  /// Made by `safe`. Python's Markup escapes what it is combined with, so combining it is refused.
  bool markup = false;
};

/// What a sequence looks like to Python. A list and a tuple print differently. An iterator can be
/// read once. A view (the keys, values or items of a dict) has a length and no indices.
enum class SequenceKind : std::uint8_t { kList, kTuple, kRange, kIterator, kView };
struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  int depth = 1;         ///< Of nested containers; bounded, so recursion over values is.
  std::size_t next = 0;  ///< Of an iterator: what was not read yet begins here.
};

struct Dict {
  std::vector<std::pair<Value, Value>> members;  ///< In the order of insertion; keys differ.
  int depth = 1;
};

/// namespace(...): the only thing a template can change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
};

/// The `loop` of a for block; the interpreter's.
struct LoopState;

struct Builtin;

/// A global function, a method with its object, or a macro by its node.
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

  /// Text whose size is known to be small (constants, names, single characters): the template's
  /// own, text that it was given, and bytes of another string (`part` is a view of it).
  static Value text(std::string_view bytes);
  static Value quoted(std::string_view bytes);
  static Value part(const Text& whole, std::string_view part);
  static Value undefined(std::string message);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const Undefined* if_undefined() const { return std::get_if<Undefined>(&data_); }
  const bool* if_bool() const { return std::get_if<bool>(&data_); }
  /// Not for bool: see as_int().
  const std::int64_t* if_int() const { return std::get_if<std::int64_t>(&data_); }
  const double* if_double() const { return std::get_if<double>(&data_); }
  const Text* if_text() const { return std::get_if<Text>(&data_); }
  /// The bytes of a string; null for anything else.
  const std::string* if_string() const;
  Sequence* if_sequence() const { return pointed<Sequence>(); }
  const Dict* if_dict() const { return pointed<const Dict>(); }
  Namespace* if_namespace() const { return pointed<Namespace>(); }
  LoopState* if_loop() const { return pointed<LoopState>(); }
  const Function* if_function() const { return pointed<const Function>(); }
  /// Whether it is a list or a tuple: a sequence with indices that can be printed.
  bool is_list() const {
    const Sequence* sequence = if_sequence();
    return sequence != nullptr &&
           (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple);
  }
  /// Whether its items have numbers: a string, a list, a tuple or a range.
  bool has_places() const {
    return if_text() != nullptr || is_list() ||
           (if_sequence() != nullptr && if_sequence()->kind == SequenceKind::kRange);
  }
  bool is_markup() const { return if_text() != nullptr && if_text()->markup; }

  /// Whether it is an integer or, as in Python, a bool; `out` gets it.
  bool as_int(std::int64_t& out) const;
  bool is_number() const;
  /// A number as double; 0 for others.
  double as_double() const;

  /// Python's name of its type, for messages: "str", "dict", ...
  std::string_view type_name() const;
  /// 0 for a leaf.
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

/// Collects text while the budget lasts; finish() fails when it did not.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(&budget) {}
  /// The template's own words, or what is not text by nature (numbers, brackets).
  void add(std::string_view piece) {
    if (budget_->make_bytes(piece.size())) content_.append(piece);
  }
  void add(std::size_t count, std::string_view piece) {
    if (piece.empty() || !budget_->make_many(count, piece.size())) return;
    if (piece.size() == 1) {
      content_.text.append(count, piece.front());
    } else {
      for (std::size_t i = 0; i < count; ++i) content_.append(piece);
    }
  }
  /// A string with its quotations, and bytes of one (`part` is a view of it).
  void add(const Text& text) { add_part(text, text.content->text); }
  void add_part(const Text& whole, std::string_view part);
  /// What was made of a string: quoted when any of the string is. `origin` may be null.
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
  /// Reading what is to be added.
  bool scan(std::size_t bytes) { return budget_->scan(bytes); }
  bool full() const { return budget_->spent(); }
  Result<Value> finish();

 private:
  Budget* budget_;
  QuotedText content_;
};

/// A part of a string, and what was made of a string (see TextBuilder).
Result<Value> make_part(Budget& budget, const Text& whole, std::string_view part);
Result<Value> make_changed(Budget& budget, const Text* origin, std::string_view changed);
/// A list, tuple, ... of values; kInvalidFile when it would nest too deeply or hold what cannot be
/// stored (a namespace, a macro, a loop).
Result<Value> make_sequence(Budget& budget, SequenceKind kind, std::vector<Value> items);
Result<Value> make_dict(Budget& budget, std::vector<std::pair<Value, Value>> members);
/// What dict.items() gives.
Result<Value> dict_items(Budget& budget, const Dict& dict);
/// Whether a container or a namespace can hold it.
Status check_storable(const Value& value);
/// A parsed document as a template sees it, all its text quoted. Documents come with limits of
/// their own.
Result<Value> from_json(const JsonValue& json);

/// Python's bool().
bool truth(const Value& value);
/// Python's ==. Costs steps.
bool equal(Budget& budget, const Value& a, const Value& b);
/// -1, 0 or 1 as a < b, a == b, a > b. kInvalidFile for types that have no order.
Result<int> compare(Budget& budget, const Value& a, const Value& b);
/// Python's `item in container`; an iterator is read up to the item.
Result<bool> contains(Budget& budget, const Value& container, const Value& item);
/// The member of a dict; null when there is none.
const Value* find(Budget& budget, const Dict& dict, const Value& key);

/// Python's str() and repr(). kUnsupported for what prints an address there.
Status print(TextBuilder& out, const Value& value);
Status print_repr(TextBuilder& out, const Value& value);
Result<Value> to_text(Budget& budget, const Value& value);

/// kInvalidFile; with what an undefined value says of itself; and kUnsupported.
std::unexpected<Error> type_error(std::string message);
std::unexpected<Error> undefined_error(const Value& value);
std::unexpected<Error> unsupported(std::string message);
/// kUnsupported: `what` on text that `safe` made.
std::unexpected<Error> markup_error(std::string_view what);

/// Python's json.dumps: with line breaks when `indent` (the spaces of a level) is given.
Result<Value> to_json(Budget& budget, const Value& value, std::optional<std::size_t> indent);

/// What a for loop sees; reads an iterator to its end. kInvalidFile when it cannot be iterated.
Result<std::vector<Value>> iterate(Budget& budget, const Value& value);
/// Python's len().
Result<std::int64_t> length(Budget& budget, const Value& value);

}  // namespace volta::jinja
