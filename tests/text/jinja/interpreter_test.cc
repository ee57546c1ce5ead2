// The template language: errors with their line, what is refused, and that everything ends. What
// templates print is compared with transformers in chat_template_test.cc.
#include "text/jinja/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <string>
#include <vector>

#include "text/jinja/ast.h"

namespace volta::jinja {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

Result<std::string> run(std::string_view source, const Limits& limits = {}) {
  VOLTA_TRY(const Ast ast, parse(source));
  Environment environment{.limits = limits};
  const auto json =
      parse_json(R"({"l": [1, 2, 3], "s": "text", "d": {"a": 1}, "f": 1.5})", "variables");
  for (const auto& [name, value] : *json->if_object()) {
    VOLTA_TRY(Value made, from_json(value));
    environment.variables.emplace_back(name, std::move(made));
  }
  VOLTA_TRY(QuotedText made, render(ast, environment));
  return std::move(made.text);
}
std::string text(std::string_view source) {
  const auto result = run(source);
  return result ? *result : "error: " + result.error().message();
}

struct Bad {
  std::string source, message;
  ErrorCode code = ErrorCode::kInvalidFile;
};

void expect_bad(const std::vector<Bad>& cases) {
  for (const Bad& bad : cases) {
    const auto result = run(bad.source);
    ASSERT_FALSE(result) << bad.source << " gave " << *result;
    EXPECT_THAT(result.error().message(), HasSubstr(bad.message)) << bad.source;
    EXPECT_EQ(result.error().code(), bad.code) << bad.source << ": " << result.error().message();
  }
}

TEST(JinjaSyntax, MistakesHaveTheirLine) {
  expect_bad({
      {"a\n{{ 'x }}", "line 2: a string has no end"},
      {"{{ 'a\\'", "line 1: a string has no end"},
      {"\n{{ x", "line 2: '{{' has no '}}'"},
      {"{% if x", "line 1: '{%' has no '%}'"},
      {"{# x", "line 1: a comment has no end"},
      {"{{ x ! y }}", "unexpected character '!'"},
      {"{{ é }}", "unexpected character 'é'"},
      {"{{ (x] }}", "unexpected ']'"},
      {"{{ x) }}", "unexpected ')'"},
      {"{{ '\\xg0' }}", "no character after '\\'"},
      {"{{ '\\u12' }}", "no character after '\\'"},
      {"{{ '\\ud800' }}", "no character after '\\'"},
      {"{{ }}", "expected an expression, found '}}'"},
      {"{{ x y }}", "expected '}}', found 'y'"},
      {"{{ x. }}", "expected a name after '.'"},
      {"{{ x[] }}", "expected an index"},
      {"{{ [1 2] }}", "expected ','"},
      {"{{ {1} }}", "expected ':'"},
      {"{{ f(a=1, 2) }}", "an argument without a name follows one with it"},
      {"{{ x is a is b }}", "tests with 'is' cannot be chained"},
      {"{% if x %}\n", "line 1: the block has no {% endif %}"},
      {"{% for x in l %}{% endif %}", "{% endif %} has nothing to belong to"},
      {"{% for x l %}", "expected 'in'"},
      {"{% for true in l %}{% endfor %}", "'true' cannot be assigned to"},
      {"{% else %}", "{% else %} has nothing to belong to"},
      {"{% %}", "expected a name"},
      {"{% set x %}", "the block has no {% endset %}"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "without a default value follows"},
      {"{% break %}", "'break' outside of a loop"},
      {"{% for x in l %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}",
       "'continue' outside of a loop"},
      {"a\xff", "byte 1 is not UTF-8"},
      {std::string(1 << 21, 'x'), "more than a template may have"},
  });
}

TEST(JinjaSyntax, WhatIsNotSupportedIsNamed) {
  expect_bad({
      {"\n{% include 'x' %}", "line 2: the tag {% include %} is not supported",
       ErrorCode::kUnsupported},
      {"{% call m() %}{% endcall %}", "{% call %} is not supported", ErrorCode::kUnsupported},
      {"{% for x in l recursive %}{% endfor %}", "a recursive loop", ErrorCode::kUnsupported},
      {"{{ f(*l) }}", "'*' before an argument", ErrorCode::kUnsupported},
      {"{{ l[1, 2] }}", "an index with several parts", ErrorCode::kUnsupported},
      {"{{ 0x10 }}", "a number that is no decimal integer", ErrorCode::kUnsupported},
      {"{{ 99999999999999999999 }}", "is too large", ErrorCode::kUnsupported},
      {"{{ '\\N{DASH}' }}", "'\\N' in a string", ErrorCode::kUnsupported},
      {"{% macro m() %}{{ varargs }}{% endmacro %}{{ m() }}", "'varargs' is not supported",
       ErrorCode::kUnsupported},
      {"{% set loop = 1 %}", "assigning to 'loop'", ErrorCode::kUnsupported},
      {"{{ s|urlize }}", "line 1: the filter 'urlize' is not supported", ErrorCode::kUnsupported},
      {"{{ s is nothing }}", "the test 'nothing' is not supported", ErrorCode::kUnsupported},
      {"{{ s.swapcase() }}", "the method 'swapcase' is not supported: a value of type str has no",
       ErrorCode::kUnsupported},
      {"{{ d.fromkeys() }}", "the method 'fromkeys' is not supported", ErrorCode::kUnsupported},
      {"{{ l.append(1) }}", "the method 'append' is not supported", ErrorCode::kUnsupported},
      {"{{ cycler('a') }}", "'cycler' is not supported", ErrorCode::kUnsupported},
      {"{{ '%s' % 1 }}", "formatting a string with '%'", ErrorCode::kUnsupported},
      {"{{ 'ß'|upper }}", "the letter case of U+00DF", ErrorCode::kUnsupported},
      {"{{ range(3) }}", "printing an iterator, a range", ErrorCode::kUnsupported},
      {"{{ namespace() }}", "printing a namespace", ErrorCode::kUnsupported},
      {"{{ [namespace()] }}", "storing a namespace", ErrorCode::kUnsupported},
      {"{% set n = namespace() %}{% set n.n = n %}", "storing a namespace",
       ErrorCode::kUnsupported},
      {"{{ strftime_now('%Z') }}", "strftime_now with '%Z'", ErrorCode::kUnsupported},
      {"{{ 9223372036854775807 + 1 }}", "beyond 64 bits", ErrorCode::kUnsupported},
      {"{{ ('a'|safe) + '<b>' }}", "'+' is not supported for 'safe' text", ErrorCode::kUnsupported},
      {"{{ \"'\" + ('a'|safe) }}", "'+' is not supported for 'safe' text", ErrorCode::kUnsupported},
      {"{{ (('a'|safe) + 'b') + '&' }}", "'+' is not supported for 'safe'",
       ErrorCode::kUnsupported},
      {"{{ ('a'|safe) * 2 }}", "'*' is not supported for 'safe' text", ErrorCode::kUnsupported},
      {"{{ ('a'|safe).strip() }}", "str.strip is not supported for 'safe'",
       ErrorCode::kUnsupported},
      {"{{ ('a'|safe)|trim }}", "the filter 'trim' is not supported for 'safe'",
       ErrorCode::kUnsupported},
      {"{{ ('a'|safe)[0] }}", "an index is not supported for 'safe'", ErrorCode::kUnsupported},
      {"{{ ('a'|safe)[1:] }}", "a slice is not supported for 'safe'", ErrorCode::kUnsupported},
      {"{{ ['a'|safe] }}", "printing inside a list is not supported for 'safe'",
       ErrorCode::kUnsupported},
      {"{{ {(1,): 2} }}", "a tuple as key of a dict", ErrorCode::kUnsupported},
      {"{{ strftime_now('%Q') }}", "strftime_now with '%Q'", ErrorCode::kUnsupported},
      {"{% for x in l %}{{ loop.recurse }}{% endfor %}", "'loop.recurse'", ErrorCode::kUnsupported},
      {"{% for x in l %}{% macro m() %}{% endmacro %}{% endfor %}", "the macro 'm' inside a loop",
       ErrorCode::kUnsupported},
  });
}

// Parts of Jinja that no chat template of the families in docs/cli.md uses. Each must be an error
// that names it: what is left out silently would be another prompt.
TEST(JinjaSyntax, WhatNoTemplateUsesIsRefusedByName) {
  const auto refused = [](const std::string& source, const std::string& what) {
    expect_bad({{source, what + " is not supported", ErrorCode::kUnsupported}});
  };
  for (const std::string name : {"abs", "attr", "batch", "e", "escape", "float", "groupby", "max",
                                 "min", "round", "sum", "truncate", "unique", "wordcount"}) {
    refused("{{ l|" + name + "(2) }}", "the filter '" + name + "'");
    refused("{{ l|map('" + name + "')|list }}", "the filter '" + name + "'");
  }
  for (const std::string name : {"callable", "divisibleby", "escaped", "even", "filter", "ge", "gt",
                                 "lower", "lt", "odd", "test", "upper"}) {
    refused("{{ s is " + name + "(2) }}", "the test '" + name + "'");
    refused("{{ l|select('" + name + "')|list }}", "the test '" + name + "'");
  }
  for (const std::string name :
       {"casefold", "center", "count", "encode", "format", "index", "isalnum", "isdigit", "isspace",
        "isupper", "ljust", "partition", "removeprefix", "removesuffix", "rfind", "rpartition",
        "rsplit", "splitlines", "zfill"}) {
    refused("{{ s." + name + "(1) }}", "the method '" + name + "'");
  }
  const auto code = ErrorCode::kUnsupported;
  expect_bad({
      {"{% raw %}{{ '{% endraw %}", "the tag {% raw %}", code},
      {"{% with a = 1 %}{% endwith %}", "the tag {% with %}", code},
      {"{% filter upper %}{% endfilter %}", "the tag {% filter %}", code},
      {"{% set x | upper %}{% endset %}", "a filter of a set block", code},
      {"{% for a, (b, c) in l %}{% endfor %}", "a target in brackets", code},
      {"{{ 2 ** 3 }}", "'**' is not supported", code},
      {"{{ +1 }}", "'+' before a value", code},
      {"{{ 1 < 2 < 3 }}", "a < b < c", code},
      {"{{ 'a' 'b' }}", "a string after a string", code},
      {"{{ 1 / 2 }}", "'/' with numbers that have a fraction", code},
      {"{{ f + 1 }}", "'+' with numbers that have a fraction", code},
      {"{{ 0.5 }}", "a number that is no decimal integer", code},
      {"{{ 1e3 }}", "a number that is no decimal integer", code},
      {"{{ 1_000 }}", "a number that is no decimal integer", code},
      {"{{ '\\101' }}", "'\\1' in a string", code},
      {"{{ l.0 }}", "a number after '.'", code},
      {"{{ s[::2] }}", "a slice of text with a step", code},
      {"{{ [1] * 2 }}", "'*' is not supported for a list", code},
      {"{{ [1] < [2] }}", "putting lists in order", code},
      {"{{ s.find('t', 1) }}", "str.find with the argument 'start'", code},
      {"{{ s.startswith(('a', 'b')) }}", "str.startswith with anything but a string", code},
      {"{{ s.endswith('t', 1) }}", "str.endswith with the argument 'start'", code},
      {"{{ s.replace('', 'a') }}", "str.replace with anything but two strings", code},
      {"{{ s|indent('>') }}", "the filter 'indent' by a string", code},
      {"{{ '4.5'|int }}", "the filter 'int' on text that is not an integer", code},
      {"{{ '7'|int(base=8) }}", "the filter 'int' with the argument 'base'", code},
      {"{{ l|join(',', attribute='a') }}", "the filter 'join' with the argument 'attribute'", code},
      {"{{ l|map(attribute='a', default=1)|list }}", "the filter 'map' without", code},
      {"{{ l|sort(case_sensitive=true) }}", "with the argument 'case_sensitive'", code},
      {"{{ l|sort(attribute='a,b') }}", "the filter 'sort' by several attributes", code},
      {"{{ d|dictsort(by='value') }}", "the filter 'dictsort' with the argument 'by'", code},
      {"{{ s|tojson(ensure_ascii=true) }}", "with the argument 'ensure_ascii'", code},
      {"{{ d|tojson(separators=(',', ':')) }}", "with the argument 'separators'", code},
      {"{{ d|tojson(sort_keys=true) }}", "with the argument 'sort_keys'", code},
      {"{{ d|tojson(indent='a') }}", "the filter 'tojson' with a string as indent", code},
      {"{{ dict(a=1) }}", "'dict' is not supported", code},
      {"{{ namespace({'a': 1}).a }}", "namespace of a dict", code},
      {"{{ d.items() }}", "printing an iterator, a range or a view of a dict", code},
      {"{% for x in l %}{{ loop.depth }}{% endfor %}", "'loop.depth'", code},
      {"{% for x in l %}{{ loop.cycle(1, 2) }}{% endfor %}", "'loop.cycle'", code},
      {"{% for x in l %}{{ loop.changed(x) }}{% endfor %}", "'loop.changed'", code},
      {"{% for x in l if x %}{{ loop.length }}{% endfor %}",
       "'loop.length' in a loop with a condition", code},
  });
}

TEST(JinjaRun, ErrorsHaveTheLineOfTheirPlace) {
  expect_bad({
      {"a\n\n{{ missing.x }}", "line 3: 'missing' is undefined"},
      {"{{ d.x + 'a' }}", "a value of type dict has no element 'x'"},
      {"{{ (1 if false).x }}", "the inline if of line 1 has no else"},
      {"{{ s + 1 }}", "'+' does not take str and int"},
      {"{{ -s }}", "'-' does not take int and str"},
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 1 < 'a' }}", "int and str cannot be put in order"},
      {"{{ 1 in 2 }}", "'in' cannot look into a value of type int"},
      {"{{ 1 in 'a' }}", "'in' on a string takes a string"},
      {"{% for x in 5 %}{% endfor %}", "a value of type int has no items"},
      {"{% for a, b in l %}{% endfor %}", "a value of type int has no items"},
      {"{% set a, b = l %}", "2 names for 3 values"},
      {"{% set d.x = 1 %}", "'d' is no namespace"},
      {"{% set n = namespace() %}{% set n._x = 1 %}", "not safe to set"},
      {"{{ s() }}", "a value of type str is no function"},
      {"{{ nothing() }}", "'nothing' is undefined"},
      {"{{ s.split('') }}", "the separator is empty"},
      {"{{ s.split(1) }}", "str.split takes a string as 'sep', not int"},
      {"{{ s.split('a', 'b') }}", "str.split takes an integer as 'maxsplit', not str"},
      {"{{ d.get([]) }}", "dict.get takes no list as key"},
      {"{{ s.replace('a') }}", "str.replace lacks its argument 'new'"},
      {"{{ l|join(',', 'a', 'b') }}", "the filter 'join' takes 2 arguments at most, not 3"},
      {"{{ s|trim(x=1) }}", "has no argument 'x'"},
      {"{{ s|trim('a', chars='b') }}", "was given twice 'chars'"},
      {"{{ 5|length }}", "a value of type int has no length"},
      {"{{ range(100001) }}", "range makes more than 100000 items"},
      {"{{ range(1, 2, 0) }}", "range cannot count: the step is 0"},
      {"{{ undefined|tojson }}", "tojson: a value of type Undefined is not JSON"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "macro 'm' takes 1 arguments at most"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "cannot take the argument 'b'"},
      {"\n{{ raise_exception('Only ' ~ 2 ~ ' roles') }}",
       "the chat template refuses this conversation: Only 2 roles (line 2 of the template)",
       ErrorCode::kInvalidArgument},
  });
}

TEST(JinjaRun, EverythingEnds) {
  const Limits limits{.steps = 1'000'000, .bytes = 16 << 20, .output = 1 << 20};
  const std::vector<std::string> endless = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set n = namespace(s='xxxxxxxx') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% "
      "endfor %}",
      "{{ 'x' * 999999999999 }}",
      "{% set n = namespace(l=[1]) %}{% for a in range(99) %}{% set n.l = n.l + n.l %}{% endfor %}",
      "{% for a in range(100000) %}0123456789abcdef{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set n = namespace(l=[]) %}{% for a in range(1000) %}{% set n.l = [n.l] %}{% endfor %}",
      "{{ ('a' * 9999999).replace('a', 'b' * 999) }}",
      "{% set n = namespace(s='\n') %}{% for a in range(99) %}{% set n.s = (n.s ~ n.s)|indent %}{% "
      "endfor %}",
      "{{ ('a,' * 999999).split(',') }}",
      "{% set s = 'a' * 99999 ~ 'b' %}{% for i in range(99999) %}{{ s in 'a' * 99999 }}{% endfor "
      "%}",
      "{% for i in range(99999) %}{{ range(99999)|sort|list }}{% endfor %}",
  };
  for (const std::string& source : endless) {
    const auto result = run(source, limits);
    ASSERT_FALSE(result) << source;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidFile) << source;
  }
}

// Long strings: what is done to them is counted for every byte of each of them.
TEST(JinjaRun, WorkOnLongTextsIsCounted) {
  const std::string a = "{% set a = 'x' * 10000000 %}";
  const std::string b = "{% set b = 'x' * 9999999 ~ 'y' %}";
  const auto loop = [](std::string_view body) {
    return "{% for i in range(100000) %}{% for j in range(100000) %}" + std::string(body) +
           "{% endfor %}{% endfor %}";
  };
  const std::vector<std::string> slow = {
      a + b + loop("{% if a == b %}{% endif %}"),
      a + b + loop("{% if a < b %}{% endif %}"),
      a + b + "{% set d = {a: 1} %}" + loop("{% if b in d %}{% endif %}"),
      a + b + "{% set d = {a: 1} %}" + loop("{% set v = d[b] %}"),
      a + b + "{% set d = {a: 1} %}" + loop("{% set v = d.get(b) %}"),
      a + loop("{% if a in 'b' %}{% endif %}"),
      a + loop("{% set v = 'b'.split(a) %}"),
      a + loop("{% set v = 'b'.replace(a, '') %}"),
      a + loop("{% set v = 'b'|replace(a, '') %}"),
      a + loop("{% set v = 'b'.strip(a) %}"),
      a + loop("{% set v = ('b' * 60).strip(a ~ 'b') %}"),
      a + loop("{% set v = ('b' * 60)|trim(a ~ 'b') %}"),
      a + loop("{% set v = [1, 2]|map(attribute=a)|list %}"),
      a + loop("{% set v = ('.' * 10000000).split('.') %}"),
      a + loop("{% set v = [a]|string %}"),
      a + loop("{% set v = ['\x01' * 1000000]|string %}"),
      a + loop("{% set v = 'b'.startswith(a) %}{% set w = a.endswith('y') %}"),
      a + loop("{% set v = a|tojson %}"),
      a + loop("{% set v = ('\n' * 10000000)|indent %}"),
      a + loop("{% set v = a|upper %}"),
      a + loop("{% set v = [a, a]|sort|length %}"),
      a + loop("{% set v = a|int %}"),
      a + loop("{% set v = ('.' * 1000).split('.') %}{% set w = v|join %}"),
      loop("{% set " + std::string(300'000, 'n') + " = 1 %}"),
      loop("{% for x in range(100000) if true %}{{ loop.nextitem }}{{ x + x + x }}{% endfor %}"),
  };
  for (const std::string& source : slow) {
    const std::string name = source.substr(0, 200);
    // Uncounted work would take hours; sanitizers and other programs cost a factor.
    const std::clock_t begin = std::clock();
    const auto result = run(source, {.steps = 5'000'000, .bytes = 64 << 20});
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 60.0) << name;
    ASSERT_FALSE(result) << name;
    EXPECT_THAT(result.error().message(), AnyOf(HasSubstr("the template runs for too long"),
                                                HasSubstr("the template makes too much text")))
        << name;
  }
}

// Items that were drawn ahead of their round leave one by one: each at the same cost.
TEST(JinjaRun, ALoopThatLooksAheadIsLinear) {
  const auto begin = std::chrono::steady_clock::now();
  const auto result =
      run("{% for x in range(100000) if true %}{% if loop.last %}{{ loop.index }}{% endif %}"
          "{% endfor %}");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 5.0);  // The square would take minutes.
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(*result, "100000");
}

TEST(JinjaRun, CanBeInterrupted) {
  const auto ast = parse(
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}"
      "{% endfor %}");
  ASSERT_TRUE(ast) << ast.error().message();
  int questions = 0;
  const Environment environment{.interrupted = [&] { return ++questions == 3; }};
  const auto result = render(*ast, environment);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kInterrupted);
  EXPECT_EQ(questions, 3);
}

TEST(JinjaSyntax, DeepNestingIsRefused) {
  const auto repeat = [](std::string_view part, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += part;
    return all;
  };
  const auto around = [&](std::string_view open, std::string_view close) {
    return repeat(open, 10'000) + "1" + repeat(close, 10'000);
  };
  const std::vector<std::string> sources = {
      "{{ " + around("(", ")") + " }}",         "{{ " + around("[", "]") + " }}",
      "{{ " + around("{1: ", "}") + " }}",      "{{ " + around("f(", ")") + " }}",
      "{{ " + around("x[", "]") + " }}",        "{{ " + around("not ", "") + " }}",
      "{{ " + around("-", "") + " }}",          "{{ " + around("1 if 1 else ", "") + " }}",
      "{{ " + around("1 is eq(", ")") + " }}",  "{{ x" + repeat(".a", 10'000) + " }}",
      "{{ x" + repeat("|list", 10'000) + " }}", "{{ 1" + repeat(" + 1", 10'000) + " }}",
      "{{ 1" + repeat(" if 1", 10'000) + " }}", repeat("{% if x %}", 10'000),
  };
  for (const std::string& source : sources) {
    const auto result = run(source);
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message(), HasSubstr("too deeply")) << source.substr(0, 20);
  }
  EXPECT_EQ(text("{{ 1" + repeat(" ~ 1", 1000) + " }}"), repeat("1", 1001));
  EXPECT_EQ(text("{{ 0" + repeat(" or 0", 1000) + " or 7 }}"), "7");
}

TEST(JinjaRun, ALoopSeesWhatItsBodySets) {
  EXPECT_EQ(text("{% set n = namespace(stop=false) %}{% for x in l if not n.stop %}{{ x }}"
                 "{% if x == 2 %}{% set n.stop = true %}{% endif %}{% endfor %}"),
            "12");
  EXPECT_EQ(
      text("{% for x in l if x != 2 %}{{ x }}{{ loop.last }}{{ loop.nextitem }};{% endfor %}"),
      "1False3;3True;");
  EXPECT_EQ(text("{% for x in l %}{{ loop.length }}{{ loop.revindex }}{% endfor %}"), "333231");
}

TEST(JinjaRun, LongNeedlesAreFoundToo) {
  EXPECT_EQ(text("{{ ('abcabcabcabcabcabcd' in 'xabcabcabcabcabcabcabcd') }}"), "True");
  EXPECT_EQ(text("{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab'.split('aaaaaaaaaaaaaaaaaaaaab') }}"),
            "['aaaaaaaaaaaaaaa', '']");
  EXPECT_EQ(text("{{ 'abcabcabcabcabcabcabc' in 'abcabc' }}"), "False");
}

}  // namespace
}  // namespace volta::jinja
